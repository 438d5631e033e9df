"""Optimizer steps on the rows of a variable that a batch touched.

In all functions:
    variable, slots: handles (scalar resource tensors) of variables of one type
        and one shape [num_rows, ...]: float32, float64, float16 or bfloat16
        (on a GPU float32, or bfloat16 beside float32 slots). 16-bit rows are
        computed in float32 and rounded once, to nearest.
    kept: a `Kept`, where they are kept in another way; None is as above.
    history: a `History`, or None where rows are not caught up.
    ids: int64 [n] in [0, num_rows), repeated as they come.
    grads: [n, ...] of the variable's type, or `kept`'s of the slots; those of
        one row are summed in order. Or a `ClassGradient`, of all rows of a
        float32 or bfloat16 kernel: `ids` are not looked at, and the gradient
        of the bias, float32 [classes] or [0], is returned.
    decay: float64 scalar, learning rate times weight decay. The row loses
        this share of itself before the step.

The work is O(n), whatever num_rows is, and the result does not depend on the
number of threads. `tf.errors.InvalidArgumentError` for ids out of range,
shapes or types that do not fit, the same variable twice and uninitialised
variables; nothing is changed then.

An update is a step of the history: its clock moves on. `*_catch_up` brings rows
to the clock: `ids`, or all of them with `every_row` and where the history is
full (the clock is a multiple of its capacity), since the next step begins it
anew. custom_ops/core/skipped_steps.h has the mathematics.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfxclass.ops.exact_softmax import ClassGradient
from tfxclass.ops.library import ops
from tfxclass.types import Array


class History(NamedTuple):
    """The steps that a variable has seen.

    Args:
        handles: list of handles of variables: last_step, int64 [num_rows], the
            clock at which each row was current; clock, int64 scalar; with Adam
            rates, float32 [capacity]; where rows decay log_keeps, float64
            [capacity + 1], sums of log(1 - decay).
        capacity: int, steps it holds before all rows are caught up.
    """

    handles: list[tf.Tensor]
    capacity: int


_NO_HISTORY = History([], 1)


class Kept(NamedTuple):
    """How a matrix and its slots are kept.

    Args:
        dtype: of the matrix.
        slot_dtype: of slots and gradients: `dtype`, or float32 beside a
            bfloat16 matrix, which is then rounded stochastically.
        compact: bool. First moments are bfloat16, rounded stochastically, and
            second ones float32 [num_rows], of the mean of the squares of a
            row; `slot_dtype` is float32.
        seed: int, of what is rounded by chance.
        step: int64 scalar, another for each update.
        second_moment: handle of a variable `[1, 2]`, Adam's one of all rows
            (`shared_adam_update`); or None, where it is a slot.
    """

    dtype: tf.DType
    slot_dtype: tf.DType
    compact: bool = False
    seed: int = 0
    step: tf.Tensor | int = 0
    second_moment: tf.Tensor | None = None


def sgd_update(
    variable: tf.Tensor,
    momentum_slot: tf.Tensor | None,
    history: History | None,
    ids: tf.Tensor,
    grads: tf.Tensor,
    *,
    learning_rate: tf.Tensor,
    decay: tf.Tensor,
    momentum: Any,
    nesterov: bool,
    kept: Kept | None = None,
) -> Any:
    """One step of SGD; `momentum_slot` is None where there is no momentum.

    Source: `keras.optimizers.SGD.update_step`.
    """
    return _op("sgd", grads)(
        **_rows(variable, _present(momentum_slot), history, ids),
        **_update(kept, grads),
        learning_rate=learning_rate,
        decay=decay,
        momentum=momentum,
        nesterov=nesterov,
    )


def sgd_catch_up(
    variable: tf.Tensor,
    momentum_slot: tf.Tensor | None,
    history: History,
    ids: tf.Tensor,
    *,
    kept: Kept,
    every_row: bool,
    terms: Array,
    momentum: Any,
) -> Any:
    """Applies the steps that rows skipped.

    Args:
        terms: float32 [1, steps], `skipped_steps.sgd_terms`.
    """
    return ops.tfxclass_lazy_sgd_catch_up(
        **_rows(variable, _present(momentum_slot), history, ids),
        **_attributes(kept),
        every_row=every_row,
        terms=terms,
        momentum=momentum,
    )


def add_rows(
    variable: tf.Tensor,
    ids: tf.Tensor,
    values: tf.Tensor,
    kept: Kept | None = None,
) -> Any:
    """variable[ids] += values; without the copies of TensorFlow's scatter.

    After a scatter TensorFlow copies the whole matrix in each read of it.
    """
    return sgd_update(
        variable,
        None,
        None,
        ids,
        values,
        learning_rate=tf.constant(-1.0, tf.float64),
        decay=tf.constant(0.0, tf.float64),
        momentum=0.0,
        nesterov=False,
        kept=kept,
    )


def clear_rows(variable: tf.Variable, ids: tf.Tensor) -> None:
    """variable[ids] = 0, also where rows are NaN or infinite.

    By TensorFlow's scatter: for variables that are not read as a whole.
    """
    zero = tf.zeros([], variable.dtype)
    tf.raw_ops.ResourceScatterUpdate(
        resource=variable.handle, indices=ids, updates=zero
    )


def adagrad_update(
    variable: tf.Tensor,
    accumulator: tf.Tensor,
    history: History | None,
    ids: tf.Tensor,
    grads: tf.Tensor,
    *,
    learning_rate: tf.Tensor,
    decay: tf.Tensor,
    epsilon: float,
    kept: Kept | None = None,
) -> Any:
    """One step of Adagrad.

    Source: `keras.optimizers.Adagrad.update_step`.
    """
    return _op("adagrad", grads)(
        **_rows(variable, [accumulator], history, ids),
        **_update(kept, grads),
        learning_rate=learning_rate,
        decay=decay,
        epsilon=epsilon,
    )


def adagrad_catch_up(
    variable: tf.Tensor,
    accumulator: tf.Tensor,
    history: History,
    ids: tf.Tensor,
    *,
    kept: Kept,
    every_row: bool,
) -> Any:
    """Applies the weight decay that rows skipped."""
    return ops.tfxclass_lazy_adagrad_catch_up(
        **_rows(variable, [accumulator], history, ids),
        **_attributes(kept),
        every_row=every_row,
    )


def adam_update(
    variable: tf.Tensor,
    slots: Sequence[tf.Tensor],
    history: History | None,
    ids: tf.Tensor,
    grads: tf.Tensor,
    *,
    alpha: tf.Tensor,
    decay: tf.Tensor,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    kept: Kept | None = None,
) -> Any:
    """One step of Adam.

    Args:
        slots: momentum, velocity and, for AMSGrad, the largest velocity.
        alpha: float64 scalar, the learning rate with the bias correction.

    Source: `keras.optimizers.Adam.update_step`; Kingma and Ba, 2014, end of
    section 2.
    """
    return _op("adam", grads)(
        **_rows(variable, slots, history, ids),
        **_update(kept, grads),
        alpha=alpha,
        decay=decay,
        beta_1=tf.constant(beta_1, tf.float64),
        beta_2=tf.constant(beta_2, tf.float64),
        epsilon=epsilon,
    )


def shared_adam_update(
    variable: tf.Tensor,
    momentum_slot: tf.Tensor,
    history: History | None,
    ids: tf.Tensor,
    grads: tf.Tensor,
    *,
    learning_rate: tf.Tensor,
    decay: tf.Tensor,
    beta_1: float,
    beta_2: float,
    epsilon: float,
    kept: Kept,
) -> Any:
    """One step of Adam whose second moment is one number for all rows.

    It is the mean square of the elements of rows whose gradient is finite and
    not 0, averaged over steps: their sum, weighted, and the sum of the weights
    are `kept.second_moment`. Gradients are divided by its root before the first
    moment, which is kept times the learning rate. A step without such rows does
    not count.

    Args:
        learning_rate: scalar.

    Source: Ginsburg et al., 2019 (NovoGrad), without its norm of layers.
    """
    wide = tf.float64 if grads.dtype == tf.float64 else tf.float32
    ids, sums = sum_duplicate_rows(ids, tf.cast(grads, wide))
    squares = tf.reduce_mean(tf.square(sums), tf.range(1, tf.rank(sums)))
    counts = (squares > 0) & (squares < wide.max)
    square = tf.reduce_sum(tf.where(counts, squares, tf.zeros([], wide)))
    square /= tf.cast(tf.math.count_nonzero(counts), wide)  # NaN of none
    old = tf.raw_ops.ReadVariableOp(resource=kept.second_moment, dtype=wide)
    seen = tf.stack([square, tf.ones([], wide)])[tf.newaxis]
    new = old + (1 - beta_2) * (seen - old)
    new = tf.where(tf.math.is_finite(square), new, old)
    tf.raw_ops.AssignVariableOp(resource=kept.second_moment, value=new)
    root = tf.sqrt(tf.math.divide_no_nan(new[0, 0], new[0, 1]))
    rate = tf.cast(learning_rate, wide) * (1 - beta_1)
    rate = tf.math.divide_no_nan(rate, root + epsilon)
    return sgd_update(
        variable,
        momentum_slot,
        history,
        ids,
        tf.cast(sums, grads.dtype),
        learning_rate=tf.cast(rate, tf.float64),
        decay=decay,
        momentum=beta_1,
        nesterov=False,
        kept=kept,
    )


def adam_catch_up(
    variable: tf.Tensor,
    slots: Sequence[tf.Tensor],
    history: History,
    ids: tf.Tensor,
    *,
    kept: Kept,
    every_row: bool,
    terms: Array,
    each_element: bool,
    beta_1: float,
    beta_2: float,
    epsilon: float,
) -> Any:
    """Applies the steps that rows skipped.

    Args:
        terms, each_element: `skipped_steps.adam_terms`.
    """
    return ops.tfxclass_lazy_adam_catch_up(
        **_rows(variable, slots, history, ids),
        **_attributes(kept),
        every_row=every_row,
        terms=terms,
        each_element=each_element,
        beta_1=tf.constant(beta_1, tf.float64),
        beta_2=tf.constant(beta_2, tf.float64),
        epsilon=epsilon,
    )


def sum_duplicate_rows(
    ids: tf.Tensor, grads: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums the rows that belong to the same id.

    Args:
        ids: int64 [n], not negative.
        grads: float32 or, on the CPU, float64 [n, ...].

    Returns:
        The distinct ids, rising, int64 [u], and the sums, [u, ...].
    """
    return ops.tfxclass_sum_duplicate_rows(ids=ids, grads=grads)


def _rows(variable, slots, history, ids):
    handles, capacity = _NO_HISTORY if history is None else history
    return {
        "variable": variable,
        "slots": slots,
        "history": handles,
        "capacity": capacity,
        "ids": ids,
    }


def _op(rule, grads):
    """The op of an update."""
    kind = "class" if isinstance(grads, ClassGradient) else "lazy"
    return getattr(ops, f"tfxclass_{kind}_{rule}_update")


def _update(kept, grads):
    if isinstance(grads, ClassGradient):
        step = tf.cast(kept.step, tf.int64)
        norm = {"epsilon_of_norm": grads.epsilon}
        return {**_attributes(kept), **grads.inputs, **norm, "step": step}
    grads = tf.convert_to_tensor(grads)
    kept = Kept(grads.dtype, grads.dtype) if kept is None else kept
    step = tf.cast(kept.step, tf.int64)
    attributes = _attributes(kept)
    del attributes["S"]  # the gradients tell
    return {**attributes, "grads": grads, "step": step}


def _attributes(kept):
    return {
        "T": kept.dtype,
        "S": kept.slot_dtype,
        "compact": kept.compact,
        "seed": kept.seed,
    }


def _present(handle):
    return [] if handle is None else [handle]
