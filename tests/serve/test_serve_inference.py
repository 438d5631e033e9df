"""Regress and MultiInference, of a model that does both."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.serving_cases import assert_refused
from tests.support.serving_cases import call
from tests.support.serving_cases import needs_grpc
from tests.support.serving_cases import serialize
from tfxclass_serve.server import Server

X = np.array([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]], np.float32)
CLASSIFY = tf.saved_model.CLASSIFY_METHOD_NAME
REGRESS = tf.saved_model.REGRESS_METHOD_NAME


def export(folder):
    """Sums, and which of two numbers is greater."""
    features = {"x": tf.io.FixedLenFeature([2], tf.float32)}
    spec = [tf.TensorSpec([None], tf.string, name="inputs")]

    def parsed(examples):
        return tf.io.parse_example(examples, features)["x"]

    def regress(inputs):
        return {"outputs": tf.reduce_sum(parsed(inputs), 1, keepdims=True)}

    def wide(inputs):
        return {"outputs": parsed(inputs)}

    def classify(inputs):
        scores, ids = tf.math.top_k(parsed(inputs), 2)
        return {"classes": tf.strings.as_string(ids), "scores": scores}

    signatures = {
        function.__name__: tf.function(function, spec)
        for function in (regress, wide, classify)
    }
    tf.saved_model.save(tf.Module(), str(folder), signatures=signatures)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    export(root / "both" / "1")
    grpc_port = None if needs_grpc.args[0] else 0
    server = Server(str(root), grpc_port=grpc_port)
    server.start()
    yield server
    server.close()


def regress(server, body):
    return call(server, "POST", "/v1/models/both:regress", body)


def test_rest(server):
    body = {
        "signature_name": "regress",
        "examples": [{"x": row} for row in X.tolist()],
    }
    status, answer = regress(server, body)
    assert (status, answer) == (200, {"results": [3.0, -0.5, 3.0]})


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("classify", "Expected a regression signature"),
        ("wide", "[batch_size, 1] but got [1, 2]"),
        ("no", "not found in signature def"),
    ],
)
def test_no_regression(server, signature, message):
    body = {"signature_name": signature, "examples": [{"x": [1.0, 2.0]}]}
    assert_refused(regress(server, body), 400, message)


@needs_grpc
class TestGrpc:
    @pytest.fixture
    def stub(self, server):
        import grpc
        from tensorflow_serving.apis import prediction_service_pb2_grpc

        target = f"127.0.0.1:{server.grpc.port}"
        with grpc.insecure_channel(target) as channel:
            yield prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def fill(self, request):
        for example in serialize({"x": X}):
            examples = request.input.example_list.examples
            examples.add().ParseFromString(example)
        return request

    def several(self, *tasks):
        from tensorflow_serving.apis import inference_pb2

        request = self.fill(inference_pb2.MultiInferenceRequest())
        for model, signature, method in tasks:
            task = request.tasks.add(method_name=method)
            task.model_spec.name = model
            task.model_spec.signature_name = signature
        return request

    def test_regress(self, stub):
        from tensorflow_serving.apis import regression_pb2

        request = self.fill(regression_pb2.RegressionRequest())
        request.model_spec.name = "both"
        request.model_spec.signature_name = "regress"
        response = stub.Regress(request, timeout=30)
        values = [one.value for one in response.result.regressions]
        assert values == [3.0, -0.5, 3.0]
        assert response.model_spec.version.value == 1

    def test_several(self, stub):
        request = self.several(
            ("both", "classify", CLASSIFY), ("both", "regress", REGRESS)
        )
        classes, values = stub.MultiInference(request, timeout=30).results
        names = [
            [one.label for one in row.classes]
            for row in classes.classification_result.classifications
        ]
        assert names == [["1", "0"], ["0", "1"], ["0", "1"]]
        found = [x.value for x in values.regression_result.regressions]
        assert found == [3.0, -0.5, 3.0]
        assert classes.model_spec.signature_name == "classify"
        assert values.model_spec.name == "both"
        assert values.model_spec.version.value == 1

    @pytest.mark.parametrize(
        ("tasks", "code", "message"),
        [
            ([], "INVALID_ARGUMENT", "the same model name, one at least"),
            ([("", "a", REGRESS)], "INVALID_ARGUMENT", "empty model name"),
            (
                [("both", "a", REGRESS), ("other", "a", REGRESS)],
                "INVALID_ARGUMENT",
                "the same model name",
            ),
            (
                [("both", "regress", REGRESS)] * 2,
                "INVALID_ARGUMENT",
                "Duplicate evaluation of signature: regress",
            ),
            (
                [("both", "regress", "tensorflow/serving/predict")],
                "UNIMPLEMENTED",
                "Unsupported signature method_name",
            ),
            ([("no", "a", REGRESS)], "NOT_FOUND", "Servable not found"),
        ],
    )
    def test_bad_tasks(self, stub, tasks, code, message):
        import grpc

        with pytest.raises(grpc.RpcError, match=message) as error:
            stub.MultiInference(self.several(*tasks), timeout=30)
        assert error.value.code().name == code
