"""Gradients of some rows of a variable: `tf.IndexedSlices`."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfxclass.ops import row_update
from tfxclass.types import Gradient
from tfxclass.types import Scalar
from tfxclass.types import Variable


class _RowGradient(tf.IndexedSlices):
    """Survives Keras' `gradient / loss_scale_factor`."""

    def __truediv__(self, scale):
        return _RowGradient(self.values / scale, self.indices, self.dense_shape)


class AllRows(tf.IndexedSlices):
    """A dense gradient, as the rows of a variable in their order.

    Args:
        values: the gradient, `[rows, ...]`.
    """

    def __init__(self, values: tf.Tensor) -> None:
        ids = tf.range(tf.shape(values, tf.int64)[0])
        super().__init__(values, ids, tf.shape(values))


def divisible(gradient: Gradient) -> Gradient:
    """A gradient that Keras can divide by a number."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return _RowGradient(gradient.values, gradient.indices, gradient.dense_shape)


def times(gradient: Gradient, number: Scalar) -> Gradient:
    """A gradient times a number, rows or dense."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient * number
    return with_values(gradient, gradient.values * number)


def all_reduce(
    reduce: Callable[[list[Any]], Any],
    pairs: Sequence[tuple[Gradient, Variable]],
) -> list[tuple[Gradient, Variable]]:
    """Reduces pairs of gradient and variable, `AllRows` as dense gradients.

    Replicas would put their rows one below the other.
    """
    is_all = [isinstance(gradient, AllRows) for gradient, _ in pairs]
    given = [
        (gradient.values if every else gradient, variable)
        for every, (gradient, variable) in zip(is_all, pairs)
    ]
    return [
        (AllRows(gradient) if every else gradient, variable)
        for every, (gradient, variable) in zip(is_all, reduce(given))
    ]


def summed_rows(gradient: Gradient) -> Gradient:
    """A gradient where each row is named once."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    values = tf.convert_to_tensor(gradient.values)
    if values.dtype != tf.float64:
        values = tf.cast(values, tf.float32)
    if isinstance(gradient, AllRows):
        return AllRows(values)
    ids, sums = row_update.sum_duplicate_rows(
        tf.cast(gradient.indices, tf.int64), values
    )
    return tf.IndexedSlices(sums, ids, gradient.dense_shape)


def values_of(gradient: Gradient) -> tf.Tensor:
    """The numbers of a gradient, rows or dense."""
    if isinstance(gradient, tf.IndexedSlices):
        return gradient.values
    return gradient


def with_values(gradient: Gradient, values: tf.Tensor) -> Gradient:
    """A gradient of the same rows, or a dense one."""
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    if isinstance(gradient, AllRows):
        return AllRows(values)
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
