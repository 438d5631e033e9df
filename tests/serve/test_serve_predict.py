"""Predictions and classifications, as TensorFlow Serving is documented."""

import base64
import json

import numpy as np
import pytest

import tfxclass
from tests.support.serving_cases import NAMES
from tests.support.serving_cases import X
from tests.support.serving_cases import assert_refused
from tests.support.serving_cases import call
from tests.support.serving_cases import make_model
from tests.support.serving_cases import predict
from tfxclass_serve import json_codec


def nested(levels):
    """A body with one number at this level."""
    return b'{"inputs": ' + b"[" * levels + b"1" + b"]" * levels + b"}"


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

    def test_filters(self, server):
        inputs = {"a": [[1.0, 2.0], [0.5, -1.0]], "b": [3, 0]}
        plain = predict(server, {"inputs": inputs}, "pairs")[1]["outputs"]
        best = [[ids[0]] for ids in plain["ids"]]

        def ask(signature, **ids):
            body = {"signature_name": signature, "inputs": {**inputs, **ids}}
            return predict(server, body, "pairs")

        for padding in ([-1], [best[0][0], -1]):
            wanted = [[*row, *padding] for row in best]
            found = ask("exclude", exclude_ids=wanted)[1]["outputs"]["ids"]
            assert [row[0] for row in found][0] == plain["ids"][0][1]
            for row, ids in zip(found, wanted):
                assert not set(row) & set(ids)
        found = ask("only", only_ids=[[4, -1], [5, 4]])[1]["outputs"]["ids"]
        assert found[0] == [4, -1] and sorted(found[1]) == [4, 5]
        # As in TensorFlow Serving, JSON names all inputs.
        answer = ask("exclude")
        assert_refused(answer, 400, "Missing named input: exclude_ids")
        answer = ask("exclude", exclude_ids=[[9], [1]])
        assert_refused(answer, 400, "ids of a filter must be in [0, num_cl")

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
            (nested(32), "must have shape (None, 3)"),
            (nested(33), "Lists may be nested 32 levels deep"),
            (nested(65), "Lists may be nested 32 levels deep"),
            (nested(300), "Lists may be nested 32 levels deep"),
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
        path = "/v1/models/numbers:regress"
        answer = call(server, "POST", path, {})
        assert_refused(answer, 400, "When method is regress, key 'examples'")
        answer = call(server, "POST", path, {"examples": [{"x": [1.0]}]})
        assert_refused(answer, 400, "Expected a regression signature")
