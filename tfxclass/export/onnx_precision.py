"""An ONNX model in float32 of one that computes in 16 bits.

ONNX Runtime has few ops in bfloat16 on a CPU, and most of those in float16 are
float32 ones between casts.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np


def to_float32(graph: Any) -> None:
    """Makes a GraphProto compute in float32 what it computes in 16 bits."""
    for tensor in _tensors(graph):
        _widen_tensor(tensor)
    for attribute in _type_attributes(graph):
        attribute.i = _wide(attribute.i)
    for part in _graphs(graph):
        # Shapes and types are inferred when the model is loaded.
        del part.value_info[:]
        for value in (*part.input, *part.output):
            kind = value.type.tensor_type
            kind.elem_type = _wide(kind.elem_type)


def _wide(kind):
    import onnx

    narrow = onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16
    return onnx.TensorProto.FLOAT if kind in narrow else kind


def _widen_tensor(tensor):
    from onnx import numpy_helper

    if _wide(tensor.data_type) == tensor.data_type:
        return
    values = numpy_helper.to_array(tensor).astype(np.float32)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _graphs(graph) -> Iterator[Any]:
    """The graph, and the graphs in its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _attributes(graph):
    for part in _graphs(graph):
        for node in part.node:
            yield from node.attribute


def _tensors(graph):
    """Initializers, and the tensors of attributes."""
    for part in _graphs(graph):
        yield from part.initializer
    for attribute in _attributes(graph):
        if attribute.HasField("t"):
            yield attribute.t


def _type_attributes(graph):
    """The attributes that are the type of a node's output."""
    return [x for x in _attributes(graph) if x.name in ("to", "dtype")]
