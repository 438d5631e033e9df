"""The nodes of an ONNX model behind its encoder: the search, and its filters.

The filters are defined in `tfxclass.inference.filters`.
"""

from typing import Any

import numpy as np

from tfxclass.export import onnx_rows
from tfxclass.inference import filters
from tfxclass.layers.head_config import REMOVED_LOGIT
from tfxclass.layers.output_head import OutputHead


def own(name: str) -> str:
    """A name that no tensor of an encoder has."""
    return "tfxclass/" + name


class Nodes:
    """Adds constants and nodes to a GraphProto, and names them."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._count = 0

    def _new(self):
        self._count += 1
        return own(str(self._count))

    def constant(self, value: Any, dtype: str = "int64") -> str:
        """The name of a constant."""
        import onnx

        name = self._new()
        value = onnx.numpy_helper.from_array(np.array(value, dtype), name)
        self._graph.initializer.append(value)
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node; the name of its output."""
        (output,) = self.add_several(1, op, *inputs, **attributes)
        return output

    def add_several(
        self, count: int, op: str, *inputs: str, **attributes: Any
    ) -> list[str]:
        """As `add`, for a node with several outputs."""
        from onnx import helper

        outputs = [self._new() for _ in range(count)]
        node = helper.make_node(op, inputs, outputs, **attributes)
        self._graph.node.append(node)
        return outputs

    def name(self, tensor: str, name: str) -> None:
        """Gives a tensor a unique name."""
        from onnx import helper

        node = helper.make_node("Identity", [tensor], [name])
        self._graph.node.append(node)


def add(
    graph: Any,
    head: OutputHead,
    rows: onnx_rows.FloatRows | onnx_rows.Int8Rows,
    k: int,
    rank: int,
    kind: str | None,
) -> None:
    """Adds the nodes from queries to `ids` and `scores`, and these outputs.

    Args:
        graph: GraphProto whose outputs are the queries, float32 `[rows, dim]`,
            and for features of rank 3 and more the shape of the answers
            without k.
        head: the head.
        rows: the class rows.
        k: int, classes in an answer.
        rank: int, of the features.
        kind: of the filter, which has an input of its own, or None.
    """
    nodes = Nodes(graph)
    queries, *leading = [output.name for output in graph.output]
    if kind is not None:
        _add_ids(graph, filters.INPUTS[kind])
    if kind == filters.ONLY:
        found = _among(nodes, head, queries, rows, k)
    elif kind == filters.EXCLUDE:
        found = _without(nodes, head, queries, rows, k)
    else:
        size = nodes.constant([k])
        found, _, scores = _best(nodes, head, queries, rows, size)
        found = found, scores
    found = _answers(nodes, *found)
    if leading:
        shape = nodes.add("Concat", *leading, nodes.constant([k]), axis=0)
        found = [nodes.add("Reshape", x, shape) for x in found]
    for tensor, name in zip(found, ("ids", "scores"), strict=True):
        nodes.name(tensor, name)
    _set_outputs(graph, k, rank)


def _add_ids(graph, name):
    import onnx

    int64 = onnx.TensorProto.INT64
    info = onnx.helper.make_tensor_value_info(name, int64, ["batch", "p"])
    graph.input.append(info)


def _set_outputs(graph, k, rank):
    import onnx

    del graph.output[:]
    batch = graph.input[0].type.tensor_type.shape.dim[0].dim_param or "batch"
    shape = [batch, *[None] * (rank - 2), k]
    for name, kind in (("ids", "INT64"), ("scores", "FLOAT")):
        kind = getattr(onnx.TensorProto, kind)
        info = onnx.helper.make_tensor_value_info(name, kind, shape)
        graph.output.append(info)


def _best(nodes, head, queries, rows, size):
    """`(ids, logits, scores)` of the `size` best classes."""
    logits = rows.logits(nodes, queries)
    ranks = _nan_last(nodes, logits)
    _, ids = nodes.add_several(2, "TopK", ranks, size, axis=1)
    best = nodes.add("GatherElements", logits, ids, axis=1)
    if head.activation is None:
        return ids, best, best
    if head.activation == "sigmoid":
        return ids, best, nodes.add("Sigmoid", best)
    # The best alone are exponentiated once more: no second pass over all.
    axis = nodes.constant([1])
    total = nodes.add("ReduceLogSumExp", logits, axis, keepdims=1)
    return ids, best, nodes.add("Exp", nodes.add("Sub", best, total))


def _nan_last(nodes, logits):
    """Logits to rank by: TopK has no order for NaN."""
    lowest = nodes.constant(-np.inf, "float32")
    return nodes.add("Where", nodes.add("IsNaN", logits), lowest, logits)


def _answers(nodes, ids, scores):
    """`[ids, scores]` with id -1 and score 0 where a score is NaN."""
    is_nan = nodes.add("IsNaN", scores)
    return [
        nodes.add("Where", is_nan, nodes.constant(-1), ids),
        nodes.add("Where", is_nan, nodes.constant(0, "float32"), scores),
    ]


def _padded(nodes, tensor, count, value, dtype="int64"):
    """`[rows, n]` with `count` more columns of a value."""
    sizes = nodes.constant([0, 0, 0, count])
    return nodes.add("Pad", tensor, sizes, nodes.constant(value, dtype))


def _without(nodes, head, queries, rows, k):
    """`(ids, scores)` of the best that are not excluded."""
    excluded = filters.INPUTS[filters.EXCLUDE]
    size = nodes.add("Shape", excluded, start=1, end=2)
    size = nodes.add("Add", size, nodes.constant([k]))
    size = nodes.add("Min", size, nodes.constant([head.num_answers]))
    ids, logits, scores = _best(nodes, head, queries, rows, size)
    ids = _padded(nodes, ids, k, -1)
    logits, scores = (
        _padded(nodes, x, k, 0, "float32") for x in (logits, scores)
    )
    # A column more: the ids of the padding are out, too.
    excluded = _padded(nodes, excluded, 1, -1)
    same = nodes.add(
        "Equal",
        nodes.add("Unsqueeze", ids, nodes.constant([2])),
        nodes.add("Unsqueeze", excluded, nodes.constant([1])),
    )
    same = nodes.add("Cast", same, to=_type("FLOAT"))
    is_out = nodes.add("ReduceMax", same, nodes.constant([2]), keepdims=0)
    is_out = nodes.add("Cast", is_out, to=_type("BOOL"))
    return _first(nodes, ids, logits, scores, is_out, k)


def _type(name):
    import onnx

    return getattr(onnx.TensorProto, name)


def _first(nodes, ids, logits, scores, is_out, k):
    """The k best by `logits` of those that are not out."""
    lowest = nodes.constant(-np.inf, "float32")
    logits = nodes.add("Where", is_out, lowest, logits)
    ids = nodes.add("Where", is_out, nodes.constant(-1), ids)
    scores = nodes.add("Where", is_out, nodes.constant(0, "float32"), scores)
    size, ranks = nodes.constant([k]), _nan_last(nodes, logits)
    _, columns = nodes.add_several(2, "TopK", ranks, size, axis=1)
    return [
        nodes.add("GatherElements", x, columns, axis=1) for x in (ids, scores)
    ]


def _among(nodes, head, queries, rows, k):
    """`(ids, scores)` of the best of those that are given."""
    only = _padded(nodes, filters.INPUTS[filters.ONLY], k, -1)
    width = nodes.add("Shape", only, start=1, end=2)
    # Repeated ids are neighbours, and equals answer by rising ids.
    ids, _ = nodes.add_several(2, "TopK", only, width, axis=1, largest=0)
    before = nodes.add(
        "Pad", ids, nodes.constant([0, 1, 0, -1]), nodes.constant(-1)
    )
    logits = _logits_of(nodes, head, queries, rows, ids)
    # Removed classes have a bias that says so.
    gone = nodes.constant(head.answer_scale * REMOVED_LOGIT / 2, "float32")
    is_out = nodes.add(
        "Or", nodes.add("Equal", ids, before), nodes.add("Less", logits, gone)
    )
    is_out = nodes.add("Or", is_out, nodes.add("Less", ids, nodes.constant(0)))
    logits = nodes.add(
        "Where", is_out, nodes.constant(REMOVED_LOGIT, "float32"), logits
    )
    scores = logits
    if head.activation == "sigmoid":
        scores = nodes.add("Sigmoid", logits)
    elif head.activation is not None:
        scores = nodes.add("Softmax", logits, axis=1)
    return _first(nodes, ids, logits, scores, is_out, k)


def _logits_of(nodes, head, queries, rows, ids):
    """Logits of classes `[rows, q]`; of class 0 where an id is -1."""
    at = nodes.add("Max", ids, nodes.constant(0))
    # The runtime refuses this row.
    bad = nodes.add("Less", ids, nodes.constant(-1))
    at = nodes.add("Where", bad, nodes.constant(head.num_classes), at)
    last = nodes.constant([2])
    queries = nodes.add("Unsqueeze", queries, last)
    logits = nodes.add("MatMul", rows.take(nodes, at), queries)
    logits = nodes.add("Squeeze", logits, last)
    if not rows.bias:
        return logits
    return nodes.add("Add", logits, nodes.add("Gather", *rows.bias, at, axis=0))
