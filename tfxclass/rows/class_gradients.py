"""How an optimizer learns that a gradient can be had class by class.

The gradient of a kernel by the exact loss is a dense tensor for whoever asks,
and has an attribute that says what it is computed from, as a head's output has
its forward pass (`core/forward.py`). An optimizer that finds it moves the
rows chunk by chunk; nobody reads the tensor then, and TensorFlow prunes it from
the step. Whatever is made of the gradient (a sum, a clipped or scaled copy) is
another tensor, without the attribute, and dense.

The attribute is only there while a `tf.function` is traced, and counts only
while nothing has written the kernel since it was read: the gradient is that of
the rows as they were.
"""

import dataclasses
from typing import Any

import keras
import tensorflow as tf

from tfxclass.keras_internals import tf_variable
from tfxclass.ops.exact_softmax import ClassGradient
from tfxclass.types import Gradient
from tfxclass.types import Variable

_PROMISE = "_tfxclass_class_gradient"
# Ops that leave the variable as it is.
_READERS = ("ReadVariableOp", "ResourceGather", "VariableShape")


class Watch:
    """The ops that have used a variable so far, in the graph being traced."""

    def __init__(self, variable: Variable) -> None:
        self._graph = _current_graph()
        self._variable = tf_variable(variable)
        self._known = {op.name for op in self._users()}

    def _users(self):
        handle = self._graph.capture(self._variable.handle)
        return handle.consumers()

    def is_as_it_was(self, variable: Variable) -> bool:
        """Whether this is the variable, in this graph, and not written."""
        if variable.handle is not self._variable.handle:
            return False
        if self._graph is not _current_graph():
            return False
        new = [op for op in self._users() if op.name not in self._known]
        return all(op.type in _READERS for op in new)


@dataclasses.dataclass(eq=False)
class Promise:
    """What the gradient of a kernel is, and when its rows may be written.

    Attributes:
        gradient: `ClassGradient`.
        watch: `Watch` of the kernel.
        of_bias: the tensor that is the gradient of the bias, or None.
        after: list of tensors: once these are there, nothing reads the kernel.
        is_taken: bool.
    """

    gradient: ClassGradient
    watch: Watch
    of_bias: tf.Tensor | None
    after: list[tf.Tensor]
    is_taken: bool = False


def watch(variable: Any) -> Watch | None:
    """A `Watch`, or None where no `Promise` can be kept."""
    is_variable = isinstance(variable, (keras.Variable, tf.Variable))
    if not is_variable or tf.distribute.has_strategy():
        return None
    if tf.executing_eagerly() or not hasattr(_current_graph(), "capture"):
        return None
    return Watch(variable)


def attach(gradient: tf.Tensor, promise: Promise) -> None:
    """Makes `take` find the promise with the gradient, a tensor."""
    setattr(gradient, _PROMISE, promise)


def take(gradient: Gradient, variable: tf.Variable) -> Promise | None:
    """The `Promise` of a gradient, once; None where there is none to keep."""
    promise = getattr(gradient, _PROMISE, None)
    if promise is None or promise.is_taken:
        return None
    if not promise.watch.is_as_it_was(variable):
        return None
    promise.is_taken = True
    return promise


def _current_graph():
    return tf.compat.v1.get_default_graph()
