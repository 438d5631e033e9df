"""Base of class vectors that an export stores in another form."""

import abc
from collections.abc import Sequence

import tensorflow as tf

from tfxclass.types import Scalar


def zeros_variable(
    shape: Sequence[int], dtype: tf.DType, name: str | None = None
) -> tf.Variable:
    """A variable of zeros, whose memory is its own.

    If a tensor is held elsewhere, too, the first write makes a copy of it.
    """
    return tf.Variable(
        lambda: tf.zeros(shape, dtype), trainable=False, name=name
    )


class StoredRows(tf.Module, abc.ABC):
    """Rows of a `ClassRows` in another form, read with stock ops."""

    @property
    @abc.abstractmethod
    def shape(self) -> tf.TensorShape:
        """`[n, dim]`."""

    @property
    @abc.abstractmethod
    def block(self) -> int:
        """Classes that `products` is best called for, int."""

    @abc.abstractmethod
    def read(self) -> "StoredRows":
        """A copy with tensors in place of variables."""

    @abc.abstractmethod
    def floats(self, ids: tf.Tensor) -> tf.Tensor:
        """Rows `ids`, int64 `[...]`: float32 `[..., dim]`."""

    @abc.abstractmethod
    def products(
        self, queries: tf.Tensor, start: Scalar, size: int
    ) -> tf.Tensor:
        """Products with `size` rows from `start` on, or as many as there are.

        Both are multiples of `block`, or `size` is all rows; `start` may be a
        tensor. The queries are float32 `[batch, dim]`.
        """
