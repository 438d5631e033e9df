"""The first values of bfloat16 class rows, never held whole in float32."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

#: Numbers drawn at a time.
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


class Rounded(keras.initializers.Initializer):
    """Values of another initializer, made in float32 and rounded.

    Independent ones are drawn in blocks of rows, each from a seed of its own;
    others, as `Orthogonal`'s, or with a seed that is no int, all at once.
    """

    def __init__(self, initializer: keras.initializers.Initializer) -> None:
        self.initializer = initializer

    def __call__(self, shape: Any, dtype: Any = None) -> tf.Tensor:
        shape = tuple(shape)
        if isinstance(self.initializer, CONSTANTS):
            return self.initializer(shape, dtype=dtype)
        rows = self._rows_at_once(shape)
        if rows >= shape[0]:
            return tf.cast(self.initializer(shape, dtype="float32"), dtype)
        values = tf.raw_ops.Empty(shape=shape, dtype=dtype, init=False)
        for number, start in enumerate(range(0, shape[0], rows)):
            count = min(rows, shape[0] - start)
            drawn = self._drawer(shape, count, number)((count, *shape[1:]))
            # In the same memory.
            values = tf.raw_ops.InplaceUpdate(
                x=values,
                i=tf.range(start, start + count),
                v=tf.cast(drawn, dtype),
            )
        return values

    def drawn_at_once(self, shape: Sequence[int]) -> int:
        """Numbers that are held in float32 at a time, int."""
        return self._rows_at_once(shape) * int(np.prod(shape[1:]))

    def _rows_at_once(self, shape):
        if len(shape) != 2 or not self._is_independent():
            return shape[0]
        return max(BLOCK_NUMBERS // max(shape[1], 1), 1)

    def _is_independent(self):
        drawn = self.initializer
        if not isinstance(getattr(drawn, "seed", None), int):
            return False
        scaled = isinstance(drawn, keras.initializers.VarianceScaling)
        if scaled and (drawn.input_axes or drawn.output_axes):
            return False
        return scaled or type(drawn) in _PLAIN

    def _drawer(self, shape, count, number):
        """The initializer of a block of `count` rows."""
        drawn = self.initializer
        seed = (drawn.seed + 0x9E3779B9 * number) % 2**31
        if not isinstance(drawn, keras.initializers.VarianceScaling):
            config = {**drawn.get_config(), "seed": seed}
            return type(drawn).from_config(config)
        # It divides by the fans of a block, not by the fans of all rows.
        part = _fans((count, *shape[1:]), drawn.mode) / _fans(shape, drawn.mode)
        return keras.initializers.VarianceScaling(
            drawn.scale * part, drawn.mode, drawn.distribution, seed
        )


def _fans(shape, mode):
    """The divisor of `VarianceScaling` for a matrix."""
    fans = {
        "fan_in": shape[0],
        "fan_out": shape[1],
        "fan_avg": (shape[0] + shape[1]) / 2,
    }
    return max(1.0, fans[mode])
