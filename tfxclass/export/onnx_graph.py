"""What is done to the graph of an ONNX model besides tf2onnx's conversion."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass.export import onnx_search

CLASSES = "classes.bin"
# Class vectors at a time: the temporaries stay small.
_BLOCK = 65_536


def _add(graph, op, *inputs, **attributes):
    """The output of a new node."""
    return graph.make_node(op, list(inputs), attr=attributes).output[0]


def _axis(graph, node, axis):
    name = f"{node.name}_axis_{axis}"
    return graph.make_const(name, np.array([axis])).output[0]


def _replace(graph, node, op, *inputs, **attributes):
    (output,) = node.output
    shape, dtype = graph.get_shape(output), graph.get_dtype(output)
    graph.remove_node(node.name)
    graph.make_node(
        op,
        list(inputs),
        attr=attributes,
        outputs=[output],
        name=node.name,
        shapes=[shape],
        dtypes=[dtype],
    )


def _replace_by_count(graph, node, is_counted, axis):
    """Puts the number of what is true along an axis in a node's place."""
    dtype = graph.get_dtype(node.output[0])
    counted = _add(graph, "Cast", is_counted, to=dtype)
    _replace(graph, node, "ReduceSum", counted, axis, keepdims=0)


def _bucketize(graph, node, name, args):
    """The number of boundaries that a value has reached, as TensorFlow's."""
    import onnx

    boundaries = np.array(node.get_attr("boundaries").floats, "float32")
    boundaries = graph.make_const(f"{name}_boundaries", boundaries).output[0]
    last = _axis(graph, node, -1)
    values = _add(graph, "Cast", node.input[0], to=onnx.TensorProto.FLOAT)
    values = _add(graph, "Unsqueeze", values, last)
    reached = _add(graph, "GreaterOrEqual", values, boundaries)
    _replace_by_count(graph, node, reached, last)


def _erfc(graph, node, name, args):
    """1 - erf, which is what ONNX has; of Keras' `gelu`."""
    import onnx

    dtype = graph.get_dtype(node.output[0])
    one = np.array(1, onnx.helper.tensor_dtype_to_np_dtype(dtype))
    one = graph.make_const(f"{name}_one", one).output[0]
    _replace(graph, node, "Sub", one, _add(graph, "Erf", node.input[0]))


def _bound(graph, node, name, args):
    """How many of a row's sorted values are less, or not greater."""
    middle, last = (_axis(graph, node, axis) for axis in (1, 2))
    values = _add(graph, "Unsqueeze", node.input[0], middle)
    queries = _add(graph, "Unsqueeze", node.input[1], last)
    op = "Less" if node.type == "LowerBound" else "LessOrEqual"
    _replace_by_count(graph, node, _add(graph, op, values, queries), last)


def _renamed(graph, node, name, args):
    """Nothing: an ONNX op of another name is the same."""


#: What `tf2onnx` is given for the ops that it does not know, by their names.
HANDLERS: dict[str, Any] = {
    "Bucketize": (_bucketize, []),
    "Erfc": (_erfc, []),
    "LowerBound": (_bound, []),
    # tf2onnx has no `Where` here, but a product with 0: NaN stays NaN.
    "SelectV2": (_renamed, ["Where"]),
    "UpperBound": (_bound, []),
}


def finish_products(graph: Any) -> None:
    """Multiplies class vectors by a Gemm, and does not copy them.

    tf2onnx transposes them, for which ONNX Runtime would make a copy.
    """
    from onnx import helper

    turned = [
        node
        for node in graph.node
        if node.op_type == "Transpose" and node.input[0] == onnx_search.ROWS
    ]
    for node in graph.node:
        if any(x.output[0] in node.input for x in turned):
            node.op_type, node.input[1] = "Gemm", onnx_search.ROWS
            node.attribute.append(helper.make_attribute("transB", 1))
    for node in turned:
        graph.node.remove(node)


def to_float32(graph: Any) -> None:
    """Makes a GraphProto compute in float32 what it computes in 16 bits.

    ONNX Runtime has few ops in 16 bits on a CPU.
    """
    for part in _graphs(graph):
        # Shapes and types are inferred when the model is loaded.
        del part.value_info[:]
        for value in (*part.input, *part.output):
            kind = value.type.tensor_type
            kind.elem_type = _wide(kind.elem_type)
        for tensor in part.initializer:
            _widen_tensor(tensor)
        for node in part.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    _widen_tensor(attribute.t)
                if attribute.name in ("to", "dtype"):
                    attribute.i = _wide(attribute.i)


def _graphs(graph) -> Iterator[Any]:
    """The graph, and the graphs in its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _wide(kind):
    import onnx

    narrow = onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16
    return onnx.TensorProto.FLOAT if kind in narrow else kind


def _widen_tensor(tensor):
    from onnx import numpy_helper

    if _wide(tensor.data_type) != tensor.data_type:
        values = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def write_tensors(
    graph: Any, folder: str, tensors: dict[str, tf.Tensor]
) -> None:
    """Turns inputs of a GraphProto into float32 tensors in `classes.bin`."""
    import onnx

    inputs = [x for x in graph.input if x.name not in tensors]
    del graph.input[:]
    graph.input.extend(inputs)
    with open(os.path.join(folder, CLASSES), "wb") as f:
        for name, tensor in tensors.items():
            offset = f.tell()
            for start in range(0, tensor.shape[0], _BLOCK):
                tensor[start : start + _BLOCK].numpy().tofile(f)
            proto = onnx.TensorProto(
                name=name,
                dims=tensor.shape.as_list(),
                data_type=onnx.TensorProto.FLOAT,
                data_location=onnx.TensorProto.EXTERNAL,
            )
            length = f.tell() - offset
            where = {"location": CLASSES, "offset": offset, "length": length}
            for key, value in where.items():
                proto.external_data.add(key=key, value=str(value))
            graph.initializer.append(proto)
