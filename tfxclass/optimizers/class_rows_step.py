"""Steps of a whole kernel, whose gradient comes class by class."""

from collections.abc import Callable
from collections.abc import Sequence

import keras
import tensorflow as tf

from tfxclass.optimizers.caught_up_rows import CaughtUpRows
from tfxclass.rows import class_gradients
from tfxclass.types import Gradient
from tfxclass.types import Variable


def can_step_by_class(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether an optimizer has nothing that needs the whole gradient."""
    return isinstance(optimizer, ClassRowsStep) and not (
        _has_own_step(type(optimizer))
        or optimizer.catch_up
        or optimizer.use_ema
        or optimizer.gradient_accumulation_steps
        or optimizer.clipnorm
        or optimizer.global_clipnorm
        or optimizer.clipvalue
        or optimizer.loss_scale_factor
        or optimizer.l2
        # The mean square of the whole gradient comes first.
        or getattr(optimizer, "shared_second_moment", False)
    )


def _has_own_step(kind):
    return kind.update_step is not kind.lazy_update_step


class ClassRowsStep(CaughtUpRows):
    """Mixin: takes what `class_gradients` promises, where it can.

    With what needs the whole gradient at once (clipping, accumulation) or all
    rows before or after the step (averages, constraints, history), and under
    several replicas, the gradient is a dense one, as for Keras' optimizers. So
    it is for a subclass with an `update_step` of its own, which must see it.
    """

    #: The `update_step` that steps by class stand for.
    lazy_update_step: Callable[..., None]

    def _step_by_class(
        self, grads: Sequence[Gradient], variables: Sequence[Variable]
    ) -> tuple[list[Gradient], list[Variable]]:
        """Steps of the variables whose gradients are promised.

        Returns:
            `(grads, variables)` of all others.
        """
        others = []
        of_bias = {}
        for gradient, variable in zip(grads, variables):
            promise = None
            if self._can_step_by_class(variable):
                promise = class_gradients.take(gradient, variable)
            if promise is None:
                others.append((gradient, variable))
                continue
            found = self._step_of_classes(promise, variable)
            if promise.of_bias is not None:
                of_bias[id(promise.of_bias)] = found
        # The pass over the classes has found the gradient of their biases.
        found = [of_bias.get(id(gradient), gradient) for gradient, _ in others]
        return found, [variable for _, variable in others]

    def _can_step_by_class(self, variable):
        if self._is_replicated or not can_step_by_class(self):
            return False
        index = self._index_of(variable)
        if getattr(self._built_for[index], "constraint", None) is not None:
            return False
        return self._kept_as(index).slot_dtype == tf.float32

    def _step_of_classes(self, promise, variable):
        """Moves all rows; the gradient of the bias."""
        index = self._index_of(variable)
        rate = self.learning_rate
        with tf.control_dependencies(promise.after):
            return self._update_op(
                variable.handle,
                self._slot_handles(index),
                None,
                tf.zeros([0], tf.int64),
                promise.gradient,
                learning_rate=rate,
                kept=self._kept_as(index),
                decay=self._decay(variable, rate),
            )
