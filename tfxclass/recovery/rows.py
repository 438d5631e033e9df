"""Rows of a pass over the data, as recovery sums them."""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.core.forward import check_weight_shape
from tfxclass.core.forward import flatten
from tfxclass.core.forward import mask_of
from tfxclass.core.forward import row_weights
from tfxclass.core.targets import Targets
from tfxclass.core.targets import uniform_targets
from tfxclass.layers import head_step
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
    targets, mask = head_step.targets(head, features, labels), mask_of(features)
    features = tf.convert_to_tensor(features)
    if sample_weight is None:
        sample_weight = tf.ones(tf.shape(features)[:-1])
    sample_weight = tf.convert_to_tensor(sample_weight)
    check_weight_shape(sample_weight, features.shape[:-1])
    weights = row_weights(sample_weight, features)
    if mask is not None:
        weights = tf.where(tf.reshape(mask, [-1]), weights, 0.0)
    return Rows(flatten(features), targets, weights)


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
