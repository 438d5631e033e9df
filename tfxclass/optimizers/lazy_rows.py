"""What the lazy optimizers share: row gradients never become dense."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.optimizers import row_gradients
from tfxclass.optimizers.caught_up_rows import CaughtUpRows
from tfxclass.optimizers.caught_up_rows import home
from tfxclass.optimizers.variable_groups import path_of
from tfxclass.types import Gradient
from tfxclass.types import Variable


class LazyRows(CaughtUpRows):
    """Mixin in front of a Keras optimizer.

    Dense gradients go to Keras. A `tf.IndexedSlices` gradient moves only the
    rows it names, and their slots; weight decay and clipping keep to these
    rows too. Subclasses give `_slots`, `_update_op` and `_catch_up_op`.
    """

    def add_variable_from_reference(
        self, reference_variable: Variable, **kwargs: Any
    ) -> keras.Variable:
        with home(reference_variable):
            return super().add_variable_from_reference(
                reference_variable, **kwargs
            )

    def _decay(self, variable, learning_rate):
        """Learning rate times weight decay, float64 scalar."""
        if not self._decays(variable):
            return tf.zeros([], tf.float64)
        return tf.cast(learning_rate, tf.float64) * self.weight_decay

    def apply(
        self,
        grads: Sequence[Gradient],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        grads = [row_gradients.divisible(gradient) for gradient in grads]
        return super().apply(grads, trainable_variables)

    def _on_apply(self, grads, variables):
        rows = [isinstance(g, tf.IndexedSlices) for g in grads]
        for is_rows, variable in zip(rows, variables):
            if is_rows:
                self._check_lazy(variable)
        dense = [v for r, v in zip(rows, variables) if not r]
        if self.catch_up:
            for gradient, variable in zip(grads, variables):
                if not isinstance(gradient, tf.IndexedSlices):
                    # When the gradient is there, few still read the variable:
                    # an op that writes it would have to copy it.
                    with tf.control_dependencies([gradient]):
                        self._catch_up_all_replicas(variable)
        if not any(rows):
            super()._on_apply(grads, variables)
            return
        grads = self._on_clip(grads)
        # Row gradients bring their decay along, in the fused update.
        self._decay_all(dense)
        self._update_all(grads, variables)

    def _check_lazy(self, variable):
        """Refuses what would touch every row in every step."""
        problems = {
            "use_ema=True": self.use_ema,
            f"gradient_accumulation_steps={self.gradient_accumulation_steps}": (
                self.gradient_accumulation_steps
            ),
            "a constraint on the variable": variable.constraint,
        }
        for problem, is_present in problems.items():
            if is_present:
                raise ValueError(
                    f"{type(self).__name__} updates only the touched rows of "
                    "a variable; an average, accumulator or "
                    "constraint would cost all rows in every step. Received: "
                    f"{problem}, and a row gradient (tf.IndexedSlices) for "
                    f"'{path_of(variable)}' of shape {tuple(variable.shape)}. "
                    "Fix: leave it out, or use "
                    f"keras.optimizers.{type(self).__name__[4:]}."
                )

    def _on_clip(self, grads):
        """As Keras, on the sums of the rows: a norm counts each row once."""
        if not (self.clipnorm or self.global_clipnorm or self.clipvalue):
            return grads
        grads = list(map(row_gradients.summed_rows, grads))
        values = map(row_gradients.values_of, grads)
        clipped = super()._on_clip(list(values))
        return list(map(row_gradients.with_values, grads, clipped))

    def update_step(
        self, gradient: Gradient, variable: Variable, learning_rate: Any
    ) -> None:
        if isinstance(gradient, tf.IndexedSlices):
            self._row_step(gradient, variable, learning_rate)
        else:
            super().update_step(gradient, variable, learning_rate)

    def _row_step(self, gradient, variable, learning_rate):
        index = self._index_of(variable)
        ids = tf.cast(gradient.indices, tf.int64)
        if self.catch_up:
            # Most often done before the rows were read; then it costs little.
            # Not before the gather is done: what it reads would be copied.
            with tf.control_dependencies([gradient.values]):
                self._catch_up(variable, ids)
        self._update_op(
            variable.handle,
            self._slot_handles(index),
            self._history(index, variable),
            ids,
            tf.cast(gradient.values, variable.dtype),
            learning_rate=learning_rate,
            decay=self._decay(variable, learning_rate),
        )
