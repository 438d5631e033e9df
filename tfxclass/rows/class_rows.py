"""Some rows of a class matrix, on some device."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfxclass.ops import bfloat16_rows
from tfxclass.ops import placement
from tfxclass.ops.stored_rows import StoredRows
from tfxclass.rows import norms
from tfxclass.types import Variable


class ClassRows(NamedTuple):
    """The rows of consecutive classes; logits are `queries . rows + bias`.

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

    def gather(self, ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Some rows; their gradients are row-sparse.

        Args:
            ids: int64 of any shape, rows of `kernel`.

        Returns:
            `(kernel, bias)`: float32 `[..., dim]`, normalized if need be, and
            `[...]` or None.
        """
        kernel = placement.gather(self.kernel, ids)
        if self.normalize:
            kernel = norms.normalize(kernel)
        if self.bias is None:
            return kernel, None
        return kernel, placement.gather(self.bias, ids)

    def whole(self) -> "ClassRows":
        """`ClassRows` of tensors without padding."""
        kernel, bias = self._read(self.kernel), self._read(self.bias)
        return self._replace(kernel=kernel, bias=bias)

    def _read(self, variable):
        if variable is None:
            return None
        if isinstance(variable, StoredRows):
            return variable.read()
        with placement.on(self.device):
            values = tf.convert_to_tensor(variable)
        # The gradient of a slice is a copy.
        if self.size is None or self.size == values.shape[0]:
            return values
        return values[: self.size]

    def products(self, queries: tf.Tensor) -> tf.Tensor:
        """Logits of all classes for queries `[batch, dim]`, in one product."""
        rows = self.whole()
        kernel = bfloat16_rows.floats(rows.kernel)
        logits = tf.matmul(queries, kernel, transpose_b=True)
        if rows.normalize:
            logits *= norms.inverse_norms(kernel)
        return logits if rows.bias is None else logits + rows.bias


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
