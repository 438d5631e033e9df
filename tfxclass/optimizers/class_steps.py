"""Updates of a whole class matrix whose gradient comes class by class.

`rows/class_gradients.py` tells which gradients of the exact loss can be
computed a few classes at a time. Then each class vector is updated as soon as
its gradient is there, and the gradient of the matrix is never stored.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfxclass.rows import class_gradients
from tfxclass.types import Gradient
from tfxclass.types import Variable


def apply(
    optimizer: Any,
    grads: Sequence[Gradient],
    variables: Sequence[Variable],
) -> tuple[list[Gradient], list[Variable]]:
    """Updates the variables whose gradients come class by class.

    Args:
        optimizer: `RowOptimizer`.
        grads: list of gradients.
        variables: list of their variables.

    Returns:
        `(grads, variables)` of all others.
    """
    others, of_bias = [], {}
    for gradient, variable in zip(grads, variables):
        promise = None
        if _can_step(optimizer, variable):
            promise = class_gradients.take(gradient, variable)
        if promise is None:
            others.append((gradient, variable))
            continue
        with tf.control_dependencies(promise.after):
            found = optimizer._update_rows(
                variable,
                tf.zeros([0], tf.int64),
                promise.gradient,
                optimizer.learning_rate,
            )
        if promise.of_bias is not None:
            of_bias[id(promise.of_bias)] = found
    # The pass over the classes has found the gradient of their biases.
    found = [of_bias.get(id(gradient), gradient) for gradient, _ in others]
    return found, [variable for _, variable in others]


def _can_step(optimizer, variable):
    if optimizer._is_replicated or not optimizer.can_step_by_class:
        return False
    index = optimizer._index_of(variable)
    built_for = optimizer._built_for[index]
    if getattr(built_for, "constraint", None) is not None:
        return False
    return optimizer._storage(index).slot_dtype == tf.float32
