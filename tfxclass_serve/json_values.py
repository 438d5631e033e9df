"""Values of JSON and arrays, as TensorFlow Serving converts them."""

import base64
import binascii
import json

import numpy as np
import tensorflow as tf

from tfxclass_serve.c_loader import TensorFlowError
from tfxclass_serve.errors import UNIMPLEMENTED
from tfxclass_serve.errors import invalid

_SHOWN = 200
# Inputs of tfxclass' exports whose rows may have any number of ids.
_PADDED = ("exclude_ids", "only_ids", "boost_ids")
# An array of NumPy has at most 64 dimensions, before version 2 only 32.
_MOST_LEVELS = 32


def show(value):
    """A value of JSON as text for a message, cut where it is long."""
    try:
        text = json.dumps(value)
    except RecursionError:
        return "(deeply nested)"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + " ..."


def is_base64(value):
    """Whether a value is bytes: an object with the key "b64" alone."""
    return (
        isinstance(value, dict)
        and list(value) == ["b64"]
        and isinstance(value["b64"], str)
    )


def to_array(value, info, name=""):
    """The array of nested lists; strings as bytes objects.

    Args:
        value: of JSON.
        info: what has its `dtype`.
        name: str, of the input; rows of ids that are filters are padded.
    """
    dtype = tf.as_dtype(info.dtype)
    shape, level = [], value
    while isinstance(level, list):
        shape.append(len(level))
        if not level:
            break
        level = level[0]
    if len(shape) > _MOST_LEVELS:
        raise invalid(
            f"Lists may be nested {_MOST_LEVELS} levels deep. Received: "
            f"{len(shape)} levels."
        )
    leaves = []
    hint = f". Pad the rows of {name} with -1" if name in _PADDED else ""
    _flatten(value, shape, 0, leaves, hint)
    convert = _CONVERTERS.get(dtype)
    if convert is None:
        raise TensorFlowError(
            UNIMPLEMENTED,
            f"Conversion of JSON Value: {show(value)} to type: {dtype.name}",
        )
    kind = object if dtype == tf.string else dtype.as_numpy_dtype
    array = np.empty(len(leaves), kind)
    for place, leaf in enumerate(leaves):
        array[place] = convert(leaf, dtype)
    return array.reshape(shape)


def _flatten(value, shape, level, leaves, hint):
    if not isinstance(value, list):
        if level != len(shape):
            raise invalid(
                f"JSON Value: {show(value)} found at incorrect level: "
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
            f"{level} expected size: {shape[level]}{hint}"
        )
    for part in value:
        _flatten(part, shape, level + 1, leaves, hint)


def _refuse(value, dtype):
    raise invalid(
        f"JSON Value: {show(value)} is not of expected type: {dtype.name}"
    )


def to_float(value, dtype):
    """`value` if it is a number that `dtype` has."""
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
            f"Cannot convert JSON value: {show(value)} to {dtype.name} "
            "without loss of precision."
        )
    return value


def to_integer(value, dtype):
    """`value` if it is an integer in the range of `dtype`."""
    if isinstance(value, bool) or not isinstance(value, int):
        _refuse(value, dtype)
    if not dtype.min <= value <= dtype.max:
        _refuse(value, dtype)
    return value


def _bool(value, dtype):
    return value if isinstance(value, bool) else _refuse(value, dtype)


def _string(value, dtype):
    if is_base64(value):
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
    tf.float32: to_float,
    tf.float64: to_float,
    tf.string: _string,
    tf.bool: _bool,
}

for _dtype in (tf.int8, tf.int16, tf.int32, tf.int64):
    _CONVERTERS[_dtype] = to_integer

for _dtype in (tf.uint8, tf.uint16, tf.uint32, tf.uint64):
    _CONVERTERS[_dtype] = to_integer


def to_lists(array, is_bytes=False):
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
