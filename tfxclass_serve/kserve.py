"""The REST API of KServe, version 2, which clients of Triton speak.

Tensors come and go as JSON: the extension for binary tensors is not here, so
tritonclient has to be told `binary_data=False`.
"""

import re
import urllib.parse

import numpy as np
import tensorflow as tf

from tfxclass_serve import json_codec
from tfxclass_serve.errors import invalid
from tfxclass_serve.errors import short
from tfxclass_serve.folders import to_version
from tfxclass_serve.json_values import show
from tfxclass_serve.json_values import to_array
from tfxclass_serve.json_values import to_lists

_PATH = re.compile(r"/v2/models/([^/]+)(?:/versions/(\d+))?(?:/(ready|infer))?")
_TYPES = {
    tf.bool: "BOOL",
    tf.string: "BYTES",
    tf.float16: "FP16",
    tf.float32: "FP32",
    tf.float64: "FP64",
}
for _dtype in (tf.int8, tf.int16, tf.int32, tf.int64):
    _TYPES[_dtype] = _dtype.name.upper()
for _dtype in (tf.uint8, tf.uint16, tf.uint32, tf.uint64):
    _TYPES[_dtype] = _dtype.name.upper()
_SERVER = {"name": "tfxclass-serve", "version": "1", "extensions": []}


def is_server_path(method, path):
    """Whether a request is about the server, not about a model."""
    is_health = path in ("/v2/health/live", "/v2/health/ready")
    return method == "GET" and (is_health or path == "/v2")


def about_server():
    """The answer to such a request, a dict."""
    return _SERVER


def parse(method, path):
    """`(name, version, what)` of a path; TensorFlowError for others.

    what is "infer", "ready" or None, for a description of the model.
    """
    found = _PATH.fullmatch(path)
    if not found or (method == "POST") != (found[3] == "infer"):
        raise invalid(f"Malformed request: {method} {short(path)}")
    version = None if found[2] is None else to_version(found[2])
    if found[2] is not None and version is None:
        raise invalid(
            f"Failed to convert version: {short(found[2])} to numeric."
        )
    return urllib.parse.unquote(found[1], errors="replace"), version, found[3]


def describe(servable, name, version):
    """Inputs and outputs of a model's default signature, a dict."""
    signature = servable.signature("")
    return {
        "name": name,
        "versions": [str(version)],
        "platform": "tensorflow_savedmodel",
        "inputs": _tensors(signature.inputs),
        "outputs": _tensors(signature.outputs),
    }


def _tensors(infos):
    return [
        {
            "name": name,
            "datatype": _TYPES.get(tf.as_dtype(info.dtype), "BYTES"),
            "shape": [x.size for x in info.tensor_shape.dim],
        }
        for name, info in sorted(infos.items())
    ]


def infer(servable, name, version, body):
    """The answer to an inference request, a dict; strings as text."""
    document = json_codec.parse_object(body)
    infos = servable.signature("").inputs
    inputs = {}
    for tensor in _objects(document, "inputs"):
        key = tensor["name"]
        if key not in infos:
            raise invalid(
                f"Unknown input: {short(key)}. The model has "
                f"{', '.join(sorted(infos))}"
            )
        inputs[key] = _array(tensor, infos[key])
    wanted = [x["name"] for x in _objects(document, "outputs", [])]
    answers = servable.predict("", inputs, wanted)
    given = {"id": document["id"]} if "id" in document else {}
    return {
        "model_name": name,
        "model_version": str(version),
        **given,
        "outputs": [_output(key, answers[key]) for key in wanted or answers],
    }


def _objects(document, key, default=None):
    """The list of objects with a name that is at `key`."""
    found = document.get(key, default)
    if not isinstance(found, list) or not all(
        isinstance(x, dict) and isinstance(x.get("name"), str) for x in found
    ):
        raise invalid(
            f"'{key}' must be a list of objects with a name. Received: "
            f"{show(found)}"
        )
    return found


def _array(tensor, info):
    if "data" not in tensor:
        raise invalid(
            f"Input {short(tensor['name'])} has no 'data'. Binary tensors are "
            "not supported: with tritonclient, set_data_from_numpy(x, "
            "binary_data=False)"
        )
    array, shape = to_array(tensor["data"], info), tensor.get("shape")
    is_shape = isinstance(shape, list) and all(
        type(x) is int and x >= 0 for x in shape
    )
    if not is_shape or np.prod(shape, dtype=object) != array.size:
        raise invalid(
            f"Input {short(tensor['name'])} has {array.size} numbers. "
            f"Received: shape {show(shape)}"
        )
    # Lists may be flat, whatever the shape.
    return array.reshape(shape)


def _output(name, array):
    dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
    return {
        "name": name,
        "datatype": _TYPES[dtype],
        "shape": list(array.shape),
        "data": to_lists(array.reshape(-1)),
    }
