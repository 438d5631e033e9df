"""Calls of gRPC, most of them wrong, and the codes that may answer them."""

import random

import grpc
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import classification_pb2
from tensorflow_serving.apis import get_model_metadata_pb2
from tensorflow_serving.apis import get_model_status_pb2
from tensorflow_serving.apis import inference_pb2
from tensorflow_serving.apis import model_management_pb2
from tensorflow_serving.apis import model_service_pb2_grpc
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc
from tensorflow_serving.apis import regression_pb2

_TYPES = [*types_pb2.DataType.values(), 99, 1_000, -1]
_MODELS = ["numbers", "words", "pairs"]
_NUMBERS = [0, 1, -1, 3, 255, 256, 2**31 - 1, -(2**31)]
_LARGE = [*_NUMBERS, 2**40, 2**62, 2**63 - 1, -(2**63)]
_FLOATS = [0.0, -1.5, 3.0e38, float("nan"), float("inf")]
# Of TensorProto: the values that each field may have.
_FIELDS = {
    "half_val": [0, 1, 65_535, 2**31 - 1, -1],
    "float_val": _FLOATS,
    "double_val": [*_FLOATS, 1e308],
    "int_val": _NUMBERS,
    "string_val": [b"", b"a tool", b"\xff\x00"],
    "scomplex_val": _FLOATS,
    "int64_val": _LARGE,
    "bool_val": [True, False],
    "dcomplex_val": _FLOATS,
    "uint32_val": [0, 1, 2**32 - 1],
    "uint64_val": [0, 1, 2**64 - 1],
}


def _tensor(rng):
    """A TensorProto of any fields."""
    tensor = tensor_pb2.TensorProto(dtype=rng.choice(_TYPES))
    if rng.random() < 0.5:  # One that numbers may have.
        tensor.dtype = rng.choice([types_pb2.DT_FLOAT, types_pb2.DT_STRING])
    for _ in range(rng.randrange(4)):
        sizes = _LARGE if rng.random() < 0.3 else [0, 1, 2, 3]
        tensor.tensor_shape.dim.add(size=rng.choice(sizes))
    tensor.tensor_shape.unknown_rank = rng.random() < 0.05
    if rng.random() < 0.3:
        tensor.tensor_content = rng.randbytes(rng.choice([0, 1, 4, 12, 24, 36]))
    for _ in range(rng.randrange(3)):
        name = rng.choice(sorted(_FIELDS))
        values = rng.choices(_FIELDS[name], k=rng.choice([1, 2, 3, 6, 7]))
        getattr(tensor, name).extend(values)
    return tensor


def _spec(rng, spec):
    """Fills a ModelSpec; mostly with a model that there is."""
    spec.name = rng.choice([*_MODELS * 4, "", "no", "x" * 9_000, "\u00e9"])
    spec.signature_name = rng.choice(
        ["", "", "", "embed", "classify", "no", "x" * 9_000]
    )
    kind = rng.random()
    if kind < 0.1:
        spec.version.value = rng.choice(_LARGE)
    elif kind < 0.15:
        spec.version_label = rng.choice(["", "stable", "x" * 9_000])


def _valid(rng):
    """A request that must be answered, and the model's inputs."""
    count = rng.randrange(1, 4)
    floats = np.array(rng.choices(_FLOATS[:2], k=3 * count), "float32")
    request = predict_pb2.PredictRequest()
    request.model_spec.name = rng.choice(_MODELS)
    inputs = {
        "numbers": {"x": floats.reshape(count, 3)},
        "words": {"text": np.array([b"a tool"] * count, object)},
        "pairs": {
            "a": floats[: 2 * count].reshape(count, 2),
            "b": np.arange(count),
        },
    }[request.model_spec.name]
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


def _disturbed(rng):
    """A request that was right, with something else in one place."""
    request = _valid(rng)
    kind = rng.randrange(4)
    name = rng.choice(sorted(request.inputs))
    if kind == 0:
        request.inputs[name].CopyFrom(_tensor(rng))
    elif kind == 1:
        for dim in request.inputs[name].tensor_shape.dim:
            dim.size = rng.choice([0, 1, 2, 3, *_LARGE])
    elif kind == 2:
        request.inputs[name].dtype = rng.choice(_TYPES)
    else:
        request.inputs["y" * rng.choice([1, 9_000])].CopyFrom(_tensor(rng))
    return request


def _any_predict(rng):
    request = predict_pb2.PredictRequest()
    _spec(rng, request.model_spec)
    for name in rng.sample(["x", "text", "a", "b", ""], rng.randrange(3)):
        request.inputs[name].CopyFrom(_tensor(rng))
    if rng.random() < 0.2:
        request.output_filter.append(rng.choice(["ids", "no", "x" * 9_000]))
    return request


def _example(rng):
    example = tf.train.Example()
    for name in rng.sample(["x", "text", "y", ""], rng.randrange(3)):
        feature = example.features.feature[name]
        kind = rng.choice(["float_list", "bytes_list", "int64_list", None])
        if kind is not None:
            values = {
                "float_list": _FLOATS,
                "bytes_list": _FIELDS["string_val"],
                "int64_list": _LARGE,
            }[kind]
            getattr(feature, kind).value.extend(
                rng.choices(values, k=rng.choice([0, 1, 2, 3]))
            )
    return example


def _input(rng, proto):
    kind = rng.randrange(3)
    examples = [_example(rng) for _ in range(rng.randrange(4))]
    if kind == 0:
        proto.example_list.examples.extend(examples)
    elif kind == 1:
        proto.example_list_with_context.examples.extend(examples)
        proto.example_list_with_context.context.CopyFrom(_example(rng))


def _classify(rng):
    request = classification_pb2.ClassificationRequest()
    _spec(rng, request.model_spec)
    if rng.random() < 0.7:
        request.model_spec.signature_name = "classify"
    _input(rng, request.input)
    return request


def _regress(rng):
    request = regression_pb2.RegressionRequest()
    _spec(rng, request.model_spec)
    _input(rng, request.input)
    return request


def _several(rng):
    request = inference_pb2.MultiInferenceRequest()
    _spec(rng, request.tasks.add().model_spec)
    return request


def _metadata(rng):
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    _spec(rng, request.model_spec)
    fields = ["signature_def", "no", "x" * 9_000]
    request.metadata_field.extend(rng.sample(fields, rng.randrange(3)))
    return request


def _status(rng):
    request = get_model_status_pb2.GetModelStatusRequest()
    _spec(rng, request.model_spec)
    return request


def _reload(rng):
    """One that is refused: what is served stays."""
    request = model_management_pb2.ReloadConfigRequest()
    if rng.random() < 0.8:
        models = request.config.model_config_list.config
        models.add(name=rng.choice(["", "x" * 9_000]), base_path="")
    return request


_REFUSALS = {"INVALID_ARGUMENT", "NOT_FOUND"}
# Method, what makes its request, the codes that are right, how often.
_KINDS = [
    ("Predict", _valid, {"OK"}, 2),
    ("Predict", _disturbed, {"OK", "INVALID_ARGUMENT"}, 6),
    ("Predict", _any_predict, {"OK", *_REFUSALS}, 4),
    ("Classify", _classify, {"OK", *_REFUSALS}, 4),
    ("Regress", _regress, _REFUSALS, 1),
    ("MultiInference", _several, {"UNIMPLEMENTED", *_REFUSALS}, 1),
    ("GetModelMetadata", _metadata, {"OK", *_REFUSALS}, 1),
    ("GetModelStatus", _status, {"OK", *_REFUSALS}, 1),
    ("HandleReloadConfigRequest", _reload, {"INVALID_ARGUMENT"}, 1),
]


def make(seed, number):
    """`(method, request, codes that are right)` of this number."""
    rng = random.Random(f"{seed} {number}")
    weights = [kind[3] for kind in _KINDS]
    method, maker, codes, _ = rng.choices(_KINDS, weights)[0]
    return method, maker(rng), codes


def run(port, count, seed):
    """Makes `count` calls; `(calls answered wrongly, counts by code)`."""
    wrong, counts = [], {}
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stubs = (
            prediction_service_pb2_grpc.PredictionServiceStub(channel),
            model_service_pb2_grpc.ModelServiceStub(channel),
        )
        for number in range(count):
            method, request, codes = make(seed, number)
            call = getattr(stubs[0], method, None) or getattr(stubs[1], method)
            code, details = "OK", ""
            try:
                call(request, timeout=60)
            except grpc.RpcError as e:
                code, details = e.code().name, e.details()
            counts[code] = counts.get(code, 0) + 1
            if code not in codes or len(details) > 1_100:
                wrong.append((number, method, codes, code, details))
    return wrong, counts
