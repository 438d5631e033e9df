"""Gradients of the exact loss that an optimizer applies class by class.

The `ClassMatrix` knows what the dense gradient is computed from. Where an
optimizer updates a few class vectors at a time, nobody reads the tensor, and
TensorFlow prunes it. A clipped or scaled copy is another tensor.
"""

import dataclasses
import weakref
from typing import Any

import keras
import tensorflow as tf

from tfxclass.keras_internals import tf_variable
from tfxclass.ops.exact_softmax import ClassGradient
from tfxclass.rows import class_matrix
from tfxclass.rows.class_matrix import ClassMatrix
from tfxclass.types import Gradient
from tfxclass.types import Variable

# Ops that leave the variable as it is.
_READERS = ("ReadVariableOp", "ResourceGather", "VariableShape")


class WriteGuard:
    """The ops that have used a variable so far, in the graph being traced."""

    def __init__(self, variable: Variable, matrix: ClassMatrix) -> None:
        self.matrix = matrix
        self._graph = tf.compat.v1.get_default_graph()
        self._variable = tf_variable(variable)
        self._known = {op.name for op in self._users()}

    def _users(self):
        return self._graph.capture(self._variable.handle).consumers()

    def is_as_it_was(self, variable: Variable) -> bool:
        """Whether this is the variable, in this graph, and not written."""
        if (
            variable.handle is not self._variable.handle
            or self._graph is not tf.compat.v1.get_default_graph()
        ):
            return False
        new = [op for op in self._users() if op.name not in self._known]
        return all(op.type in _READERS for op in new)


@dataclasses.dataclass(eq=False)
class DeferredGradient:
    """A gradient of a kernel, and when its rows may be written.

    The gradient function of the loss keeps it, and goes with its graph; the
    `ClassMatrix` has a weak reference. `tensor` and `of_bias` are gradients of
    the kernel, dense, and of a bias. Once `after` is there, nothing reads the
    kernel.
    """

    tensor: tf.Tensor
    gradient: ClassGradient
    guard: WriteGuard
    of_bias: tf.Tensor | None
    after: list[tf.Tensor]
    is_taken: bool = False

    def __post_init__(self) -> None:
        self.guard.matrix.deferred_gradient = weakref.ref(self)


def guard(variable: Any) -> WriteGuard | None:
    """A `WriteGuard`, or None where no gradient can be deferred."""
    graph = tf.compat.v1.get_default_graph()
    if (
        not isinstance(variable, (keras.Variable, tf.Variable))
        or tf.distribute.has_strategy()
        or tf.executing_eagerly()
        or not hasattr(graph, "capture")
    ):
        return None
    matrix = class_matrix.of(variable)
    return None if matrix is None else WriteGuard(variable, matrix)


def take(
    gradient: Gradient, variable: tf.Variable, matrix: ClassMatrix
) -> DeferredGradient | None:
    """The `DeferredGradient` of a gradient, once; or None."""
    deferred = matrix.deferred_gradient()
    if (
        deferred is None
        or deferred.is_taken
        or deferred.tensor is not gradient
        or not deferred.guard.is_as_it_was(variable)
    ):
        return None
    deferred.is_taken = True
    return deferred
