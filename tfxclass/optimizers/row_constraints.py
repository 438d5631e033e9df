"""Constraints on the rows of a variable that a step touched."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfxclass.keras_internals import eager_mode
from tfxclass.types import Shape

Constraint = Callable[[tf.Tensor], tf.Tensor]
# The norms of the rows that a constraint is tried on.
_NORMS = (0.01, 0.5, 3.0, 100.0)


def check(constraint: Constraint, shape: Shape, name: str) -> None:
    """Raises ValueError if what becomes of a row depends on other rows.

    Args:
        constraint: function of a tensor, as `keras.constraints` has them.
        shape: shape of the variable, `[num_rows, ...]`.
        name: str, of the variable.
    """
    if not _keeps_rows_apart(constraint, shape[1:]):
        raise ValueError(
            f"The constraint on '{name}' of shape {tuple(shape)} needs all "
            "rows, which a step with a row gradient (tf.IndexedSlices) does "
            "not read. Fix: one of each row by itself, as keras.constraints."
            "MaxNorm(axis=1), or an optimizer of Keras. Received: "
            f"constraint={_text(constraint)}"
        )


def _keeps_rows_apart(constraint, inner_shape):
    random = np.random.default_rng(0)
    rows = random.normal(size=(len(_NORMS), *inner_shape))
    norms = np.sqrt((rows**2).reshape(len(_NORMS), -1).sum(axis=1))
    scale = np.reshape(_NORMS / norms, [-1] + [1] * len(inner_shape))
    rows = (rows * scale).astype(np.float32)
    with eager_mode():
        whole = np.asarray(constraint(tf.constant(rows)))
        parts = [np.asarray(constraint(tf.constant(row[None]))) for row in rows]
    return np.allclose(whole, np.concatenate(parts), rtol=1e-4, atol=1e-6)


def _text(constraint):
    if not isinstance(constraint, keras.constraints.Constraint):
        return constraint
    return f"{type(constraint).__name__}({constraint.get_config()})"
