"""ONNX ops in place of TensorFlow ops that tf2onnx does not know."""

from typing import Any

import numpy as np


def _bucketize(graph, node, name, args):
    """The number of boundaries that a value has reached, as TensorFlow's."""
    import onnx

    (output,) = node.output
    shape, dtype = graph.get_shape(output), graph.get_dtype(output)
    boundaries = np.array(node.get_attr("boundaries").floats, "float32")
    boundaries = graph.make_const(f"{name}_boundaries", boundaries).output[0]
    last = graph.make_const(f"{name}_last", np.array([-1])).output[0]
    (values,) = node.input
    graph.remove_node(node.name)

    def add(op, *inputs, **attributes):
        return graph.make_node(op, list(inputs), attr=attributes).output[0]

    values = add("Cast", values, to=onnx.TensorProto.FLOAT)
    values = add("Unsqueeze", values, last)
    reached = add("GreaterOrEqual", values, boundaries)
    reached = add("Cast", reached, to=dtype)
    graph.make_node(
        "ReduceSum",
        [reached, last],
        attr={"keepdims": 0},
        outputs=[output],
        name=name,
        shapes=[shape],
        dtypes=[dtype],
    )


def _erfc(graph, node, name, args):
    """1 - erf, which is what ONNX has; of Keras' `gelu`."""
    import onnx

    (output,), (values,) = node.output, node.input
    shape, dtype = graph.get_shape(output), graph.get_dtype(output)
    graph.remove_node(node.name)
    one = np.array(1, onnx.helper.tensor_dtype_to_np_dtype(dtype))
    one = graph.make_const(f"{name}_one", one).output[0]
    erf = graph.make_node("Erf", [values]).output[0]
    graph.make_node(
        "Sub",
        [one, erf],
        outputs=[output],
        name=name,
        shapes=[shape],
        dtypes=[dtype],
    )


#: What `tf2onnx` is given, by the name of the op.
HANDLERS: dict[str, Any] = {"Bucketize": (_bucketize, []), "Erfc": (_erfc, [])}
