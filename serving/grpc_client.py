"""Asks a served model over gRPC; needs grpcio and tensorflow-serving-api.

python serving/grpc_client.py reverse_dictionary "the fear of closed spaces"
"""

import argparse

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

# 4 MB by default: scores of a million classes are as much.
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
]


class Client:
    """A channel to a server; close it, or use it in a `with`.

    Args:
        target: str, as `localhost:8500`.
    """

    def __init__(self, target):
        self._channel = grpc.insecure_channel(target, _OPTIONS)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(
            self._channel
        )

    def predict(self, model, inputs, signature="serving_default", label=None):
        """Answers of a model, a dict of arrays; strings as bytes objects.

        Args:
            model: str, its name.
            inputs: dict of arrays by name, `[batch, ...]`.
            signature: str.
            label: str, of a version, as "canary"; the latest without.

        Raises:
            grpc.RpcError: the server refuses.
        """
        request = predict_pb2.PredictRequest()
        request.model_spec.name = model
        request.model_spec.signature_name = signature
        if label:
            request.model_spec.version_label = label
        for name, value in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
        answers = self._stub.Predict(request, timeout=30).outputs
        return {name: to_array(tensor) for name, tensor in answers.items()}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._channel.close()


def to_array(tensor):
    """Array of a TensorProto: the bytes of its numbers are not copied."""
    if not tensor.tensor_content:
        return tf.make_ndarray(tensor)
    dtype = tf.as_dtype(tensor.dtype).as_numpy_dtype
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    return np.frombuffer(tensor.tensor_content, dtype).reshape(shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--target", default="localhost:8500")
    parser.add_argument("--input", default="text", help="the input's name")
    parser.add_argument("--label", help="of a version, as canary")
    arguments = parser.parse_args()
    with Client(arguments.target) as client:
        answers = client.predict(
            arguments.model,
            {arguments.input: arguments.texts},
            label=arguments.label,
        )
    names = answers.get("labels", answers["ids"])
    for text, row, scores in zip(arguments.texts, names, answers["scores"]):
        print(text)
        for name, score in zip(row, scores):
            name = name.decode() if isinstance(name, bytes) else name
            print(f"  {score:.3f}  {name}")


if __name__ == "__main__":
    main()
