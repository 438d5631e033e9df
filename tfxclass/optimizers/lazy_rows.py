"""What the lazy optimizers share: row gradients never become dense."""

import functools
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.keras_internals import num_applied
from tfxclass.keras_internals import tf_variable
from tfxclass.ops import half_rows
from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.ops import row_update
from tfxclass.optimizers import row_constraints
from tfxclass.optimizers import row_gradients
from tfxclass.optimizers.averaged_rows import for_all_rows
from tfxclass.optimizers.caught_up_rows import home
from tfxclass.optimizers.class_rows_step import ClassRowsStep
from tfxclass.optimizers.coupled_l2 import CoupledL2
from tfxclass.optimizers.variable_groups import path_of
from tfxclass.types import Gradient
from tfxclass.types import Initializer
from tfxclass.types import Variable

# How Keras names the slots.
_FIRST_MOMENTS = ("momentum",)
_SECOND_MOMENTS = ("velocity", "velocity_hat", "accumulator")


class LazyRows(ClassRowsStep, CoupledL2):
    """Mixin in front of a Keras optimizer.

    Dense gradients go to Keras. A `tf.IndexedSlices` gradient moves only the
    rows it names, and their slots; weight decay and clipping keep to these
    rows too. Subclasses give `_slots`, `_update_op` and `_catch_up_op`.
    """

    #: Whether steps of bfloat16 rows are rounded stochastically.
    rounds_half_rows = True

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        if any(map(half_rows.are_half, variables)):
            library.require_compiled('Training of kernel_dtype="bfloat16"')
        super().build(variables)
        # Indices of variables whose row gradients were found to be fine.
        self._checked = set()

    def add_variable_from_reference(
        self,
        reference_variable: Variable,
        name: str | None = None,
        initializer: Initializer = "zeros",
    ) -> keras.Variable:
        kept = self._slot_kept(reference_variable, name)
        if kept is None:
            with home(reference_variable):
                return super().add_variable_from_reference(
                    reference_variable, name=name, initializer=initializer
                )
        shape, dtype = kept
        path = path_of(reference_variable).replace("/", "_")

        def add():
            return self.add_variable(
                shape, initializer, dtype=dtype, name=f"{path}_{name}"
            )

        with self._beside(reference_variable):
            return self._add_in_shards(reference_variable, add)

    def _slot_kept(self, variable, name):
        """Shape and type of a slot, where they are not the variable's."""
        is_compact = self._is_compact(variable)
        if is_compact and name in _FIRST_MOMENTS:
            return variable.shape, "bfloat16"
        if is_compact and name in _SECOND_MOMENTS:
            return variable.shape[:1], "float32"
        if half_rows.are_half(variable):
            return variable.shape, "float32"
        return None

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
        if trainable_variables is None and self.built:
            trainable_variables = self._built_for
        if trainable_variables is not None:
            variables = list(trainable_variables)
            if not self.built:
                self.build(variables)
            # Keras would constrain every row of a variable that has one.
            trainable_variables = [
                tf_variable(v)
                if isinstance(g, tf.IndexedSlices)
                and getattr(v, "constraint", None) is not None
                else v
                for g, v in zip(grads, variables)
            ]
        return super().apply(grads, trainable_variables)

    def _on_apply(self, grads, variables):
        grads, variables = self._step_by_class(grads, variables)
        if not variables:
            return
        grads = [self._as_rows(g, v) for g, v in zip(grads, variables)]
        rows = [isinstance(g, tf.IndexedSlices) for g in grads]
        for is_rows, variable in zip(rows, variables):
            if is_rows:
                self._check_rows(variable)
        has_state = self.use_ema or self.gradient_accumulation_steps
        if self._is_replicated or not has_state:
            self._step(grads, variables)
        else:
            self._step_with_state(grads, variables)
        self._constrain_all(grads, variables)

    def _as_rows(self, gradient, variable):
        """All rows of what Keras' own steps cannot move."""
        if isinstance(gradient, tf.IndexedSlices):
            return gradient
        variable = self._built_for[self._index_of(variable)]
        if not (
            half_rows.are_half(variable)
            or self._is_compact(variable)
            or self._is_shared(variable)
        ):
            return gradient
        ids = tf.range(variable.shape[0], dtype=tf.int64)
        return tf.IndexedSlices(gradient, ids, variable.shape)

    def _step_with_state(self, grads, variables):
        if self.use_ema:
            self._average_before(grads, variables)
        if self.gradient_accumulation_steps:
            tf.cond(
                self._is_last_of_sum(),
                lambda: self._step_with_means(grads, variables),
                lambda: self._sum_gradients(grads, variables),
            )
        else:
            self._row_steps(grads, variables)
        if self.use_ema:
            self._average_after(grads, variables)

    def _step(self, grads, variables):
        if any(isinstance(g, tf.IndexedSlices) for g in grads):
            self._row_steps(grads, variables)
        else:
            self._catch_up_dense(grads, variables)
            super()._on_apply(grads, variables)

    def _step_with_means(self, grads, variables):
        self._row_steps(self._mean_gradients(grads, variables), variables)
        self._clear_sums()

    def _row_steps(self, grads, variables):
        """As Keras, but that row gradients bring their decay along."""
        self._catch_up_dense(grads, variables)
        grads = self._on_clip(grads)
        is_dense = [not isinstance(g, tf.IndexedSlices) for g in grads]
        self._decay_all([v for d, v in zip(is_dense, variables) if d])
        self._update_all(grads, variables)

    def _catch_up_dense(self, grads, variables):
        """All rows of variables with a dense gradient."""
        if not self.catch_up:
            return
        for gradient, variable in zip(grads, variables):
            if not isinstance(gradient, tf.IndexedSlices):
                # When the gradient is there, few still read the variable: an
                # op that writes it would have to copy it.
                with tf.control_dependencies([gradient]):
                    self._catch_up_all_replicas(variable)

    def _check_rows(self, variable):
        """Refuses what cannot be right for rows, once a variable."""
        index = self._index_of(variable)
        if index in self._checked:
            return
        constraint = self._constraint(index)
        name = path_of(self._built_for[index])
        if constraint is not None:
            row_constraints.check(constraint, variable.shape, name)
        given = {
            "use_ema=True": self.use_ema,
            f"gradient_accumulation_steps={self.gradient_accumulation_steps}": (
                self.gradient_accumulation_steps
            ),
            "a constraint on the variable": constraint,
        }
        for option, is_given in given.items():
            if is_given:
                self._check_option(option, self._built_for[index])
        if constraint is not None and self.ema_overwrite_frequency:
            raise ValueError(
                "`ema_overwrite_frequency` replaces all rows by averages, "
                f"which the constraint on '{name}' does not see. Received: "
                f"ema_overwrite_frequency={self.ema_overwrite_frequency} and "
                "a row gradient (tf.IndexedSlices). Fix: leave out one of both."
            )
        self._checked.add(index)

    def _check_option(self, option, variable):
        if self._is_replicated:
            problem = "on one replica only"
            fix = "leave it out under a strategy of several"
        elif self.catch_up and option.startswith("a constraint"):
            problem = "without `catch_up=True`: skipped steps would need it too"
            fix = "leave out one of both"
        elif self.catch_up and option.startswith("use_ema"):
            problem = self._why_no_averages_of_skips(variable)
            fix = "leave out one of them"
            if problem is None:
                return
        else:
            return
        raise ValueError(
            f"{type(self).__name__} can take `{option}` with a row gradient "
            f"(tf.IndexedSlices) {problem}. Received: one for "
            f"'{path_of(variable)}'. Fix: {fix}, or use "
            f"keras.optimizers.{type(self).__name__[4:]}."
        )

    def _constraint(self, index):
        return getattr(self._built_for[index], "constraint", None)

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
        gradient = self._with_l2(gradient, variable)
        if isinstance(gradient, tf.IndexedSlices):
            self._row_step(gradient, variable, learning_rate)
        else:
            super().update_step(gradient, variable, learning_rate)

    lazy_update_step = update_step

    def _row_step(self, gradient, variable, learning_rate):
        index = self._index_of(variable)
        ids, kept = tf.cast(gradient.indices, tf.int64), self._kept_as(index)
        done = [gradient.values]
        if self.catch_up:
            # Most often done before the rows were read; then it costs little.
            # Not before the gather is done: what it reads would be copied.
            with tf.control_dependencies(done):
                self._catch_up(variable, ids)
        if self.use_ema and not self.catch_up:
            seen = row_gradients.distinct_ids(gradient)
            done.append(self._average_rows(index, seen, num_applied(self)))
        with tf.control_dependencies(done):
            self._record_number(index)
            self._update_op(
                variable.handle,
                self._slot_handles(index),
                self._history(index, variable),
                ids,
                tf.cast(gradient.values, kept.slot_dtype),
                learning_rate=learning_rate,
                kept=kept,
                decay=self._decay(variable, learning_rate),
            )
        if self._constraint(index) is not None:
            seen = row_gradients.distinct_ids(gradient)
            self._constrain(index, variable, seen)

    def _constrain(self, index, variable, ids):
        if self.use_ema:
            # Keras averages what was not yet constrained.
            self._average_rows(index, ids, num_applied(self) + 1)
        old = placement.gather(variable, ids)
        new = tf.cast(self._constraint(index)(old), old.dtype)
        # Not `compact`: no slots are moved.
        kept = self._kept_as(index)._replace(compact=False)
        row_update.add_rows(variable.handle, ids, new - old, kept)

    def _constrain_all(self, grads, variables):
        """What begins without its constraint has it after the first step."""
        for gradient, variable in zip(grads, variables):
            index = self._index_of(variable)
            is_rows = isinstance(gradient, tf.IndexedSlices)
            if is_rows and self._constraint(index) is not None:
                tf.cond(
                    num_applied(self) == 0,
                    functools.partial(self._constrain_rows, index, variable),
                    lambda: None,
                )

    def _constrain_rows(self, index, variable):
        for_all_rows(
            variable.shape[0],
            lambda ids: self._constrain(index, variable, ids),
        )
