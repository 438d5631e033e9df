"""Class rows in bfloat16, read as float32, with float32 gradients.

An optimizer of `tfxclass.optimizers` rounds a new row up or down by chance, to
itself on average (Gupta et al., Deep Learning with Limited Numerical Precision,
2015). The chance is Philox's, from the head's seed, the step and the row.
"""

from typing import Any

import tensorflow as tf

from tfxclass.keras_internals import custom_gradient
from tfxclass.ops.stored_rows import StoredRows


def is_half(values: Any) -> bool:
    """Whether a tensor or variable is bfloat16."""
    return tf.as_dtype(values.dtype) == tf.bfloat16


def widen(values: tf.Tensor) -> tf.Tensor:
    """Rows as float32, without a gradient of their own."""
    return tf.cast(values, tf.float32) if is_half(values) else values


def take(values: tf.Tensor | StoredRows, ids: tf.Tensor) -> tf.Tensor:
    """float32 rows `ids`, without a gradient of their own."""
    if isinstance(values, StoredRows):
        return values.floats(ids)
    return widen(tf.gather(values, ids))


def floats(values: tf.Tensor) -> tf.Tensor:
    """Rows as float32, whose gradient is float32, too."""
    return _floats(values) if is_half(values) else values


@custom_gradient
def _floats(values):
    return widen(values), tf.identity


@custom_gradient
def gather(values: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """float32 rows `ids` of a bfloat16 matrix, whose gradient is float32.

    A cast's gradient would be rounded before gradients of one row are summed.
    """

    def grad(upstream):
        rows = tf.reshape(
            upstream, tf.concat([[-1], tf.shape(values)[1:]], axis=0)
        )
        slices = tf.IndexedSlices(rows, tf.reshape(ids, [-1]), tf.shape(values))
        return slices, None

    return tf.cast(tf.gather(values, ids), tf.float32), grad
