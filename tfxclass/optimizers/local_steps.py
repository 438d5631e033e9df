"""Steps that each replica takes by itself, and the averages between them."""

import functools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfxclass.keras_internals import merge_call
from tfxclass.keras_internals import tf_variable
from tfxclass.optimizers.replica_mean import assign_means
from tfxclass.optimizers.row_gradients import times
from tfxclass.rows import class_matrix
from tfxclass.types import Gradient
from tfxclass.types import Store
from tfxclass.types import Variable


class LocalSteps:
    """Mixin in front of a `RowOptimizer`.

    Subclasses give `_is_average(step)`: whether models are averaged after a
    step, a bool tensor; and `_always_averages`: whether after every one.
    """

    def _on_build(self, variables):
        if self._is_replicated and tf.inside_function():
            raise ValueError(
                f"`{type(self).__name__}` must be built before a step is "
                "traced. Fix: in `strategy.scope()`, "
                "`model.optimizer.build(model.trainable_variables)`; `fit` "
                "does it by itself. Received: a `tf.function`"
            )
        super()._on_build(variables)
        if self._is_replicated and not self._always_averages:
            for variable in variables:
                class_matrix.of(variable).set_local_optimizer(self)
        self._touched = [self._add_touched(v) for v in variables]
        # Indices of variables that are known to get row gradients.
        self._row_indices = set()
        # `iterations` at the last average by `average()`.
        self._averaged_at = 0

    def _add_touched(self, variable):
        """Rows that a replica moved since the last average, bool [num_rows].

        None are when a model is saved, so they are no state of the optimizer,
        and a file goes with any number of replicas. A row of a vector is no
        smaller than its mark: vectors are averaged whole.
        """
        if not self._is_replicated or len(variable.shape) < 2:
            return None
        extended = self._strategy.extended
        with extended.colocate_vars_with(tf_variable(variable)):
            marks = tf.zeros(variable.shape[:1], tf.bool)
            return tf.Variable(marks, trainable=False)

    def _check_shards(self, variable):
        raise ValueError(
            f"`{type(self).__name__}` averages the rows of all replicas, but "
            f"{variable.path!r} is in shards: row i is another class on each. "
            "Use `tfxclass.optimizers.LazySGD` for a ShardedSoftmax, or train "
            "a head that is the same on all replicas, e.g. a SampledSoftmax"
        )

    def apply(
        self,
        grads: Sequence[Gradient],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        self._check_strategy()
        return super().apply(grads, trainable_variables)

    def _check_strategy(self):
        strategy = tf.distribute.get_strategy()
        if strategy is not self._strategy:
            raise ValueError(
                f"`{type(self).__name__}` must be made in the "
                "`strategy.scope()` that the model is trained in. Received: "
                "one made under "
                f"{type(self._strategy).__name__}, in a step "
                f"under {type(strategy).__name__}"
            )

    def _on_apply(self, grads, variables):
        # Keras divides the loss by their number, for a sum of gradients.
        num_replicas = self._strategy.num_replicas_in_sync
        grads = [times(gradient, num_replicas) for gradient in grads]
        super()._on_apply(grads, variables)
        if self._is_replicated:
            self._find_row_variables(grads, variables)
            merge_call(self._end_step, self._strategy)

    def _on_all_reduce(self, pairs):
        """Each replica keeps its own gradient."""
        return pairs

    def _find_row_variables(self, grads, variables):
        for gradient, variable in zip(grads, variables):
            index = self._index_of(variable)
            is_rows = isinstance(gradient, tf.IndexedSlices)
            if is_rows and self._touched[index] is not None:
                self._row_indices.add(index)

    def update_step(
        self, gradient: Gradient, variable: Variable, learning_rate: Any
    ) -> None:
        index = self._index_of(variable)
        touched = self._touched[index]
        if touched is not None:
            if isinstance(gradient, tf.IndexedSlices):
                marks = tf.ones_like(gradient.indices, dtype=tf.bool)
                marks = tf.IndexedSlices(marks, gradient.indices)
                touched.scatter_update(marks)
            else:
                touched.assign(tf.ones(touched.shape, tf.bool))
        super().update_step(gradient, variable, learning_rate)

    def _end_step(self, strategy):
        tf.cond(
            self._is_average(self.iterations),
            lambda: self._average(strategy, sorted(self._row_indices)),
            lambda: None,
        )

    def _average(self, strategy, row_indices):
        whole, rows, tables = [], [], []
        for index, variable in enumerate(self._built_for):
            group = [variable, *self._slots(index)]
            group = [tf_variable(one) for one in group]
            if index in row_indices:
                rows.append((self._touched[index], group))
                tables.append(variable)
            else:
                whole += group
        moved = assign_means(strategy, whole, rows)
        for variable, ids in zip(tables, moved):
            class_matrix.of(variable).notify(ids)

    def average(self) -> None:
        """Replaces each replica's model and momentum by their means.

        Call it outside of `strategy.run`, on every worker, before anything
        reads the model between two averages. Otherwise it does nothing.
        """
        if not self._replicas_differ():
            return
        strategy = self._strategy
        with strategy.scope():
            self._averaging(strategy, tuple(sorted(self._row_indices)))
        self._averaged_at = self._num_steps()

    @functools.cached_property
    def _averaging(self):
        # One graph, but where other variables turn out to get row gradients.
        return tf.function(self._average, autograph=False)

    def _replicas_differ(self):
        if not (self.built and self._is_replicated):
            return False
        step = self._num_steps()
        if step in (0, self._averaged_at):
            return False
        return not bool(self._is_average(step - 1))

    def _num_steps(self):
        return int(self.iterations.numpy())

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        # Keras' hook at the end of `fit`.
        super().finalize_variable_values(var_list)
        self.average()

    def save_own_variables(self, store: Store) -> None:
        if self._replicas_differ():
            raise ValueError(
                "The model cannot be saved: its replicas differ, and only the "
                "first one's weights would be. Fix: put `tfxclass.optimizers."
                "AverageReplicas()` first in the callbacks of `fit`, and save "
                "at the end of an epoch or after a multiple of `interval` "
                "steps; in a loop of your own, call `optimizer.average()` "
                f"before. Received: iterations={self._num_steps()}"
            )
        super().save_own_variables(store)

    def load_own_variables(self, store: Store) -> None:
        super().load_own_variables(store)
        self._averaged_at = self._num_steps()
