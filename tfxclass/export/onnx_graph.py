"""The graph of an ONNX model: its search, and what tf2onnx leaves to do."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass.core.forward import flatten
from tfxclass.core.forward import unflatten
from tfxclass.export.signatures import Signature
from tfxclass.inference import filters
from tfxclass.layers.head_config import live_ids
from tfxclass.layers.output_head import OutputHead
from tfxclass.ops import bfloat16_rows
from tfxclass.rows.best import Best
from tfxclass.rows.best import mask_missing
from tfxclass.rows.best import nan_last
from tfxclass.rows.class_matrix import ClassRows

# Inputs, since a graph may have 2 GB at most. They are written to `CLASSES`.
ROWS, BIAS = "tfxclass/rows", "tfxclass/bias"
CLASSES = "classes.bin"


def tensors_of(rows: ClassRows) -> dict[str, tf.Tensor]:
    """The tensors of served class vectors by name, float32."""
    found = {ROWS: bfloat16_rows.widen(tf.convert_to_tensor(rows.kernel))}
    if rows.bias is not None:
        found[BIAS] = tf.convert_to_tensor(rows.bias)
    return found


class OnnxSearch:
    """The best classes of features, given what `tensors_of` returns."""

    def __init__(
        self, head: OutputHead, kernel: tf.Tensor, bias: tf.Tensor | None = None
    ) -> None:
        self._head, self._kernel, self._bias = head, kernel, bias

    def answer(
        self, signature: Signature, features: tf.Tensor, *ids: tf.Tensor
    ) -> list[tf.Tensor]:
        """`[ids, scores]` of a `Signature` with a filter's ids, or without."""
        head, k, rows = self._head, signature.k, flatten(features)
        if signature.filter is None:
            return [unflatten(x, features) for x in self._best(rows, k)]
        # Features are `[batch, dim]`. ONNX does not reshape ids of no columns.
        named = tf.pad(ids[0], [[0, 0], [0, 1]], constant_values=-1)
        if signature.filter.kind == filters.ONLY:
            named = filters.distinct(live_ids(named, head.removed))
            logits = self._logits_of(rows, named)
            return list(filters.among(head, logits, named, k))
        size = tf.minimum(k + tf.shape(named)[1], head.num_answers)
        best, scores = self._best(rows, size)
        return list(filters.without(best, scores, named, k))

    def _best(self, features, k):
        logits, head = self._logits(features), self._head
        _, ids = tf.math.top_k(nan_last(logits), k)
        best = tf.gather(logits, ids, axis=1, batch_dims=1)
        total = None
        if head.needs_logsumexp:
            total = tf.reduce_logsumexp(logits, axis=1, keepdims=True)
        found = Best(tf.cast(ids, tf.int64), best, total)
        return mask_missing(*head.as_answers([found], k))

    def _logits(self, features):
        """Logits of all classes, times the head's `answer_scale`."""
        scale = self._head.answer_scale
        queries = scale * self._head.queries(features)
        logits = tf.matmul(queries, self._kernel, transpose_b=True)
        return logits if self._bias is None else logits + scale * self._bias

    def _logits_of(self, features, ids):
        """Logits of classes `[rows, q]`, of class 0 for padding."""
        # ONNX Runtime refuses a class past the last one.
        past = tf.constant(self._head.num_classes, tf.int64)
        at = tf.where(ids < -1, past, tf.maximum(ids, 0))
        queries = self._head.queries(features)
        rows = tf.gather(self._kernel, at)
        logits = tf.squeeze(tf.matmul(rows, queries[..., tf.newaxis]), 2)
        if self._bias is not None:
            logits += tf.gather(self._bias, at)
        return logits


def _add(graph, op, *inputs, **attributes):
    """The output of a new node."""
    return graph.make_node(op, list(inputs), attr=attributes).output[0]


def _const(graph, value, dtype=np.int64):
    """The output of a new constant."""
    from tf2onnx import utils

    name = utils.make_name("tfxclass")
    return graph.make_const(name, np.array(value, dtype)).output[0]


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

    boundaries = node.get_attr("boundaries").floats
    boundaries = _const(graph, boundaries, np.float32)
    last = _const(graph, [-1])
    values = _add(graph, "Cast", node.input[0], to=onnx.TensorProto.FLOAT)
    values = _add(graph, "Unsqueeze", values, last)
    reached = _add(graph, "GreaterOrEqual", values, boundaries)
    _replace_by_count(graph, node, reached, last)


def _erfc(graph, node, name, args):
    """1 - erf, which is what ONNX has; of Keras' `gelu`."""
    import onnx

    dtype = graph.get_dtype(node.output[0])
    one = _const(graph, 1, onnx.helper.tensor_dtype_to_np_dtype(dtype))
    _replace(graph, node, "Sub", one, _add(graph, "Erf", node.input[0]))


def _bound(graph, node, name, args):
    """How many of a row's sorted values are less, or not greater."""
    middle, last = _const(graph, [1]), _const(graph, [2])
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
    """Multiplies class vectors by a Gemm, where tf2onnx would copy them."""
    from onnx import helper

    turned = [
        node
        for node in graph.node
        if node.op_type == "Transpose" and node.input[0] == ROWS
    ]
    for node in graph.node:
        if any(x.output[0] in node.input for x in turned):
            node.op_type, node.input[1] = "Gemm", ROWS
            node.attribute.append(helper.make_attribute("transB", 1))
    for node in turned:
        graph.node.remove(node)


def to_float32(graph: Any) -> None:
    """Makes a GraphProto compute in float32 what it computes in 16 bits."""
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
            # Without a copy, which `numpy()` would be.
            np.asarray(tensor).tofile(f)
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
