"""Class rows in an ONNX model: their products with queries, and some of them.

`nodes` are `tfxclass.export.onnx_classifier.Nodes`.
"""

from collections.abc import Sequence
from typing import Any

# Queries are two digits of so many steps either way. Shifted by _ZERO they are
# 1..127, and the sum of two products with an int8 is less than 2**15:
# processors without VNNI add two at a time in 16 bits.
_STEPS, _ZERO = 63, 64


class FloatRows:
    """Rows in float32.

    Args:
        names: of the tensors: the rows `[n, dim]`, and the bias if there is
            one.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.kernel, *self.bias = names

    def logits(self, nodes: Any, queries: str) -> str:
        """Logits of all classes, `[batch, n]`."""
        return nodes.add("Gemm", queries, self.kernel, *self.bias, transB=1)

    def take(self, nodes: Any, at: str) -> str:
        """Rows `at` `[batch, q]`, float32 `[batch, q, dim]`."""
        return nodes.add("Gather", self.kernel, at, axis=0)


class Int8Rows:
    """Rows in int8 with a scale each, and products in int8.

    A query is made two digits of 7 bits, which are rows of one product: the
    class rows are read once, and what is rounded is 1/15,876 of the query's
    greatest number.

    Args:
        names: of the tensors: the codes, transposed, int8 `[dim, n]`; the
            scales `[n]`; and the bias if there is one.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.codes, self.scales, *self.bias = names

    def logits(self, nodes: Any, queries: str) -> str:
        """Logits of all classes, `[batch, n]`."""
        digits, unit = _digits(nodes, queries)
        zero = nodes.constant(_ZERO, "uint8")
        sums = nodes.add("MatMulInteger", digits, self.codes, zero)
        sums = nodes.add("Cast", sums, to=_type("FLOAT"))
        high, low = nodes.add_several(2, "Split", sums, axis=0, num_outputs=2)
        least = nodes.constant(1 / (2 * _STEPS), "float32")
        logits = nodes.add("Add", high, nodes.add("Mul", low, least))
        logits = nodes.add("Mul", logits, unit)
        logits = nodes.add("Mul", logits, self.scales)
        # A NaN has no digits.
        nothing = nodes.add("Mul", queries, nodes.constant(0, "float32"))
        nothing = nodes.add(
            "ReduceSum", nothing, nodes.constant([1]), keepdims=1
        )
        logits = nodes.add("Add", logits, nothing)
        return nodes.add("Add", logits, *self.bias) if self.bias else logits

    def take(self, nodes: Any, at: str) -> str:
        """Rows `at` `[batch, q]`, float32 `[batch, q, dim]`."""
        codes = nodes.add("Gather", self.codes, at, axis=1)
        codes = nodes.add("Cast", codes, to=_type("FLOAT"))
        codes = nodes.add("Transpose", codes, perm=[1, 2, 0])
        scales = nodes.add("Gather", self.scales, at, axis=0)
        scales = nodes.add("Unsqueeze", scales, nodes.constant([2]))
        return nodes.add("Mul", codes, scales)


def query_error(most: float, norm: float) -> float:
    """The greatest error of a logit by the rounding of its query.

    Args:
        most: greatest absolute number of a query.
        norm: greatest sum of absolute numbers of a class row.
    """
    return most * norm / (4 * _STEPS * _STEPS)


def _digits(nodes, queries):
    """`(digits, unit)`: uint8 `[2 batch, dim]`, and float32 `[batch, 1]`."""
    last = nodes.constant([1])
    most = nodes.add("ReduceMax", nodes.add("Abs", queries), last, keepdims=1)
    # A query of zeros may have any scale.
    most = nodes.add("Max", most, nodes.constant(1e-30, "float32"))
    unit = nodes.add("Div", most, nodes.constant(_STEPS, "float32"))
    steps = nodes.add("Div", queries, unit)
    high = nodes.add("Round", steps)
    low = nodes.add("Sub", steps, high)
    low = nodes.add("Mul", low, nodes.constant(2 * _STEPS, "float32"))
    digits = nodes.add("Concat", high, nodes.add("Round", low), axis=0)
    digits = nodes.add("Add", digits, nodes.constant(_ZERO, "float32"))
    return nodes.add("Cast", digits, to=_type("UINT8")), unit


def _type(name):
    import onnx

    return getattr(onnx.TensorProto, name)
