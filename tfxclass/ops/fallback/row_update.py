"""Fallbacks of the optimizers' steps on touched rows.

After a step TensorFlow copies the matrix at each full read of it. Rows and
optimizer state have one dtype: others are refused when an optimizer is built.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def sum_duplicate_rows(
    ids: tf.Tensor, grads: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Distinct ids, rising, and the sums of their rows in order."""
    grads = tf.stop_gradient(grads)
    order = tf.argsort(ids, stable=True)
    distinct, place = tf.unique(tf.gather(ids, order))
    return distinct, tf.math.segment_sum(tf.gather(grads, order), place)


def lazy_sgd_update(
    learning_rate: Any, momentum: Any, nesterov: bool, **given: Any
) -> tf.Operation:
    """See `tfxclass.ops.row_update.update`."""

    def rule(number, decay, grads, w, *velocity):
        step = grads * number(learning_rate)
        if not velocity:
            return [w - w * decay - step]
        rate = number(momentum)
        v = velocity[0] * rate - step
        move = v * rate - step if nesterov else v
        return [w + (move - w * decay), v]

    return _updated(rule, **given)


def lazy_adagrad_update(
    learning_rate: Any, offset: Any, **given: Any
) -> tf.Operation:
    """See `tfxclass.ops.row_update.update`."""

    def rule(number, decay, grads, w, total):
        total += grads * grads
        step = number(learning_rate) * grads / tf.sqrt(total + number(offset))
        return [w + (-w * decay - step), total]

    return _updated(rule, **given)


def lazy_adam_update(
    alpha: Any, beta_1: Any, beta_2: Any, epsilon: Any, **given: Any
) -> tf.Operation:
    """See `tfxclass.ops.row_update.update`."""

    def rule(number, decay, grads, w, m, v, *largest):
        m += (grads - m) * number(1 - beta_1)
        v += (grads * grads - v) * number(1 - beta_2)
        largest = [tf.maximum(v, x) for x in largest]
        divisor = largest[0] if largest else v
        step = m * number(alpha) / (tf.sqrt(divisor) + number(epsilon))
        return [w + (-w * decay - step), m, v, *largest]

    return _updated(rule, **given)


def _updated(
    rule: Callable[..., list[tf.Tensor]],
    variable: tf.Tensor,
    slots: Sequence[tf.Tensor],
    ids: tf.Tensor,
    grads: tf.Tensor,
    decay: Any,
    T: tf.DType,
    **options: Any,
) -> tf.Operation:
    """Moves rows and their optimizer state, all of dtype T, by `rule`.

    The rule is a function of a conversion of numbers, the decay, the gradients,
    and the old rows and state; it returns the new ones.
    """
    wide = tf.float64 if tf.float64 == T else tf.float32
    ids, grads = sum_duplicate_rows(ids, tf.cast(grads, wide))
    variables = [variable, *slots]
    old = [
        tf.cast(
            tf.raw_ops.ResourceGather(resource=x, indices=ids, dtype=T), wide
        )
        for x in variables
    ]

    def number(value):
        return tf.cast(tf.convert_to_tensor(value, tf.float64), wide)

    new = rule(number, number(decay), grads, *old)
    written = [
        tf.raw_ops.ResourceScatterUpdate(
            resource=x, indices=ids, updates=tf.cast(values, T)
        )
        for x, values in zip(variables, new, strict=True)
    ]
    return tf.group(*[x for x in written if x is not None])
