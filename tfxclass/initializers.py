"""Initializers for the weights of heads."""

import math
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.checks import as_numbers_of_classes
from tfxclass.types import Config
from tfxclass.types import Initializer
from tfxclass.types import Shape

__all__ = [
    "LogOdds",
    "rms_of",
]


def __dir__() -> list[str]:
    return __all__


@keras.saving.register_keras_serializable("tfxclass")
class LogOdds(keras.initializers.Initializer):
    """Biases that start each label at its frequency in the training data.

    Use it as `bias_initializer` of a head with `loss="sigmoid"`. Biases of zero
    start at probability 1/2 for every label, and the first training steps only
    learn that most labels are rare. The bias is the log odds of (count + 1/2) /
    (num_rows + 1).

    Args:
        label_counts: numbers >= 0, `[num_classes]`, number of training examples
            with each label.
        num_rows: int, number of training examples.

    Raises:
        ValueError: if an argument is out of range, or, in `build`, if there are
            not `num_classes` counts.

    Example:

    ```python
    bias = tfxclass.initializers.LogOdds([90, 5, 1], num_rows=100)
    head = tfxclass.layers.FullSoftmax(
        3, loss="sigmoid", use_bias=True, bias_initializer=bias
    )
    ```
    """

    def __init__(self, label_counts: ArrayLike, num_rows: int) -> None:
        if isinstance(label_counts, dict):
            label_counts = keras.saving.deserialize_keras_object(label_counts)
        counts = as_numbers_of_classes("label_counts", label_counts)
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


def rms_of(initializer: Initializer, shape: Sequence[int]) -> float | None:
    """Root mean square of an initializer's values.

    Args:
        initializer: of `keras.initializers`, or its name.
        shape: `(rows, dim)` of the matrix.

    Returns:
        float, or None for an initializer of unknown scale.
    """
    kinds = keras.initializers
    if isinstance(initializer, str):
        initializer = kinds.get(initializer)
    if isinstance(initializer, kinds.VarianceScaling):
        fans = {"fan_in": shape[0], "fan_out": shape[1]}
        fan = fans.get(initializer.mode, (shape[0] + shape[1]) / 2)
        return math.sqrt(initializer.scale / max(1.0, fan))
    if isinstance(initializer, kinds.RandomNormal | kinds.TruncatedNormal):
        return math.hypot(initializer.mean, initializer.stddev)
    if isinstance(initializer, kinds.RandomUniform):
        low, high = initializer.minval, initializer.maxval
        return math.sqrt((low * low + low * high + high * high) / 3)
    if isinstance(initializer, kinds.Zeros):
        return 0.0
    return None
