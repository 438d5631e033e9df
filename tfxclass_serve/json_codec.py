"""Requests and answers as the JSON of TensorFlow Serving's REST API."""

import base64
import binascii
import json

import numpy as np
import tensorflow as tf

from tfxclass_serve.c_loader import TensorFlowError
from tfxclass_serve.errors import UNIMPLEMENTED
from tfxclass_serve.errors import invalid

_SHOWN = 200


def parse_object(body):
    """The object that is in the bytes `body`; NaN and Infinity are allowed."""
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        document = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as e:
        raise invalid(f"JSON Parse error: {e}") from e
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {_show(document)} Is not object")
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {_show(document)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return document


def _show(value):
    try:
        text = json.dumps(value)
    except RecursionError:
        return "(deeply nested)"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + " ..."


def predict_inputs(document, infos):
    """`(inputs, is_rows)` of a predict request.

    Args:
        document: dict, the request.
        infos: dict of TensorInfo by input name.

    Returns:
        Dict of arrays, and whether the format is that of `instances`.
    """
    if "instances" in document and "inputs" in document:
        raise invalid(
            f"JSON Value: {_show(document)} Not formatted correctly expecting "
            "only one of 'inputs' or 'instances' keys to exist"
        )
    if "instances" in document:
        return _rows(document["instances"], infos), True
    if "inputs" in document:
        return _columns(document["inputs"], infos), False
    raise invalid("Missing 'inputs' or 'instances' key")


def _is_named(value):
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value):
    return (
        isinstance(value, dict)
        and list(value) == ["b64"]
        and isinstance(value["b64"], str)
    )


def _rows(instances, infos):
    if not isinstance(instances, list):
        raise invalid(
            f"JSON Value: {_show(instances)} Excepting 'instances' to be an "
            "list/array"
        )
    if not instances:
        raise invalid("JSON Value: [] No values in 'instances' array")
    if not _is_named(instances[0]):
        (name,) = _only_name(infos, "instances is a plain list")
        for number, row in enumerate(instances):
            if _is_named(row):
                raise invalid(
                    "Expecting value/list but got object at item "
                    f"{number} of input list"
                )
        return {name: _tensor(instances, infos[name])}
    for number, row in enumerate(instances):
        if not _is_named(row):
            raise invalid(
                f"Expecting object but got list at item {number} of input list"
            )
        if set(row) != set(infos):
            raise invalid(
                f"Failed to process element: {number} of 'instances' list. "
                f"JSON object: {_show(row)} keys must be equal to: "
                f"{','.join(sorted(infos))}"
            )
    return {
        name: _tensor([row[name] for row in instances], info)
        for name, info in infos.items()
    }


def _columns(inputs, infos):
    if not _is_named(inputs):
        (name,) = _only_name(infos, "inputs is a plain value/list")
        return {name: _tensor(inputs, infos[name])}
    for name in infos:
        if name not in inputs:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {name: _tensor(inputs[name], info) for name, info in infos.items()}


def _only_name(infos, what):
    if len(infos) != 1:
        raise invalid(
            f"{what}, but expecting an object as multiple input tensors "
            "required as per tensorinfo_map"
        )
    return list(infos)


def _tensor(value, info):
    """The array of nested lists; strings as bytes objects."""
    dtype = tf.as_dtype(info.dtype)
    shape, level = [], value
    while isinstance(level, list):
        shape.append(len(level))
        if not level:
            break
        level = level[0]
    if len(shape) > 254:
        raise invalid("A tensor has at most 254 dimensions.")
    leaves = []
    _flatten(value, shape, 0, leaves)
    convert = _CONVERTERS.get(dtype)
    if convert is None:
        raise TensorFlowError(
            UNIMPLEMENTED,
            f"Conversion of JSON Value: {_show(value)} to type: {dtype.name}",
        )
    kind = object if dtype == tf.string else dtype.as_numpy_dtype
    array = np.empty(len(leaves), kind)
    for place, leaf in enumerate(leaves):
        array[place] = convert(leaf, dtype)
    return array.reshape(shape)


def _flatten(value, shape, level, leaves):
    if not isinstance(value, list):
        if level != len(shape):
            raise invalid(
                f"JSON Value: {_show(value)} found at incorrect level: "
                f"{level + 1} in the JSON DOM. Expected at level: {len(shape)}"
            )
        leaves.append(value)
        return
    if level >= len(shape):
        raise invalid(
            f"Encountered list at unexpected level: {level} expected < "
            f"{len(shape)}"
        )
    if len(value) != shape[level]:
        raise invalid(
            f"Encountered list at unexpected size: {len(value)} at level: "
            f"{level} expected size: {shape[level]}"
        )
    for part in value:
        _flatten(part, shape, level + 1, leaves)


def _refuse(value, dtype):
    raise invalid(
        f"JSON Value: {_show(value)} is not of expected type: {dtype.name}"
    )


def _float(value, dtype):
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        _refuse(value, dtype)
    limits = np.finfo(dtype.as_numpy_dtype)
    is_lossy = (
        abs(value) >= 2 ** (limits.nmant + 1)
        if isinstance(value, int)
        else np.isfinite(value) and abs(value) > float(limits.max)
    )
    if is_lossy:
        raise invalid(
            f"Cannot convert JSON value: {_show(value)} to {dtype.name} "
            "without loss of precision."
        )
    return value


def _integer(value, dtype):
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(value, dtype)
    if not dtype.min <= value <= dtype.max:
        _refuse(value, dtype)
    return value


def _bool(value, dtype):
    return value if isinstance(value, bool) else _refuse(value, dtype)


def _string(value, dtype):
    if _is_base64(value):
        return decode_base64(value["b64"])
    if not isinstance(value, str):
        _refuse(value, dtype)
    return encode(value)


def encode(text):
    """UTF-8 bytes of a string of JSON."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as e:
        raise invalid(f"JSON Parse error: {e.reason}") from e


def decode_base64(text):
    """Bytes of a base64 text."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise invalid("Unable to base64 decode") from e


_CONVERTERS = {
    tf.float32: _float,
    tf.float64: _float,
    tf.string: _string,
    tf.bool: _bool,
}
for _dtype in (tf.int8, tf.int16, tf.int32, tf.int64):
    _CONVERTERS[_dtype] = _integer
for _dtype in (tf.uint8, tf.uint16, tf.uint32, tf.uint64):
    _CONVERTERS[_dtype] = _integer


def predict_answer(answers, is_rows):
    """The response of a predict request, a dict."""
    values = {k: _plain(x, k.endswith("_bytes")) for k, x in answers.items()}
    if not is_rows:
        only = next(iter(values.values()))
        return {"outputs": only if len(values) == 1 else values}
    sizes = {len(x) if x.ndim else None for x in answers.values()}
    if len(sizes) != 1 or None in sizes:
        raise invalid(
            "Outputs have no batch dimension, or ones of different sizes: ask "
            "with 'inputs' instead of 'instances'."
        )
    if len(values) == 1:
        return {"predictions": next(iter(values.values()))}
    rows = [dict(zip(values, row)) for row in zip(*values.values())]
    return {"predictions": rows}


def _plain(array, is_bytes=False):
    """Nested lists of an array."""
    if array.dtype == object:
        text = encode_base64 if is_bytes else decode
        flat = np.array([text(x) for x in array.flat] + [None], object)[:-1]
        return flat.reshape(array.shape).tolist()
    if array.dtype in (np.float16, np.float32):
        # The shortest digits that give the number: 0.2 is not 0.200000003.
        array = array.astype(str).astype(np.float64)
    return array.tolist()


def decode(data):
    """Text of bytes that need not be UTF-8."""
    return data.decode("utf-8", errors="replace")


def encode_base64(data):
    """Bytes as an object of JSON."""
    return {"b64": base64.b64encode(data).decode("ascii")}


def classify_examples(document):
    """Serialised tf.Examples of a classify request, a list of bytes."""
    context = _example(document.get("context", {}))
    if "examples" not in document:
        raise invalid(
            f"JSON Value: {_show(document)} When method is classify, key "
            "'examples' is expected and was not found"
        )
    examples = document["examples"]
    if not isinstance(examples, list):
        raise invalid(
            f"JSON Value: {_show(document)} Expecting 'examples' value to be "
            "an list/array"
        )
    if not examples:
        raise invalid(
            f"JSON Value: {_show(document)} 'examples' value is an empty array"
        )
    found = []
    for value in examples:
        example = tf.train.Example()
        example.CopyFrom(context)
        example.MergeFrom(_example(value))
        found.append(example.SerializeToString())
    return found


def _example(value):
    if not isinstance(value, dict):
        raise invalid(
            f"Example must be JSON object but got JSON {type(value).__name__}"
        )
    example = tf.train.Example()
    for name, content in value.items():
        encode(name)
        feature = example.features.feature[name]
        for item in content if isinstance(content, list) else [content]:
            _add(item, name, feature)
    return example


def _add(value, name, feature):
    if _is_base64(value):
        kind, value = "bytes_list", decode_base64(value["b64"])
    elif isinstance(value, str):
        kind, value = "bytes_list", encode(value)
    elif isinstance(value, (bool, int)):
        kind, value = "int64_list", _integer(int(value), tf.int64)
    elif isinstance(value, float):
        kind, value = "float_list", _float(value, tf.float32)
    else:
        raise invalid(
            f"Feature: {name} has element with unexpected JSON type: "
            f"{_show(value)}"
        )
    if feature.WhichOneof("kind") not in (None, kind):
        raise invalid(f"Unexpected element type in feature: {name}")
    getattr(feature, kind).value.append(value)


def classify_answer(classes, scores):
    """The response of a classify request, a dict."""
    size = len(classes if classes is not None else scores)
    results = []
    for row in range(size):
        names = [] if classes is None else _plain(classes[row])
        values = [] if scores is None else _plain(scores[row])
        names = names or [""] * len(values)
        values = values or [0.0] * len(names)
        results.append([list(pair) for pair in zip(names, values)])
    return {"results": results}
