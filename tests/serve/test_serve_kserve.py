"""KServe's REST API, and ovmsclient's version 0."""

import pytest

from tests.support.serving_cases import NAMES
from tests.support.serving_cases import X
from tests.support.serving_cases import assert_refused
from tests.support.serving_cases import call
from tests.support.serving_cases import predict

INFER = "/v2/models/numbers/infer"


def tensor(data, **other):
    given = {"name": "x", "datatype": "FP32", "shape": [4, 3], "data": data}
    return {**given, **other}


def test_a_model_and_its_server(server):
    for path in ("/v2", "/v2/health/live", "/v2/models/words/ready"):
        assert call(server, "GET", path)[0] == 200, path
    status, answer = call(server, "GET", "/v2/models/words/versions/1")
    assert (status, answer["versions"]) == (200, ["1"])
    text = {"name": "text", "datatype": "BYTES", "shape": [-1]}
    assert answer["inputs"] == [text]
    shapes = {x["name"]: (x["datatype"], x["shape"]) for x in answer["outputs"]}
    assert shapes["labels"] == ("BYTES", [-1, 3])
    assert shapes["ids"] == ("INT64", [-1, 3])


@pytest.mark.parametrize("data", [X.tolist(), X.ravel().tolist()])
def test_answers_are_those_of_predict(server, data):
    """Lists may be nested or flat."""
    rows = predict(server, {"instances": X.tolist()})[1]["predictions"]
    body = {"id": "a", "inputs": [tensor(data)], "outputs": [{"name": "ids"}]}
    assert call(server, "POST", INFER, body) == (
        200,
        {
            "model_name": "numbers",
            "model_version": "1",
            "id": "a",
            "outputs": [
                {
                    "name": "ids",
                    "datatype": "INT64",
                    "shape": [4, 3],
                    "data": [x for row in rows for x in row["ids"]],
                }
            ],
        },
    )


def test_texts(server):
    text = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["w1"]}
    path = "/v2/models/words/versions/1/infer"
    status, answer = call(server, "POST", path, {"inputs": [text]})
    found = {x["name"]: x["data"] for x in answer["outputs"]}
    assert status == 200 and set(found) == {"ids", "scores", "labels"}
    assert found["labels"] == [NAMES[i] for i in found["ids"]]


@pytest.mark.parametrize(
    "path, body, status, message",
    [
        (INFER, {}, 400, "'inputs' must be a list of objects"),
        (INFER, {"inputs": [tensor([], name="y")]}, 400, "model has x"),
        (INFER, {"inputs": [tensor([1.0])]}, 400, "has 1 numbers"),
        (INFER, {"inputs": [tensor(["a"])]}, 400, "not of expected type"),
        (INFER, {"inputs": [tensor([1.0], shape=[-1])]}, 400, "has 1 numbers"),
        (INFER, {"inputs": [{"name": "x"}]}, 400, "binary_data=False"),
        (INFER.replace("numbers", "no"), {}, 404, "Servable not found"),
        ("/v2/models/numbers", {}, 400, "Malformed request"),
        ("/v2/repository/index", {}, 400, "Malformed request"),
    ],
)
def test_what_is_refused(server, path, body, status, message):
    assert_refused(call(server, "POST", path, body), status, message)


def test_version_0_is_the_latest(server):
    """ovmsclient asks for it by default."""
    body = {"instances": X.tolist()}
    path = "/v1/models/numbers/versions/0:predict"
    assert call(server, "POST", path, body) == predict(server, body)
    assert call(server, "GET", "/v1/models/numbers/versions/0")[0] == 200
