"""Leading dimensions of features: flattened for a head, and put back."""

import tensorflow as tf

from tfxclass.types import Array


def flatten(features: tf.Tensor) -> tf.Tensor:
    """Features `[..., dim]` as float32 `[rows, dim]`, a row a position."""
    features = tf.cast(features, tf.float32)
    if features.shape.rank == 2:
        return features
    return tf.reshape(features, [-1, features.shape[-1]])


def unflatten(values: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
    """Values `[rows, ...]` in the leading dimensions of `features`."""
    if features.shape.rank == 2:
        return values
    leading = tf.shape(features)[:-1]
    shape = tf.concat([leading, tf.shape(values)[1:]], axis=0)
    static = features.shape[:-1].concatenate(values.shape[1:])
    return tf.ensure_shape(tf.reshape(values, shape), static)


def row_weights(sample_weight: Array, features: tf.Tensor) -> tf.Tensor:
    """Sample weights of a batch as float32 `[rows]`, a row a position.

    Args:
        sample_weight: floats, of the shape of `features` without the last
            dimension, or `[batch]` or `[batch, 1]` for all positions.
        features: float `[..., dim]`.
    """
    weights = tf.cast(sample_weight, tf.float32)
    rank = features.shape.rank - 1
    if weights.shape.rank > rank:
        weights = tf.squeeze(weights, axis=-1)
    for _ in range(rank - weights.shape.rank):
        weights = weights[..., tf.newaxis]
    weights = tf.broadcast_to(weights, tf.shape(features)[:-1])
    return tf.reshape(weights, [-1])


def check_weight_shape(weight: tf.Tensor, leading: tf.TensorShape) -> None:
    """Raises ValueError for weights that rows, or positions, do not have.

    Args:
        weight: the sample weights of a batch.
        leading: shape of the features without their last dimension.
    """
    shape, leading = tf.TensorShape(weight.shape), tf.TensorShape(leading)
    if shape.rank in (None, 0) or leading.rank is None:
        return
    own = shape[:-1] if shape.rank > 1 and shape[-1] == 1 else shape
    # A weight for each sequence is one for all of its positions.
    fits = own.rank <= leading.rank and all(
        size is None or wanted is None or size in (1, wanted)
        for size, wanted in zip(own, leading)
    )
    if not fits:
        wanted = ["[batch]", "[batch, time]"][: leading.rank]
        raise ValueError(
            f"`sample_weight` must have shape {' or '.join(wanted)}: a row has "
            "one weight, however many labels it has. Fix: for a weight of each "
            "class, loss_options=tfxclass.losses.LossOptions(class_weight=...)"
            f". Received: shape {shape}."
        )


def mean(losses: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Mean loss, a scalar, over the positions that a mask, or None, leaves."""
    if mask is None:
        return tf.reduce_mean(losses)
    count = tf.reduce_sum(tf.cast(mask, losses.dtype))
    return tf.math.divide_no_nan(tf.reduce_sum(losses), count)
