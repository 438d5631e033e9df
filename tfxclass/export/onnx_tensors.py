"""Tensors of an ONNX model in a file of their own, of any size."""

import os
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass.ops import bfloat16_rows
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.rows.int8_rows import Int8Rows

CLASSES = "classes.bin"
# Rows at a time: the temporaries stay small.
_BLOCK = 65_536


def tensors_of(rows: ClassRows, scale: float) -> dict[str, Any]:
    """The tensors of served class vectors, by name, in node order.

    Args:
        rows: `ClassRows` of variables, in int8 or not.
        scale: what a bias is multiplied by.
    """
    if isinstance(rows.kernel, Int8Rows):
        found = {"codes": rows.kernel.codes, "scales": rows.kernel.scales}
    else:
        kernel = tf.convert_to_tensor(rows.kernel)
        found = {"rows": bfloat16_rows.widen(kernel)}
    if rows.bias is not None:
        found["bias"] = scale * tf.convert_to_tensor(rows.bias)
    return found


def write(folder: str, tensors: dict[str, Any]) -> list[Any]:
    """Writes variables to `classes.bin`; returns TensorProtos without data.

    Args:
        folder: str.
        tensors: float32 variables or tensors, and int8 ones `[n, dim]`, which
            are transposed, by name.
    """
    protos = []
    with open(os.path.join(folder, CLASSES), "w+b") as f:
        for name, variable in tensors.items():
            tensor, offset = tf.convert_to_tensor(variable), f.tell()
            is_int8 = tensor.dtype == tf.int8
            (_write_transposed if is_int8 else _write)(f, tensor)
            shape = tensor.shape.as_list()
            shape = shape[::-1] if is_int8 else shape
            kind = "INT8" if is_int8 else "FLOAT"
            protos.append(_proto(name, shape, kind, offset, f.tell() - offset))
    return protos


def _write(f, tensor):
    for start in range(0, tensor.shape[0], _BLOCK):
        tensor[start : start + _BLOCK].numpy().tofile(f)
    f.flush()


def _write_transposed(f, tensor):
    begin, (count, dim) = f.tell(), tensor.shape
    end = f.seek(begin + count * dim)
    f.truncate(end)
    columns = np.memmap(f, "int8", "r+", begin, (dim, count))
    for start in range(0, count, _BLOCK):
        part = tensor[start : start + _BLOCK].numpy()
        columns[:, start : start + _BLOCK] = part.T
    columns.flush()


def _proto(name, shape, kind, offset, length):
    import onnx

    proto = onnx.TensorProto(
        name=name,
        dims=shape,
        data_type=getattr(onnx.TensorProto, kind),
        data_location=onnx.TensorProto.EXTERNAL,
    )
    where = {"location": CLASSES, "offset": offset, "length": length}
    for key, value in where.items():
        proto.external_data.add(key=key, value=str(value))
    return proto
