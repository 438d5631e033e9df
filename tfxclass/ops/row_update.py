"""Optimizer steps on the rows of a variable that a batch touched.

In all functions:
    variable, slots: handles (scalar resource tensors) of float32 variables of
        one shape [num_rows, ...].
    last_step: handle of an int64 variable [num_rows], the number of steps
        after which each row was last current, or None where rows are not
        caught up.
    ids: int64 [n] in [0, num_rows), repeated as they come.
    grads: float32 [n, ...]; those of one row are summed in order.
    step: int64 scalar, the number of steps done so far.
    decay: float32 scalar, learning rate times weight decay. The row loses
        this share of itself before the step.

The work is O(n), whatever num_rows is, and the result does not depend on the
number of threads. `tf.errors.InvalidArgumentError` for ids out of range,
shapes or types that do not fit, the same variable twice and uninitialised
variables; nothing is changed then.
"""

import tensorflow as tf

from tfxclass.ops.library import ops


def sgd_update(
    variable,
    momentum_slot,
    last_step,
    ids,
    grads,
    *,
    step,
    learning_rate,
    decay,
    momentum,
    nesterov,
):
    """One step of SGD; `momentum_slot` is None where there is no momentum.

    Source: `keras.optimizers.SGD.update_step`.
    """
    return ops.tfxclass_lazy_sgd_update(
        variable=variable,
        slots=_present(momentum_slot),
        last_step=_present(last_step),
        ids=ids,
        grads=grads,
        step=step,
        learning_rate=learning_rate,
        decay=decay,
        momentum=momentum,
        nesterov=nesterov,
    )


def sgd_catch_up(
    variable, momentum_slot, last_step, ids, *, step, decay, momentum, nesterov
):
    """Applies the steps that these rows skipped since `last_step`, exactly."""
    return ops.tfxclass_lazy_sgd_catch_up(
        variable=variable,
        slots=_present(momentum_slot),
        last_step=[last_step],
        ids=ids,
        step=step,
        decay=decay,
        momentum=momentum,
        nesterov=nesterov,
    )


def adagrad_update(
    variable,
    accumulator,
    last_step,
    ids,
    grads,
    *,
    step,
    learning_rate,
    decay,
    epsilon,
):
    """One step of Adagrad.

    Source: `keras.optimizers.Adagrad.update_step`.
    """
    return ops.tfxclass_lazy_adagrad_update(
        variable=variable,
        slots=[accumulator],
        last_step=_present(last_step),
        ids=ids,
        grads=grads,
        step=step,
        learning_rate=learning_rate,
        decay=decay,
        epsilon=epsilon,
    )


def adagrad_catch_up(
    variable, accumulator, last_step, ids, *, step, decay, epsilon
):
    """Applies the weight decay that these rows skipped since `last_step`."""
    return ops.tfxclass_lazy_adagrad_catch_up(
        variable=variable,
        slots=[accumulator],
        last_step=[last_step],
        ids=ids,
        step=step,
        decay=decay,
        epsilon=epsilon,
    )


def adam_update(
    variable,
    slots,
    last_step,
    ids,
    grads,
    *,
    step,
    alpha,
    decay,
    beta_1,
    beta_2,
    epsilon,
):
    """One step of Adam.

    Args:
        slots: momentum, velocity and, for AMSGrad, the largest velocity.
        alpha: float32 scalar, the learning rate with the bias correction.

    Source: `keras.optimizers.Adam.update_step`; Kingma and Ba, 2014, end of
    section 2.
    """
    return ops.tfxclass_lazy_adam_update(
        variable=variable,
        slots=slots,
        last_step=_present(last_step),
        ids=ids,
        grads=grads,
        step=step,
        alpha=alpha,
        decay=decay,
        beta_1=tf.constant(beta_1, tf.float64),
        beta_2=tf.constant(beta_2, tf.float64),
        epsilon=epsilon,
    )


def adam_catch_up(
    variable,
    slots,
    last_step,
    ids,
    *,
    step,
    learning_rate,
    decay,
    beta_1,
    beta_2,
    epsilon,
):
    """Applies the steps that these rows skipped since `last_step`.

    All of them with the given learning rate, each with the bias correction of
    its own step. custom_ops/core/row_catch_up.h has the closed form and the
    bound of its error, 1e-6 of the move for the default betas.
    """
    return ops.tfxclass_lazy_adam_catch_up(
        variable=variable,
        slots=slots,
        last_step=[last_step],
        ids=ids,
        step=step,
        learning_rate=learning_rate,
        decay=decay,
        beta_1=tf.constant(beta_1, tf.float64),
        beta_2=tf.constant(beta_2, tf.float64),
        epsilon=epsilon,
    )


def sum_duplicate_rows(ids, grads):
    """Sums the rows that belong to the same id.

    Args:
        ids: int64 [n], not negative.
        grads: float32 [n, ...].

    Returns:
        The distinct ids, rising, int64 [u], and the sums, float32 [u, ...].
    """
    return ops.tfxclass_sum_duplicate_rows(ids=ids, grads=grads)


def _present(handle):
    return [] if handle is None else [handle]
