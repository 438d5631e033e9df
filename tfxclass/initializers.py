"""Initializers for the weights of heads."""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.checks import as_numbers_of_classes
from tfxclass.types import Config
from tfxclass.types import Initializer
from tfxclass.types import Shape

__all__ = ["LogOdds", "rms_of"]

#: Numbers of a block of `InBlocks`, at most.
BLOCK_NUMBERS = 1 << 21
#: Initializers that are not random.
CONSTANTS = (
    keras.initializers.Zeros,
    keras.initializers.Ones,
    keras.initializers.Constant,
)
_PLAIN = (
    keras.initializers.RandomNormal,
    keras.initializers.RandomUniform,
    keras.initializers.TruncatedNormal,
)
__dir__ = __all__.copy  # For completion.


@keras.saving.register_keras_serializable("tfxclass")
class LogOdds(keras.initializers.Initializer):
    """Biases that start each label at its frequency in the training data.

    Use it as `bias_initializer` of a head with `loss="sigmoid"`. With biases of
    zero, the first training steps only learn that most labels are rare. The
    bias is the log odds of (count + 1/2) / (num_rows + 1).

    Args:
        label_counts: `[num_classes]`, number of training examples of each.
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
        self.label_counts = as_numbers_of_classes(
            "label_counts",
            label_counts,
            lambda x: (x >= 0) & (x <= num_rows),
            f"in [0, num_rows], with num_rows={num_rows}",
        )
        self.num_rows = num_rows

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


class InBlocks(keras.initializers.Initializer):
    """Values of another initializer, drawn a block of rows at a time.

    Each block has a seed of its own, so any part of a matrix can be made
    without the rest. Values that are not independent, such as `Orthogonal`'s,
    and those whose seed is no int are one block, as without it.
    """

    def __init__(self, initializer: Initializer) -> None:
        if isinstance(initializer, InBlocks):
            initializer = initializer.initializer
        self.initializer: Any = keras.initializers.get(initializer)

    def __call__(
        self, shape: Sequence[int], dtype: str | None = None
    ) -> tf.Tensor:
        shape, dtype = tuple(shape), dtype or "float32"
        rows = self.block_rows(shape)
        if isinstance(self.initializer, CONSTANTS):
            return self.initializer(shape, dtype=dtype)
        if rows >= shape[0]:
            return tf.cast(self.block(shape, 0), dtype)
        values = tf.raw_ops.Empty(shape=shape, dtype=dtype, init=False)
        for number, start in enumerate(range(0, shape[0], rows)):
            drawn = tf.cast(self.block(shape, number), dtype)
            # In the same memory.
            values = tf.raw_ops.InplaceUpdate(
                x=values, i=start + tf.range(drawn.shape[0]), v=drawn
            )
        return values

    def block_rows(self, shape: Sequence[int]) -> int:
        """Rows of a block, but for the last one."""
        if len(shape) != 2 or not self._is_independent():
            return shape[0]
        return min(max(BLOCK_NUMBERS // max(shape[1], 1), 1), shape[0])

    def block(self, shape: Sequence[int], number: int) -> tf.Tensor:
        """float32 rows of a block of the matrix of this shape."""
        rows = self.block_rows(shape)
        if rows >= shape[0]:
            return self.initializer(shape, dtype="float32")
        count = min(rows, shape[0] - number * rows)
        drawn = self._drawer(shape, count, number)
        return drawn((count, shape[1]), dtype="float32")

    def _is_independent(self):
        drawn = self.initializer
        if not isinstance(getattr(drawn, "seed", None), int):
            return False
        if isinstance(drawn, keras.initializers.VarianceScaling):
            return not (drawn.input_axes or drawn.output_axes)
        return type(drawn) in _PLAIN

    def _drawer(self, shape, count, number):
        """The initializer of a block of `count` rows."""
        drawn = self.initializer
        seed = (drawn.seed + 0x9E3779B9 * number) % 2**31
        if not isinstance(drawn, keras.initializers.VarianceScaling):
            config = {**drawn.get_config(), "seed": seed}
            return type(drawn).from_config(config)
        # It divides by the fans of a block, not by the fans of all rows.
        part = _fans((count, shape[1]), drawn.mode) / _fans(shape, drawn.mode)
        return keras.initializers.VarianceScaling(
            drawn.scale * part, drawn.mode, drawn.distribution, seed
        )


def _fans(shape, mode):
    """The divisor of `VarianceScaling` for a matrix."""
    fans = {"fan_in": shape[0], "fan_out": shape[1]}
    return max(1.0, fans.get(mode, (shape[0] + shape[1]) / 2))


def rms_of(initializer: Initializer, shape: Sequence[int]) -> float | None:
    """Root mean square of an initializer's values, or None if unknown.

    Args:
        initializer: of `keras.initializers`, or its name.
        shape: `(rows, dim)` of the matrix.
    """
    kinds = keras.initializers
    initializer = InBlocks(initializer).initializer
    if isinstance(initializer, kinds.VarianceScaling):
        return math.sqrt(initializer.scale / _fans(shape, initializer.mode))
    if isinstance(initializer, kinds.RandomNormal | kinds.TruncatedNormal):
        return math.hypot(initializer.mean, initializer.stddev)
    if isinstance(initializer, kinds.RandomUniform):
        low, high = initializer.minval, initializer.maxval
        return math.sqrt((low * low + low * high + high * high) / 3)
    if isinstance(initializer, kinds.Zeros):
        return 0.0
    return None
