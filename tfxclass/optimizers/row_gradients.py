"""Gradients of some rows of a variable: `tf.IndexedSlices`."""

from collections.abc import Sequence

import tensorflow as tf

from tfxclass.ops import placement
from tfxclass.ops import row_update
from tfxclass.types import Gradient
from tfxclass.types import Variable


class _RowGradient(tf.IndexedSlices):
    """Survives Keras' `gradient / loss_scale_factor`."""

    def __truediv__(self, scale):
        return _RowGradient(self.values / scale, self.indices, self.dense_shape)


def divisible(gradient: Gradient) -> Gradient:
    """A gradient that Keras can divide by a number."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return _RowGradient(gradient.values, gradient.indices, gradient.dense_shape)


def summed_rows(gradient: Gradient) -> Gradient:
    """A gradient where each row is named once."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    values = tf.convert_to_tensor(gradient.values)
    if values.dtype != tf.float64:
        values = tf.cast(values, tf.float32)
    ids = tf.cast(gradient.indices, tf.int64)
    ids, sums = row_update.sum_duplicate_rows(ids, values)
    return tf.IndexedSlices(sums, ids, gradient.dense_shape)


def with_l2(gradient: Gradient, variable: Variable, l2: float) -> Gradient:
    """`gradient + l2 * variable`, each touched row once."""
    if not isinstance(gradient, tf.IndexedSlices):
        here = tf.cast(tf.convert_to_tensor(variable), gradient.dtype)
        return gradient + l2 * here
    gradient = summed_rows(gradient)
    rows = placement.gather(variable, gradient.indices)
    rows = tf.cast(rows, gradient.values.dtype)
    return with_values(gradient, gradient.values + l2 * rows)


def values_of(gradient: Gradient) -> tf.Tensor:
    """The numbers of a gradient, rows or dense."""
    is_rows = isinstance(gradient, tf.IndexedSlices)
    return gradient.values if is_rows else gradient


def with_values(gradient: Gradient, values: tf.Tensor) -> Gradient:
    """A gradient of the same rows, or a dense one."""
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


def add(totals: Sequence[tf.Variable], grads: Sequence[Gradient]) -> None:
    """Adds gradients to accumulators, which are as large as variables."""
    for total, gradient in zip(totals, grads):
        values = tf.cast(values_of(gradient), total.dtype)
        if isinstance(gradient, tf.IndexedSlices):
            ids = tf.cast(gradient.indices, tf.int64)
            row_update.add_rows(total.handle, ids, values)
        else:
            total.assign_add(values)


def mean(total: tf.Variable, is_by_rows: bool, steps: int) -> Gradient:
    """An accumulator over `steps`: dense, or the rows whose sum is not 0."""
    total = tf.convert_to_tensor(total)
    if not is_by_rows:
        return total / steps
    is_moved = tf.reduce_any(total != 0, tf.range(1, tf.rank(total)))
    ids = tf.where(is_moved)[:, 0]
    return tf.IndexedSlices(tf.gather(total, ids) / steps, ids, tf.shape(total))
