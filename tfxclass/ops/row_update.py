"""Optimizer steps on the rows of a variable that a batch touched.

In all functions:
    variable, slots: handles of variables of one type and shape [num_rows, ...]:
        float32, float16, bfloat16, or in the memory of the host float64. 16-bit
        rows are computed in float32 and rounded once, to nearest.
    storage: a `RowStorage`, or None for the types above.
    ids: int64 [n] in [0, num_rows), repeated as they come.
    grads: [n, ...] of the variable's type, or of `storage.slot_dtype`;
        gradients of one row are summed in order. Or a `ClassGradient` of all
        rows of a float32 or bfloat16 kernel: `ids` are ignored, and the
        gradient of the bias is returned, float32 [classes] or [0].
    numbers: float64 scalars by name. `decay` is the learning rate times the
        weight decay: the row loses this share of itself before the step.

The work is O(n), whatever num_rows is, and the result does not depend on the
number of threads. `tf.errors.InvalidArgumentError` for ids out of range, shapes
or types that do not fit, the same variable twice and uninitialised variables;
nothing is changed then.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfxclass.ops.exact_softmax import ClassGradient
from tfxclass.ops.library import ops


class RowStorage(NamedTuple):
    """How a matrix and its optimizer state are stored.

    Attributes:
        slot_dtype: of gradients and of slots, unless an option below says
            otherwise: `dtype`, or float32 where the matrix is bfloat16. The
            matrix is then rounded stochastically, by `seed` and `step`.
        row_moments: bool, whether second moments are float32 [num_rows], of
            the mean of the squares of a row. Needs `slot_dtype` float32.
        bfloat16_moments: bool, whether first moments are bfloat16, rounded
            stochastically. Needs `row_moments`.
        step: int64 scalar, another for each update.
    """

    dtype: tf.DType
    slot_dtype: tf.DType
    row_moments: bool = False
    bfloat16_moments: bool = False
    seed: int = 0
    step: tf.Tensor | int = 0


def update(
    rule: str,
    variable: tf.Tensor,
    slots: Sequence[tf.Tensor],
    ids: tf.Tensor,
    grads: Any,
    storage: Any = None,
    **numbers: Any,
) -> Any:
    """One step of a rule, as `update_step` of the optimizer of Keras.

    - `"sgd"`: the slot is the momentum, or there is none. Numbers:
      `learning_rate`, `momentum` and `nesterov`, a bool.
    - `"adagrad"`: w -= rate * g / sqrt(accumulator + offset). The slot is the
      accumulator. Numbers: `learning_rate`, and `offset` >= 0, which is
      `epsilon` of Keras.
    - `"adam"`: slots are momentum, velocity and, for AMSGrad, the largest
      velocity. Numbers: `alpha`, the learning rate with the bias correction
      (Kingma and Ba, 2014, end of section 2), `beta_1`, `beta_2`, `epsilon`.
    """
    if getattr(grads, "block", None) is not None:

        def update_rows(ids, grads):
            update(rule, variable, slots, ids, grads, storage, **numbers)

        # A step for each block of classes.
        return grads.update(variable, storage.dtype, update_rows)
    if isinstance(grads, ClassGradient):
        op = f"tfxclass_class_{rule}_update"
        given = {**grads.inputs, "epsilon_of_norm": grads.epsilon}
        given["S"] = storage.slot_dtype
    else:
        op = f"tfxclass_lazy_{rule}_update"
        given = {"grads": tf.convert_to_tensor(grads)}
        if storage is None:
            dtype = given["grads"].dtype
            storage = RowStorage(dtype, dtype)
    return getattr(ops, op)(
        variable=variable,
        slots=slots,
        ids=ids,
        T=storage.dtype,
        row_moments=storage.row_moments,
        bfloat16_moments=storage.bfloat16_moments,
        seed=storage.seed,
        step=tf.cast(storage.step, tf.int64),
        **given,
        **numbers,
    )


def add_rows(
    variable: tf.Tensor, ids: tf.Tensor, values: tf.Tensor, decay: float = 0.0
) -> Any:
    """variable[ids] += values; without the copies of TensorFlow's scatter.

    After a scatter TensorFlow copies the whole matrix in each read of it.
    """
    numbers = {"learning_rate": -1.0, "decay": decay, "momentum": 0.0}
    return update("sgd", variable, [], ids, values, nesterov=False, **numbers)


def assign_rows(variable: tf.Tensor, ids: tf.Tensor, values: tf.Tensor) -> Any:
    """variable[ids] = values, for distinct ids; otherwise as `add_rows`."""
    # A decay of 1: the row loses all of itself before the step.
    return add_rows(variable, ids, values, decay=1.0)


def sum_duplicate_rows(
    ids: tf.Tensor, grads: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Distinct ids, rising, and the sums of their rows, float32 or float64."""
    return ops.tfxclass_sum_duplicate_rows(ids=ids, grads=grads)
