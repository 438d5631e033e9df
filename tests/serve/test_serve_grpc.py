"""The gRPC API: predictions, models, health."""

import threading
import time
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from tests.support.serving_cases import NAMES
from tests.support.serving_cases import X
from tests.support.serving_cases import needs_grpc
from tests.support.serving_cases import predict
from tests.support.serving_cases import serialize
from tfxclass_serve import servable
from tfxclass_serve.c_loader import TensorFlowError
from tfxclass_serve.servable import Servable
from tfxclass_serve.server import Server


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

    def test_excluded_ids_may_be_left_out(self, channel):
        inputs = {"a": X[:, :2], "b": np.arange(4)}
        plain = self.predict(channel, "pairs", **inputs)
        without = self.predict(channel, "pairs", "exclude", **inputs)
        ids = [tf.make_ndarray(x.outputs["ids"]) for x in (plain, without)]
        np.testing.assert_array_equal(*ids)
        # One row is for all questions.
        inputs["exclude_ids"] = ids[0][:1, :1]
        found = self.predict(channel, "pairs", "exclude", **inputs)
        found = tf.make_ndarray(found.outputs["ids"])
        assert found.shape == (4, 2) and not np.any(found == ids[0][0, 0])

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

    @pytest.mark.parametrize(
        "fields",
        [
            {"dtype": 99},
            {"dtype": tf.resource.as_datatype_enum},
            {"dtype": tf.int8.as_datatype_enum, "int_val": [1_000]},
            {"dtype": tf.uint8.as_datatype_enum, "int_val": [-1]},
            {"dtype": tf.float32.as_datatype_enum, "tensor_content": b"abc"},
            {"dtype": tf.string.as_datatype_enum, "tensor_content": b"abc"},
            {"dtype": tf.qint8.as_datatype_enum, "int_val": [1]},
            {"dtype": types_pb2.DT_INT4, "int_val": [1]},
        ],
    )
    def test_tensors_that_are_none(self, channel, fields):
        import grpc
        from tensorflow.core.framework import tensor_pb2
        from tensorflow_serving.apis import predict_pb2
        from tensorflow_serving.apis import prediction_service_pb2_grpc

        request = predict_pb2.PredictRequest()
        request.model_spec.name = "numbers"
        request.inputs["x"].CopyFrom(tensor_pb2.TensorProto(**fields))
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        with pytest.raises(grpc.RpcError) as e:
            stub.Predict(request, timeout=30)
        assert e.value.code().name == "INVALID_ARGUMENT", e.value

    def test_a_bug_of_ours_is_internal(self, channel, server, monkeypatch):
        import grpc

        def use(*_):
            raise KeyError("a bug")

        monkeypatch.setattr(server.models, "use", use)
        with pytest.raises(grpc.RpcError, match="KeyError") as e:
            self.predict(channel, x=X)
        assert e.value.code().name == "INTERNAL"

    def test_long_names_are_not_echoed(self, channel):
        """In a header of gRPC there is room for 8 KB."""
        import grpc

        for arguments in (
            {"model": "x" * 20_000},
            {"signature": "x" * 20_000, "x": X},
            {"x" * 20_000: X},
        ):
            with pytest.raises(grpc.RpcError) as e:
                self.predict(channel, **arguments)
            assert e.value.code().name in ("NOT_FOUND", "INVALID_ARGUMENT")
            assert len(e.value.details()) < 400

    def test_classify(self, channel, server):
        from tensorflow_serving.apis import classification_pb2
        from tensorflow_serving.apis import prediction_service_pb2_grpc

        request = classification_pb2.ClassificationRequest()
        request.model_spec.name = "numbers"
        request.model_spec.signature_name = "classify"
        for example in serialize({"x": X}):
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

    def test_status_and_reload(self, served_models):
        import grpc
        from tensorflow_serving.apis import get_model_status_pb2
        from tensorflow_serving.apis import model_management_pb2
        from tensorflow_serving.apis import model_service_pb2_grpc

        server = Server(str(served_models), grpc_port=0, rest_port=None)
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc.port}") as channel:
            stub = model_service_pb2_grpc.ModelServiceStub(channel)
            request = get_model_status_pb2.GetModelStatusRequest()
            request.model_spec.name = "numbers"
            (one,) = stub.GetModelStatus(request).model_version_status
            assert (one.version, one.state) == (1, one.AVAILABLE)
            reload = model_management_pb2.ReloadConfigRequest()
            reload.config.model_config_list.config.add(
                name="other", base_path=str(served_models / "numbers")
            )
            stub.HandleReloadConfigRequest(reload)
            assert server.models.names() == ["other"]
            reload.config.model_config_list.config.add(name="x")
            with pytest.raises(grpc.RpcError, match="name of its own"):
                stub.HandleReloadConfigRequest(reload)
        server.close()

    def test_health_and_stop(self, served_models):
        import grpc
        from grpc_health.v1 import health_pb2
        from grpc_health.v1 import health_pb2_grpc

        server = Server(
            str(served_models / "pairs"), grpc_port=0, rest_port=None
        )
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{server.grpc.port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for service in ("", "tensorflow.serving.PredictionService"):
                request = health_pb2.HealthCheckRequest(service=service)
                assert stub.Check(request, timeout=20).status == 1
            watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=20)
            assert next(watch).status == 1
            # Who watches is told, and does not hold up the end.
            begin = time.monotonic()
            assert server.stop(grace=15.0) is True
            assert time.monotonic() - begin < 5.0
            assert next(watch).status == 2
        server.models.close()

    def test_stop_answers_what_is_under_way(self, served_models, monkeypatch):
        import grpc

        server = Server(
            str(served_models / "numbers"), grpc_port=0, rest_port=None
        )
        server.start()
        gate, begun, run = threading.Event(), threading.Event(), Servable._run

        def slow(self, *arguments):
            begun.set()
            assert gate.wait(20)
            return run(self, *arguments)

        monkeypatch.setattr(Servable, "_run", slow)
        target = f"127.0.0.1:{server.grpc.port}"
        with (
            grpc.insecure_channel(target) as channel,
            futures.ThreadPoolExecutor(2) as pool,
        ):
            answer = pool.submit(self.predict, channel, x=X)
            assert begun.wait(20)
            stopped = pool.submit(server.stop)
            time.sleep(0.2)
            with pytest.raises(grpc.RpcError) as e:
                self.predict(channel, x=X)
            assert e.value.code().name == "UNAVAILABLE"
            gate.set()
            assert answer.result().outputs["ids"].tensor_shape.dim[0].size == 4
            assert stopped.result() is True
        server.models.close()
