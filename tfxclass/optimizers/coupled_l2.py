"""L2 regularisation that is part of the gradient."""

import math
from typing import Any

import tensorflow as tf

from tfxclass.ops import placement
from tfxclass.optimizers import row_gradients
from tfxclass.optimizers.accumulated_rows import AccumulatedRows
from tfxclass.types import Config
from tfxclass.types import Gradient
from tfxclass.types import Variable


class CoupledL2(AccumulatedRows):
    """Mixin: the gradient of `l2 / 2 * |row|^2`, of the rows of a step."""

    def __init__(self, *args: Any, l2: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not 0 <= l2 < math.inf:
            raise ValueError(f"`l2` must be finite and >= 0. Received: {l2}")
        if l2 and self.catch_up:
            raise ValueError(
                "`l2` is of the rows that a step touches, and `catch_up=True` "
                "makes up for steps without a gradient, which `l2` would be. "
                f"Received: l2={l2} with catch_up=True. Fix: leave out one of "
                "both, or use `weight_decay`."
            )
        self.l2 = l2

    def _with_l2(self, gradient: Gradient, variable: Variable) -> Gradient:
        """`gradient + l2 * variable`, of touched rows each once."""
        if not self.l2 or not self._has_decay(variable):
            return gradient
        if not isinstance(gradient, tf.IndexedSlices):
            here = tf.cast(tf.convert_to_tensor(variable), gradient.dtype)
            return gradient + self.l2 * here
        gradient = row_gradients.summed_rows(gradient)
        rows = placement.gather(variable, gradient.indices)
        rows = tf.cast(rows, gradient.values.dtype)
        return row_gradients.with_values(
            gradient, gradient.values + self.l2 * rows
        )

    def get_config(self) -> Config:
        return {**super().get_config(), "l2": self.l2}
