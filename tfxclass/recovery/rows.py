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
        ids: int64 `[n, p]`, distinct labels, padded with -1.
        weights: float32 `[n]`, 0 where a Keras mask leaves a row out.
    """

    features: np.ndarray
    ids: np.ndarray
    weights: np.ndarray

    @property
    def targets(self) -> Targets:
        """The labels of each row, with equal weights."""
        return uniform_targets(tf.constant(self.ids))

    def at(self, chosen: np.ndarray) -> "Rows":
        """The rows of a bool mask `[n]`, or of positions."""
        return Rows(*(values[chosen] for values in self))

    def joined(self, other: "Rows") -> "Rows":
        """These rows and then the others, labels padded to the same width."""
        width = max(self.ids.shape[1], other.ids.shape[1])
        ids = [
            np.pad(
                rows.ids,
                [[0, 0], [0, width - rows.ids.shape[1]]],
                constant_values=-1,
            )
            for rows in (self, other)
        ]
        return Rows(
            np.concatenate([self.features, other.features]),
            np.concatenate(ids),
            np.concatenate([self.weights, other.weights]),
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
    return Rows(flatten(features).numpy(), targets.ids.numpy(), weights.numpy())
