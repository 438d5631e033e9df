"""Rows of a pass over the data, as recovery sums them."""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.core.flat_features import flatten
from tfxclass.core.forward import mask_of
from tfxclass.core.targets import Targets
from tfxclass.core.targets import uniform_targets
from tfxclass.losses.batch_checks import check_weight_shape
from tfxclass.types import Array
from tfxclass.types import Labels


class Rows(NamedTuple):
    """Features, labels and weights of some rows.

    Attributes:
        features: float32 `[n, dim]`.
        targets: `Targets` of `[n, p]`.
        weights: float32 `[n]`, 0 where a Keras mask leaves a row out.
    """

    features: tf.Tensor
    targets: Targets
    weights: tf.Tensor

    def at(self, chosen: np.ndarray) -> "Rows":
        """The examples of a bool mask `[n]`, or of positions."""
        if chosen.dtype == bool:
            chosen = np.flatnonzero(chosen)
        return Rows(
            tf.gather(self.features, chosen),
            self.targets.map(lambda x: tf.gather(x, chosen)),
            tf.gather(self.weights, chosen),
        )


def rows_of(
    head: keras.layers.Layer,
    features: Array,
    labels: Labels,
    sample_weight: Array | None = None,
) -> Rows:
    """`Rows` of a batch as `fit` has it: positions of sequences are rows."""
    targets = head.targets(features, labels)
    leading = tf.shape(features)[:-1]
    mask = mask_of(features)
    weights = tf.ones(leading)
    if sample_weight is not None:
        sample_weight = tf.convert_to_tensor(sample_weight)
        check_weight_shape(sample_weight, features.shape[:-1])
        weights *= _like(tf.cast(sample_weight, tf.float32), leading)
    if mask is not None:
        weights = tf.where(mask, weights, 0.0)
    features = flatten(tf.convert_to_tensor(features))
    return Rows(features, targets, tf.reshape(weights, [-1]))


def _like(weights, leading):
    """`[batch]` for all positions of a sequence, as Keras has it."""
    missing = leading.shape[0] - weights.shape.rank
    ones = tf.ones(max(missing, 0), tf.int32)
    return tf.reshape(weights, tf.concat([tf.shape(weights), ones], axis=0))


def joined(many: list[Rows]) -> Rows:
    """One `Rows` of several, labels padded to the most of a row."""
    width = max(rows.targets.ids.shape[1] for rows in many)
    ids = [
        tf.pad(
            rows.targets.ids,
            [[0, 0], [0, width - rows.targets.ids.shape[1]]],
            constant_values=-1,
        )
        for rows in many
    ]
    return Rows(
        tf.concat([rows.features for rows in many], axis=0),
        uniform_targets(tf.concat(ids, axis=0)),
        tf.concat([rows.weights for rows in many], axis=0),
    )
