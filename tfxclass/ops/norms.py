"""Vectors over their norms, for cosines."""

import tensorflow as tf

# Least squared norm by which a vector is divided. A zero vector has a gradient
# 1e3 times as long as a unit one. With the 1e-12 of `tf.math.l2_normalize`, 1e6
# times, it would drown the batch. Fresh rows of 10M classes are longer.
EPSILON = 1e-6


def normalize(vectors: tf.Tensor) -> tf.Tensor:
    """Over their norms, along the last axis; zeros stay zeros. Stock ops."""
    return tf.math.l2_normalize(vectors, axis=-1, epsilon=EPSILON)


def inverse_norms(vectors: tf.Tensor) -> tf.Tensor:
    """The factors of `normalize`, float32 `[...]` for `[..., dim]`."""
    squares = tf.reduce_sum(tf.square(vectors), axis=-1)
    return tf.math.rsqrt(tf.maximum(squares, EPSILON))


def normalize_grad(
    vectors: tf.Tensor, normalized: tf.Tensor, upstream: tf.Tensor
) -> tf.Tensor:
    """Gradient of `normalize`; all `[..., dim]`."""
    squares = tf.reduce_sum(tf.square(vectors), axis=-1, keepdims=True)
    along = tf.reduce_sum(normalized * upstream, axis=-1, keepdims=True)
    along = tf.where(squares > EPSILON, along, 0.0)
    inverse = tf.math.rsqrt(tf.maximum(squares, EPSILON))
    return (upstream - along * normalized) * inverse
