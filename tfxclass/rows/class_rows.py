"""Some rows of a class matrix, on some device."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfxclass.types import Variable


class ClassRows(NamedTuple):
    """The rows of consecutive classes; logits are `queries . rows + bias`.

    `tfxclass.rows.read` is the way to their numbers.

    Attributes:
        kernel: variable or float32 tensor `[capacity, dim]`; rows from `size`
            on are padding.
        bias: variable or tensor `[capacity]`, or None.
        normalize: bool, whether rows are divided by their norms (cosine).
        first: int, the first class.
        size: int, number of classes; None for all rows of `kernel`.
        device: str, where all rows are computed with, if not where the step
            is: on the host or the server that holds them.
        log_counts: float32 `[capacity]` of rows that are a sample, log of the
            expected count of each; infinite for a row that is none. None
            where they are all rows.
        bfloat16_products: bool, whether products of the exact softmax may be
            of numbers rounded to bfloat16.
        is_stock: bool, whether only TensorFlow's own ops may read them, as in
            an export.
    """

    kernel: Any
    bias: Any = None
    normalize: bool = False
    first: int = 0
    size: int | None = None
    device: str | None = None
    log_counts: Any = None
    bfloat16_products: bool = False
    is_stock: bool = False

    @property
    def capacity(self) -> int:
        """Rows of `kernel`, int."""
        return self.kernel.shape[0]

    @property
    def num_classes(self) -> int:
        """int."""
        return self.capacity if self.size is None else self.size

    def local_ids(self, ids: tf.Tensor) -> tf.Tensor:
        """Rows of classes `ids`, int64; -1 for padding and other classes."""
        if not self.first and self.size is None:
            return ids
        local = ids - self.first
        is_here = (ids >= 0) & (local >= 0) & (local < self.num_classes)
        return tf.where(is_here, local, -1)


def in_blocks(
    kernels: Sequence[tf.Tensor | Variable],
    biases: Sequence[tf.Tensor | Variable | None] | None = None,
    bfloat16_products: bool = False,
) -> list[ClassRows]:
    """`ClassRows` of matrices whose classes are numbered through.

    Args:
        kernels, biases: as of `ClassRows`; no biases by default.
        bfloat16_products: of `ClassRows`.
    """
    found, first = [], 0
    biases = [None] * len(kernels) if biases is None else biases
    for kernel, bias in zip(kernels, biases, strict=True):
        size = kernel.shape[0]
        rows = ClassRows(kernel, bias, first=first, size=size)
        found.append(rows._replace(bfloat16_products=bfloat16_products))
        first += size
    return found
