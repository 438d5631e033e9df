"""Initial values of a head's weights."""

import math

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.types import Config
from tfxclass.types import Initializer
from tfxclass.types import Shape


@keras.saving.register_keras_serializable("tfxclass")
class LogOdds(keras.initializers.Initializer):
    """Biases with which each label's probability is its frequency.

    For `bias_initializer` of a head with `loss="sigmoid"`: the log odds of
    (count + 1/2) / (num_rows + 1). Biases of zero begin at probability 1/2 for
    all labels, and the first steps learn nothing but that most are rare.

    Args:
        label_counts: numbers >= 0, `[num_classes]`, training rows of each
            label.
        num_rows: int, training rows.

    Example:

    >>> _, counts = train.counts()  # a tfxclass.data.XCFile
    >>> bias = tfxclass.initializers.LogOdds(counts, train.num_rows)
    >>> head = tfxclass.layers.FullSoftmax(
    ...     train.num_classes, loss="sigmoid", use_bias=True,
    ...     bias_initializer=bias,
    ... )

    Raises:
        ValueError: an argument out of range; in `build`, counts of another
            length than `num_classes`.
    """

    def __init__(self, label_counts: ArrayLike, num_rows: int) -> None:
        if isinstance(label_counts, dict):
            label_counts = keras.saving.deserialize_keras_object(label_counts)
        counts = np.array(label_counts, np.float64)
        if counts.ndim != 1:
            raise ValueError(
                "`label_counts` must have shape [num_classes]. Received: "
                f"{counts.shape}"
            )
        bad = np.flatnonzero(~((counts >= 0) & (counts <= num_rows)))
        if len(bad):
            raise ValueError(
                "`label_counts` must be in [0, num_rows]. Received: "
                f"{counts[bad[0]]} for class {bad[0]} with num_rows={num_rows}"
            )
        self.label_counts, self.num_rows = counts, num_rows

    def __call__(self, shape: Shape, dtype: str | None = None) -> tf.Tensor:
        if tuple(shape) != self.label_counts.shape:
            raise ValueError(
                "`label_counts` must have a number for each class. Received: "
                f"{len(self.label_counts)} numbers for shape {tuple(shape)}"
            )
        present = self.label_counts + 0.5
        absent = self.num_rows - self.label_counts + 0.5
        return tf.constant(np.log(present / absent), dtype or "float32")

    def get_config(self) -> Config:
        return {"label_counts": self.label_counts, "num_rows": self.num_rows}


def rms_of(initializer: Initializer, shape: Shape) -> float | None:
    """Root mean square of an initializer's values.

    Args:
        initializer: of `keras.initializers`, or its name.
        shape: `(rows, dim)` of the matrix.

    Returns:
        float; None for an initializer that does not tell it.
    """
    kinds = keras.initializers
    if isinstance(initializer, str):
        initializer = kinds.get(initializer)
    if isinstance(initializer, kinds.VarianceScaling):
        fans = {"fan_in": shape[0], "fan_out": shape[1]}
        fan = fans.get(initializer.mode, sum(shape) / 2)
        return math.sqrt(initializer.scale / max(1.0, fan))
    if isinstance(initializer, kinds.RandomNormal | kinds.TruncatedNormal):
        return math.hypot(initializer.mean, initializer.stddev)
    if isinstance(initializer, kinds.RandomUniform):
        low, high = initializer.minval, initializer.maxval
        return math.sqrt((low * low + low * high + high * high) / 3)
    if isinstance(initializer, kinds.Zeros):
        return 0.0
    return None
