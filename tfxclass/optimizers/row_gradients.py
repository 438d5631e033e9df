"""Gradients of some rows of a variable: `tf.IndexedSlices`."""

import tensorflow as tf

from tfxclass.ops import row_update


class _RowGradient(tf.IndexedSlices):
    """Survives Keras' `gradient / loss_scale_factor`."""

    def __truediv__(self, scale):
        return _RowGradient(self.values / scale, self.indices, self.dense_shape)


def divisible(gradient):
    """A gradient that Keras can divide by a number."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return _RowGradient(gradient.values, gradient.indices, gradient.dense_shape)


def times(gradient, number):
    """A gradient times a number, rows or dense."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient * number
    return with_values(gradient, gradient.values * number)


def summed_rows(gradient):
    """A gradient where each row is named once."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    ids, sums = row_update.sum_duplicate_rows(
        tf.cast(gradient.indices, tf.int64),
        tf.cast(gradient.values, tf.float32),
    )
    return tf.IndexedSlices(sums, ids, gradient.dense_shape)


def values_of(gradient):
    """The numbers of a gradient, rows or dense."""
    if isinstance(gradient, tf.IndexedSlices):
        return gradient.values
    return gradient


def with_values(gradient, values):
    """A gradient of the same rows, or a dense one."""
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
