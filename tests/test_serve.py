"""The development server answers as TensorFlow Serving is documented to."""

import ast
import base64
import concurrent.futures
import http.client
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import hypothesis
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from tensorflow.core.protobuf import saved_model_pb2

import tfxclass
from tests.helpers import make_text_model
from tfxclass.export import questions
from tfxclass_serve import __main__ as main
from tfxclass_serve import batching
from tfxclass_serve import json_codec
from tfxclass_serve import models
from tfxclass_serve import servable
from tfxclass_serve.c_loader import TensorFlowError
from tfxclass_serve.server import Server

ROOT = pathlib.Path(__file__).resolve().parent.parent
NUM_CLASSES = 50
NAMES = [f"name {i} \u00e9" for i in range(NUM_CLASSES)]
X = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")


def make_model():
    keras.utils.set_random_seed(0)
    layers = [keras.Input((3,), name="x"), keras.layers.Dense(8)]
    head = tfxclass.layers.FullSoftmax(NUM_CLASSES)
    return keras.Sequential([*layers, head])


def make_pair_model():
    """Two inputs; answers fail where an id is out of range."""
    keras.utils.set_random_seed(0)
    a = keras.Input((2,), name="a")
    b = keras.Input((), dtype="int64", name="b")
    features = keras.layers.Concatenate()([a, keras.layers.Embedding(4, 2)(b)])
    return keras.Model([a, b], tfxclass.layers.FullSoftmax(9)(features))


def has_grpc():
    names = ("grpc", "tensorflow_serving")
    return all(importlib.util.find_spec(name) for name in names)


needs_grpc = pytest.mark.skipif(
    not has_grpc(), reason="the extra tfxclass[serving] is not installed"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of three models."""
    root = tmp_path_factory.mktemp("models")
    model = make_model()
    export = tfxclass.export.saved_model
    sizes = [1, 2] if has_grpc() else []
    export(
        model,
        root / "numbers",
        top_k=3,
        verify=False,
        full_scores=True,
        warmup_batch_sizes=sizes,
    )
    text = make_text_model(NUM_CLASSES)
    export(text, root / "words", top_k=3, labels=NAMES, verify=False)
    export(make_pair_model(), root / "pairs", top_k=2, verify=False)
    return root


@pytest.fixture(scope="module")
def server(folder):
    server = Server(
        str(folder),
        grpc_port=0 if has_grpc() else None,
        poll_seconds=0.05,
        max_request_bytes=100_000,
        timeout=2.0,
    )
    server.start()
    yield server
    server.close()


def call(server, method, path, body=None, headers=()):
    """`(status, document)` of a request."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", server.rest.port, timeout=30
    )
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    connection.request(method, path, body, dict(headers))
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, json.loads(text)


def predict(server, body, model="numbers"):
    return call(server, "POST", f"/v1/models/{model}:predict", body)


def assert_refused(answer, status, message):
    assert answer[0] == status, answer
    assert list(answer[1]) == ["error"]
    assert message in answer[1]["error"]


class TestPredict:
    def test_rows(self, server):
        status, answer = predict(server, {"instances": X.tolist()})
        assert status == 200
        ids, scores = tfxclass.top_k(make_model(), 3)(X)
        assert list(answer) == ["predictions"]
        rows = answer["predictions"]
        assert [row["ids"] for row in rows] == ids.numpy().tolist()
        np.testing.assert_allclose(
            [row["scores"] for row in rows], scores, rtol=1e-5
        )

    def test_named_rows(self, server):
        named = predict(server, {"instances": [{"x": x} for x in X.tolist()]})
        assert named == predict(server, {"instances": X.tolist()})

    def test_columns(self, server):
        status, answer = predict(server, {"inputs": X.tolist()})
        assert status == 200
        assert set(answer["outputs"]) == {"ids", "scores"}
        named = predict(server, {"inputs": {"x": X.tolist()}})
        assert named == (200, answer)

    def test_single_output_has_no_name(self, server):
        body = {"signature_name": "embed", "instances": X.tolist()}
        rows = predict(server, body)[1]["predictions"]
        features = make_model().layers[0](X)
        np.testing.assert_allclose(rows, features, rtol=1e-5)
        body = {"signature_name": "full_scores", "inputs": X.tolist()}
        scores = predict(server, body)[1]["outputs"]
        np.testing.assert_allclose(scores, make_model()(X), rtol=1e-5)

    def test_text_and_base64(self, server):
        texts = ["a tool", "nails \u00e9"]
        plain = predict(server, {"instances": texts}, "words")
        assert plain[0] == 200
        row = plain[1]["predictions"][0]
        assert row["labels"] == [NAMES[i] for i in row["ids"]]
        coded = [base64.b64encode(x.encode()).decode() for x in texts]
        coded = [{"b64": x} for x in coded]
        assert predict(server, {"instances": coded}, "words") == plain
        named = [{"text": x} for x in coded]
        assert predict(server, {"instances": named}, "words") == plain

    def test_several_inputs(self, server):
        rows = [{"a": [1.0, 2], "b": 3}, {"a": [0, 0], "b": 0}]
        status, by_row = predict(server, {"instances": rows}, "pairs")
        assert status == 200
        columns = {"a": [[1, 2], [0, 0]], "b": [3, 0]}
        status, by_column = predict(server, {"inputs": columns}, "pairs")
        assert status == 200
        assert by_column["outputs"]["ids"] == [
            row["ids"] for row in by_row["predictions"]
        ]

    def test_nan_and_infinity(self, server):
        body = b'{"signature_name": "embed", "inputs": [[NaN, 1, Infinity]]}'
        status, answer = predict(server, body)
        assert status == 200
        assert np.isnan(answer["outputs"]).all()

    def test_shortest_digits(self):
        array = np.array([0.2, 1e-9, np.inf, np.nan], "float32")
        text = json.dumps(json_codec.predict_answer({"y": array}, False))
        assert text == '{"outputs": [0.2, 1e-09, Infinity, NaN]}'

    def test_bytes_and_text_that_is_none(self):
        array = np.array([b"\xff"], object)
        answers = {"x_bytes": array, "y": array}
        assert json_codec.predict_answer(answers, True) == {
            "predictions": [{"x_bytes": {"b64": "/w=="}, "y": "\ufffd"}]
        }

    @pytest.mark.parametrize(
        "body, message",
        [
            (b"", "JSON Parse error: The document is empty"),
            (b"{", "JSON Parse error"),
            (b"\xff", "JSON Parse error"),
            (b"[" * 90_000, "JSON Parse error"),
            (b'{"inputs": ' + b"1" * 9_000 + b"}", "JSON Parse error"),
            (b"[]", "Is not object"),
            (b"{}", "Missing 'inputs' or 'instances' key"),
            ({"instances": 1}, "to be an list/array"),
            ({"instances": []}, "No values in 'instances' array"),
            ({"instances": [[1, 2, 3]], "inputs": 1}, "expecting only one of"),
            ({"signature_name": 1}, "key must be a string value"),
            ({"signature_name": "no", "inputs": 1}, 'name: "no" not found'),
            ({"instances": [{"y": 1}]}, "keys must be equal to: x"),
            ({"instances": [[1], {"x": [1]}]}, "but got object at item 1"),
            ({"instances": [{"x": [1]}, [1]]}, "but got list at item 1"),
            ({"inputs": {"y": 1}}, "Missing named input: x"),
            ({"instances": [["a", 1, 2]]}, "is not of expected type: float"),
            ({"instances": [[True, 1, 2]]}, "is not of expected type: float"),
            ({"instances": [[None, 1, 2]]}, "is not of expected type: float"),
            ({"instances": [[{}, 1, 2]]}, "is not of expected type: float"),
            ({"instances": [[16777217, 1, 2]]}, "without loss of precision"),
            ({"instances": [[1e39, 1, 2]]}, "without loss of precision"),
            ({"instances": [[1, 2, 3], [1, 2]]}, "at unexpected size: 2"),
            ({"instances": [[1, [2], 3]]}, "at unexpected level: 2"),
            ({"instances": [[[1], 2, 3]]}, "found at incorrect level"),
            ({"instances": [[1, 2]]}, "must have shape (None, 3)"),
            ({"inputs": 1.0}, "must have shape (None, 3)"),
        ],
    )
    def test_malformed(self, server, body, message):
        assert_refused(predict(server, body), 400, message)

    @pytest.mark.parametrize(
        "body, message",
        [
            ({"instances": [1]}, "is not of expected type: string"),
            ({"instances": [{"b64": "?"}]}, "Unable to base64 decode"),
            (b'{"instances": ["\\ud800"]}', "JSON Parse error"),
            ({"instances": [{"b64": 1}]}, "keys must be equal to: text"),
        ],
    )
    def test_malformed_text(self, server, body, message):
        assert_refused(predict(server, body, "words"), 400, message)

    def test_malformed_pairs(self, server):
        answer = predict(server, {"instances": [1]}, "pairs")
        assert_refused(answer, 400, "plain list, but expecting an object")
        rows = [{"a": [1, 2], "b": 1.5}]
        answer = predict(server, {"instances": rows}, "pairs")
        assert_refused(answer, 400, "is not of expected type: int64")
        rows = [{"a": [1, 2], "b": 2**63}]
        answer = predict(server, {"instances": rows}, "pairs")
        assert_refused(answer, 400, "is not of expected type: int64")

    def test_failure_in_the_graph(self, server):
        rows = [{"a": [1, 2], "b": 4}]
        answer = predict(server, {"instances": rows}, "pairs")
        assert_refused(answer, 400, "not in [0, 4)")


class TestClassify:
    def test_examples(self, server):
        body = {
            "signature_name": "classify",
            "context": {"other": 1},
            "examples": [{"x": row} for row in X.tolist()],
        }
        status, answer = call(
            server, "POST", "/v1/models/numbers:classify", body
        )
        assert status == 200
        rows = predict(server, {"instances": X.tolist()})[1]["predictions"]
        for result, row in zip(answer["results"], rows):
            assert [int(name) for name, _ in result] == row["ids"]
            assert [score for _, score in result] == row["scores"]

    def test_text(self, server):
        body = {"signature_name": "classify", "examples": [{"text": "nails"}]}
        answer = call(server, "POST", "/v1/models/words:classify", body)
        assert answer[1]["results"][0][0][0] in NAMES

    @pytest.mark.parametrize(
        "body, message",
        [
            ({}, "key 'examples' is expected and was not found"),
            ({"examples": 1}, "value to be an list/array"),
            ({"examples": []}, "is an empty array"),
            ({"examples": [1]}, "Example must be JSON object"),
            ({"examples": [{"x": None}]}, "unexpected JSON type: null"),
            ({"examples": [{"x": [1.5, "a"]}]}, "Unexpected element type"),
            ({"examples": [{"x": 2**64}]}, "is not of expected type: int64"),
            ({"examples": [{"x": [1.0, 2.0, 3.0]}]}, "Expected a classific"),
        ],
    )
    def test_malformed(self, server, body, message):
        answer = call(server, "POST", "/v1/models/numbers:classify", body)
        assert_refused(answer, 400, message)

    def test_example_without_the_feature(self, server):
        body = {"signature_name": "classify", "examples": [{}]}
        answer = call(server, "POST", "/v1/models/numbers:classify", body)
        assert_refused(answer, 400, "Feature: x")

    def test_no_regression(self, server):
        answer = call(server, "POST", "/v1/models/numbers:regress", {})
        assert_refused(answer, 501, "do not regress")


class TestPaths:
    def test_status(self, server):
        assert call(server, "GET", "/v1/models/numbers") == (
            200,
            {
                "model_version_status": [
                    {
                        "version": "1",
                        "state": "AVAILABLE",
                        "status": {"error_code": "OK", "error_message": ""},
                    }
                ]
            },
        )

    def test_metadata(self, server):
        status, answer = call(server, "GET", "/v1/models/words/metadata")
        assert status == 200
        assert answer["model_spec"] == {
            "name": "words",
            "signature_name": "",
            "version": "1",
        }
        signatures = answer["metadata"]["signature_def"]["signature_def"]
        assert {"serving_default", "classify", "embed"} <= set(signatures)
        inputs = signatures["serving_default"]["inputs"]
        assert inputs["text"]["dtype"] == "DT_STRING"
        assert inputs["text"]["tensor_shape"]["dim"][0]["size"] == "-1"

    def test_versions(self, server):
        body = {"instances": X.tolist()}
        path = "/v1/models/numbers/versions/1:predict"
        assert call(server, "POST", path, body) == predict(server, body)
        assert call(server, "GET", "/V1/Models/numbers/versions/1")[0] == 200
        answer = call(server, "POST", path.replace("1:", "2:"), body)
        assert_refused(
            answer, 404, "Servable not found for request: Specific(numbers, 2)"
        )

    @pytest.mark.parametrize(
        "method, path, status, message",
        [
            ("POST", "/v1/models/no:predict", 404, "request: Latest(no)"),
            ("POST", "/v1/models/numbers/labels/no:predict", 400, "label: no"),
            ("POST", "/v1/models/numbers:no", 400, "Malformed request: POST"),
            ("POST", "/v1/models/numbers", 400, "Malformed request: POST"),
            ("POST", "/", 400, "Malformed request: POST /"),
            ("GET", "/v1/models", 400, "Missing model name in request."),
            ("GET", "/v1/models/no", 404, "any versions of model no"),
            ("GET", "/v1/models/numbers/versions/7", 404, "numbers version 7"),
            ("GET", "/v1/models/numbers/versions/-1", 400, "Malformed"),
            (
                "GET",
                "/v1/models/numbers/versions/" + "9" * 30,
                400,
                "to numeric",
            ),
            ("GET", "/v1/models/..%2f..%2fetc", 404, "any versions"),
            ("GET", "/../../etc/passwd", 400, "Malformed request: GET"),
            ("GET", "/v1/models/../numbers", 400, "Malformed request"),
            ("GET", "/v1/models/%00%ff", 404, "any versions"),
        ],
    )
    def test_errors(self, server, method, path, status, message):
        body = {"inputs": 1} if method == "POST" else None
        assert_refused(call(server, method, path, body), status, message)

    def test_metrics(self, server):
        predict(server, {"instances": X.tolist()})
        predict(server, {})
        predict(server, {}, "no")  # Names of clients are not counted.
        connection = http.client.HTTPConnection("127.0.0.1", server.rest.port)
        connection.request("GET", "/monitoring/prometheus/metrics")
        response = connection.getresponse()
        page = response.read().decode()
        assert response.getheader("Content-Type").startswith("text/plain")
        connection.close()
        labels = 'model_name="numbers",status="INVALID_ARGUMENT"'
        assert f":tensorflow:serving:request_count{{{labels}}} " in page
        labels = 'model_name="numbers",API="Predict",entrypoint="REST"'
        assert f"request_latency_count{{{labels}}} " in page
        assert '"no"' not in page


class TestHttp:
    def raw(self, server, data, wait=5.0):
        """What is answered to these bytes, until the end."""
        address = "127.0.0.1", server.rest.port
        with socket.create_connection(address, timeout=wait) as connection:
            connection.sendall(data)
            parts = []
            while part := connection.recv(65_536):
                parts.append(part)
        return b"".join(parts)

    def test_too_large(self, server):
        head = b"POST /v1/models/numbers:predict HTTP/1.1\r\nHost: a\r\n"
        answer = self.raw(server, head + b"Content-Length: 100001\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 413")
        assert b'{"error": "A request may have 100000 bytes.' in answer

    @pytest.mark.parametrize(
        "header, status",
        [
            (b"Content-Length: -1", b"400"),
            (b"Content-Length: x", b"400"),
            (b"Transfer-Encoding: chunked", b"501"),
        ],
    )
    def test_bad_lengths(self, server, header, status):
        head = b"POST /v1/models/numbers:predict HTTP/1.1\r\nHost: a\r\n"
        answer = self.raw(server, head + header + b"\r\n\r\n{}")
        assert answer.startswith(b"HTTP/1.1 " + status)

    @pytest.mark.parametrize(
        "data", [b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"PUT / HTTP/1.1\r\n\r\n"]
    )
    def test_no_http(self, server, data):
        self.raw(server, data)
        assert call(server, "GET", "/v1/models/numbers")[0] == 200

    def test_slow_client(self, server):
        head = b"POST /v1/models/numbers:predict HTTP/1.1\r\nHost: a\r\n"
        answer = self.raw(server, head + b"Content-Length: 9\r\n\r\n{")
        assert answer.startswith(b"HTTP/1.1 408")

    def test_client_that_ends_early(self, server):
        address = "127.0.0.1", server.rest.port
        with socket.create_connection(address) as connection:
            connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
        assert call(server, "GET", "/v1/models/numbers")[0] == 200

    def test_connections_are_limited(self, folder):
        server = Server(str(folder / "pairs"), max_connections=1)
        server.start()
        address = "127.0.0.1", server.rest.port
        with socket.create_connection(address) as first:
            first.sendall(b"GET /v1/models/pairs HTTP/1.1\r\nHost: a\r\n\r\n")
            assert first.recv(100).startswith(b"HTTP/1.1 200")
            with socket.create_connection(address) as second:
                second.settimeout(5)
                assert second.recv(100) == b""
        server.close()


def json_values():
    leaves = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.just({"b64": "YQ=="})
    )
    return st.recursive(
        leaves,
        lambda x: (
            st.lists(x, max_size=4)
            | st.dictionaries(st.sampled_from(["x", "b64", "y"]), x, max_size=3)
        ),
        max_leaves=12,
    )


@pytest.fixture(scope="module")
def infos(folder):
    with open(folder / "numbers" / "1" / "saved_model.pb", "rb") as f:
        saved = saved_model_pb2.SavedModel.FromString(f.read())
    return saved.meta_graphs[0].signature_def["serving_default"].inputs


class TestFuzz:
    @hypothesis.settings(max_examples=200, deadline=None)
    @hypothesis.given(
        keys=st.sets(
            st.sampled_from(["instances", "inputs", "signature_name", "z"])
        ),
        value=json_values(),
        other=json_values(),
    )
    def test_any_document(self, infos, keys, value, other):
        values = {"inputs": other}
        body = json.dumps({key: values.get(key, value) for key in keys})
        try:
            document = json_codec.parse_object(body.encode())
            inputs, _ = json_codec.predict_inputs(document, infos)
        except TensorFlowError as e:
            assert e.code == 3
            return
        assert inputs["x"].dtype == np.float32

    @hypothesis.settings(max_examples=100, deadline=None)
    @hypothesis.given(value=json_values(), context=json_values())
    def test_any_example(self, value, context):
        document = {"examples": value, "context": context}
        try:
            found = json_codec.classify_examples(document)
        except TensorFlowError as e:
            assert e.code == 3
            return
        for example in found:
            tf.train.Example.FromString(example)

    @hypothesis.settings(max_examples=100, deadline=None)
    @hypothesis.given(st.binary(max_size=50))
    def test_any_bytes(self, body):
        try:
            assert isinstance(json_codec.parse_object(body), dict)
        except TensorFlowError as e:
            assert e.code == 3

    @hypothesis.settings(max_examples=40, deadline=None)
    @hypothesis.given(
        rows=st.lists(
            st.lists(st.floats(width=32), min_size=2, max_size=2), min_size=1
        )
    )
    def test_floats_come_back(self, rows):
        array = np.array(rows, "float32")
        document = json_codec.predict_answer({"y": array}, True)
        text = json.dumps(document)
        back = json.loads(text)["predictions"]
        np.testing.assert_array_equal(np.array(back, "float32"), array)


def start_in_own_process(folder, *arguments):
    """`(process, REST port)` of `tfxclass-serve`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tfxclass_serve", str(folder)]
    flags = [f"--rest_api_port={port}", "--port=0", *arguments]
    process = subprocess.Popen(
        [*command, *flags],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, port


def test_command_line(folder):
    process, port = start_in_own_process(folder, "--batch_sizes=1,4")
    told = []
    while "REST at" not in (line := process.stdout.readline()):
        assert line, process.stderr.read()
        told.append(line)
    assert "for development" in told[0]
    assert "numbers version 1 AVAILABLE\n" in told
    connection = http.client.HTTPConnection("127.0.0.1", port)
    body = json.dumps({"instances": X.tolist()})
    connection.request("POST", "/v1/models/numbers:predict", body)
    assert connection.getresponse().status == 200
    connection.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0, process.stderr.read()
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize(
    "arguments",
    [[], ["/no/such/folder"], [".", "--batch_sizes=4,1"], [".", "--x"]],
)
def test_bad_command_line(arguments, capsys):
    with pytest.raises(SystemExit) as e:
        main.parse_arguments(arguments)
    assert e.value.code == 2
    assert "tfxclass-serve: error" in capsys.readouterr().err


def test_without_the_extra(folder, monkeypatch):
    monkeypatch.delitem(
        sys.modules, "tfxclass_serve.grpc_server", raising=False
    )
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(SystemExit, match="pip install 'tfxclass.serving.'"):
        main.main([str(folder)])


def test_port_that_is_taken(folder):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match="tfxclass-serve: .*in use"):
            main.main([str(folder), f"--rest_api_port={port}", "--port=0"])


def test_it_does_not_import_tfxclass():
    for path in (ROOT / "tfxclass_serve").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [x.name for x in getattr(node, "names", ())]
            names.append(getattr(node, "module", None) or "")
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                assert not [x for x in names if x.split(".")[0] == "tfxclass"]


class TestVersions:
    """Polling, with files that are copied."""

    @pytest.fixture
    def own(self, folder, tmp_path):
        """A server of one model, polled by hand."""
        shutil.copytree(folder / "numbers", tmp_path / "m" / "numbers")
        server = Server(str(tmp_path / "m"), poll_seconds=1e6)
        server.models.poll()
        server.rest.start()
        yield server, tmp_path / "m" / "numbers"
        server.rest.close()
        server.models.close()

    def states(self, server):
        rows = server.models.status("numbers")
        return [(version, models.STATES[state]) for version, state, _ in rows]

    def test_a_new_version_takes_over(self, own):
        server, path = own
        with server.models.use("numbers") as (old, version):
            assert version == 1
            os.rename(shutil.copytree(path / "1", path / "x"), path / "0012")
            poll = threading.Thread(target=server.models.poll)
            poll.start()
            while self.states(server)[0] != (12, "AVAILABLE"):
                time.sleep(0.01)
            # What is under way is not cut off.
            assert old.predict("", {"x": X})["ids"].shape == (4, 3)
            assert self.states(server)[1:] == [(1, "UNLOADING")]
        poll.join()
        assert self.states(server) == [(12, "AVAILABLE")]
        assert predict(server, {"inputs": X.tolist()})[0] == 200

    def test_a_broken_version_leaves_the_old_one(self, own):
        server, path = own
        shutil.copytree(path / "1", path / "2")
        (path / "2" / "saved_model.pb").write_bytes(b"broken")
        server.models.poll()
        assert self.states(server) == [(2, "END"), (1, "AVAILABLE")]
        assert predict(server, {"inputs": X.tolist()})[0] == 200
        status = call(server, "GET", "/v1/models/numbers/versions/2")[1]
        error = status["model_version_status"][0]["status"]
        assert error["error_code"] != "OK" and error["error_message"]
        shutil.rmtree(path / "2")
        server.models.poll()
        assert self.states(server) == [(1, "AVAILABLE")]

    def test_a_bad_warmup_stops_the_load(self, own):
        server, path = own
        shutil.copytree(path / "1", path / "2")
        (path / "2" / "assets.extra").mkdir(exist_ok=True)
        warmup = path / "2" / "assets.extra" / "tf_serving_warmup_requests"
        warmup.write_bytes(b"no record" * 10)
        server.models.poll()
        assert self.states(server) == [(2, "END"), (1, "AVAILABLE")]

    def test_folders_that_go(self, own):
        server, path = own
        os.rename(path / "1", path / "away")
        server.models.poll()
        answer = predict(server, {"inputs": X.tolist()})
        assert_refused(answer, 404, "Latest(numbers)")

    def test_pinned_versions_and_labels(self, own):
        server, path = own
        shutil.copytree(path / "1", path / "2")
        shutil.copytree(path / "1", path / "3")
        labels = {"stable": 1, "canary": 2}
        source = models.Source(str(path), frozenset([1, 2]), labels)
        server.models.configure({"numbers": source})
        assert [version for version, _ in self.states(server)] == [2, 1]
        with server.models.use("numbers", label="stable") as (_, version):
            assert version == 1
        at = "/v1/models/numbers/labels/canary"
        assert (
            call(server, "GET", at)[1]["model_version_status"][0]["version"]
            == "2"
        )
        body = {"inputs": X.tolist()}
        assert call(server, "POST", at + ":predict", body)[0] == 200
        with pytest.raises(TensorFlowError, match="cannot be supplied"):
            with server.models.use("numbers", 1, "stable"):
                pass


class TestBatching:
    @staticmethod
    def run(key, inputs, outputs):
        TestBatching.seen.append(len(inputs["x"]))
        if np.any(inputs["x"] < 0):
            raise TensorFlowError(3, "negative")
        return {"y": 2 * inputs["x"]}

    @pytest.fixture
    def batcher(self):
        TestBatching.seen = []
        batcher = batching.Batcher(
            self.run, batching.Batching((2, 4, 8), timeout=0.1)
        )
        yield batcher
        batcher.close()

    def ask(self, batcher, *values):
        """Answers to requests at the same time, or their errors."""

        def one(value):
            try:
                return batcher.run("k", {"x": np.array(value)}, ("y",))["y"]
            except TensorFlowError as e:
                return str(e)

        with concurrent.futures.ThreadPoolExecutor(len(values)) as pool:
            return [np.array(x).tolist() for x in pool.map(one, values)]

    def test_together_and_padded(self, batcher):
        assert self.ask(batcher, [1], [2, 3], []) == [[2], [4, 6], []]
        assert self.seen == [4]

    def test_no_more_than_allowed(self, batcher):
        values = [[i, i, i] for i in range(5)]
        assert self.ask(batcher, *values) == [[2 * i] * 3 for i in range(5)]
        assert max(self.seen) <= 8 and set(self.seen) <= {2, 4, 8}

    def test_a_bad_request_fails_alone(self, batcher):
        assert self.ask(batcher, [1], [-1], [2]) == [[2], "negative", [4]]

    def test_too_large(self, batcher):
        (told,) = self.ask(batcher, [0] * 9)
        assert "Task size 9 is larger than maximum input batch size 8" in told

    def test_full_queue(self):
        gate = threading.Event()

        def wait(key, inputs, outputs):
            gate.wait()
            return {"y": inputs["x"]}

        batcher = batching.Batcher(wait, batching.Batching((1,), 0.0, 1))
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            waiting = []
            for _ in range(2):
                x = {"x": np.zeros(1)}
                waiting.append(pool.submit(batcher.run, "k", x, ("y",)))
                time.sleep(0.1)
            with pytest.raises(TensorFlowError, match="queue .* is full"):
                batcher.run("k", {"x": np.zeros(1)}, ("y",))
            gate.set()
            assert [x.result()["y"].shape for x in waiting] == [(1,), (1,)]
        batcher.close()


@pytest.mark.parametrize(
    "seconds", [4, pytest.param(60, marks=pytest.mark.slow)]
)
def test_load_with_a_swap(seconds, folder, tmp_path):
    """16 clients; no request fails and memory stays bounded."""
    path = tmp_path / "m" / "numbers"
    shutil.copytree(folder / "numbers", path)
    server = Server(
        str(tmp_path / "m"),
        poll_seconds=0.1,
        batching=batching.Batching((1, 4, 16, 64)),
    )
    server.start()
    body = json.dumps({"instances": X[:1].tolist()})
    done = threading.Event()
    wrong, counts = [], [0] * 16

    def client(number):
        address = "127.0.0.1", server.rest.port
        connection = http.client.HTTPConnection(*address)
        while not done.is_set():
            connection.request("POST", "/v1/models/numbers:predict", body)
            response = connection.getresponse()
            text = response.read()
            counts[number] += 1
            if response.status != 200:
                wrong.append(text)
        connection.close()

    clients = [threading.Thread(target=client, args=[i]) for i in range(16)]
    for one in clients:
        one.start()
    time.sleep(seconds / 4)
    before = resident_bytes()
    os.rename(shutil.copytree(path / "1", tmp_path / "2"), path / "2")
    time.sleep(3 * seconds / 4)
    # On a busy machine it takes longer.
    version, end = 1, time.monotonic() + 60
    while version == 1 and time.monotonic() < end:
        time.sleep(0.1)
        with server.models.use("numbers") as (_, version):
            pass
    done.set()
    for one in clients:
        one.join()
    assert not wrong
    assert min(counts) > 0
    assert version == 2
    assert resident_bytes() - before < 100e6
    server.close()


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def channel(server):
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{server.grpc.port}") as channel:
        yield channel


@needs_grpc
class TestGrpc:
    def predict(self, channel, model="numbers", signature="", **inputs):
        from tensorflow_serving.apis import predict_pb2
        from tensorflow_serving.apis import prediction_service_pb2_grpc

        request = predict_pb2.PredictRequest()
        request.model_spec.name = model
        request.model_spec.signature_name = signature
        for name, value in inputs.items():
            value = tf.make_tensor_proto(value)
            request.inputs[name].CopyFrom(value)
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        return stub.Predict(request, timeout=30)

    def test_predict(self, channel, server):
        response = self.predict(channel, x=X)
        assert response.model_spec.version.value == 1
        assert response.outputs["ids"].tensor_content
        ids = tf.make_ndarray(response.outputs["ids"])
        rows = predict(server, {"instances": X.tolist()})[1]["predictions"]
        assert ids.tolist() == [row["ids"] for row in rows]

    def test_predict_text(self, channel):
        response = self.predict(channel, "words", text=["a tool"])
        assert response.outputs["labels"].string_val[0].decode() in NAMES

    def test_output_filter(self, channel, server):
        with server.models.use("numbers") as (model, _):
            assert set(model.predict("", {"x": X}, ["ids"])) == {"ids"}
            with pytest.raises(TensorFlowError, match="alias not found"):
                model.predict("", {"x": X}, ["no"])

    @pytest.mark.parametrize(
        "arguments, code, message",
        [
            ({"model": "no", "x": X}, "NOT_FOUND", "Latest.no."),
            ({"model": ""}, "INVALID_ARGUMENT", "Missing ModelSpec"),
            ({"y": X}, "INVALID_ARGUMENT", "Sent extra: .'y'.. Missing"),
            ({"x": [[1, 2, 3]]}, "INVALID_ARGUMENT", "must be float32"),
            ({"x": [[1.0, 2.0]]}, "INVALID_ARGUMENT", "must have shape"),
            ({"signature": "no", "x": X}, "INVALID_ARGUMENT", '"no" not found'),
            (
                {"x": np.zeros([30_000, 3], "float32")},
                "RESOURCE_EXHAUSTED",
                "larger than max",
            ),
        ],
    )
    def test_errors(self, channel, arguments, code, message):
        import grpc

        with pytest.raises(grpc.RpcError, match=message) as e:
            self.predict(channel, **arguments)
        assert e.value.code().name == code

    def test_shapes_that_are_lies(self, channel):
        for sizes in ([-1, 3], [1 << 40, 3], [2, 2]):
            proto = tf.make_tensor_proto(X)
            for dim, size in zip(proto.tensor_shape.dim, sizes):
                dim.size = size
            with pytest.raises(TensorFlowError) as e:
                servable.to_array(proto)
            assert e.value.code == 3

    def test_classify(self, channel, server):
        from tensorflow_serving.apis import classification_pb2
        from tensorflow_serving.apis import prediction_service_pb2_grpc

        request = classification_pb2.ClassificationRequest()
        request.model_spec.name = "numbers"
        request.model_spec.signature_name = "classify"
        for example in questions.serialize({"x": X}):
            examples = request.input.example_list.examples
            examples.add().ParseFromString(example)
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        response = stub.Classify(request, timeout=30)
        rows = predict(server, {"instances": X.tolist()})[1]["predictions"]
        found = [
            [int(one.label) for one in result.classes]
            for result in response.result.classifications
        ]
        assert found == [row["ids"] for row in rows]

    def test_metadata(self, channel):
        from tensorflow_serving.apis import get_model_metadata_pb2
        from tensorflow_serving.apis import prediction_service_pb2_grpc

        request = get_model_metadata_pb2.GetModelMetadataRequest()
        request.model_spec.name = "numbers"
        request.metadata_field.append("signature_def")
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        response = stub.GetModelMetadata(request, timeout=30)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        assert response.metadata["signature_def"].Unpack(signatures)
        assert "full_scores" in signatures.signature_def

    def test_status_and_reload(self, folder):
        import grpc
        from tensorflow_serving.apis import get_model_status_pb2
        from tensorflow_serving.apis import model_management_pb2
        from tensorflow_serving.apis import model_service_pb2_grpc

        server = Server(str(folder), grpc_port=0, rest_port=None)
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc.port}") as channel:
            stub = model_service_pb2_grpc.ModelServiceStub(channel)
            request = get_model_status_pb2.GetModelStatusRequest()
            request.model_spec.name = "numbers"
            (one,) = stub.GetModelStatus(request).model_version_status
            assert (one.version, one.state) == (1, one.AVAILABLE)
            reload = model_management_pb2.ReloadConfigRequest()
            reload.config.model_config_list.config.add(
                name="other", base_path=str(folder / "numbers")
            )
            stub.HandleReloadConfigRequest(reload)
            assert server.models.names() == ["other"]
            reload.config.model_config_list.config.add(name="x")
            with pytest.raises(grpc.RpcError, match="name of its own"):
                stub.HandleReloadConfigRequest(reload)
        server.close()
