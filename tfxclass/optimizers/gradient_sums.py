"""Gradient accumulation in which rows without a gradient do not move."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfxclass.keras_internals import num_applied
from tfxclass.keras_internals import tf_variable
from tfxclass.ops import row_update
from tfxclass.types import Gradient
from tfxclass.types import Variable


class GradientSums:
    """Keras' gradient accumulators, of which the rows that are not 0 count.

    Each accumulator is as large as its variable. An update of a variable with
    row gradients applies and clears the rows whose sum is not 0.

    Args:
        optimizer: a built `RowOptimizer` on one replica.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._steps = optimizer.gradient_accumulation_steps

    def is_last(self) -> tf.Tensor:
        """Whether this step applies the sums, a bool scalar."""
        return (num_applied(self._optimizer) + 1) % self._steps == 0

    def add(
        self, grads: Sequence[Gradient], variables: Sequence[Variable]
    ) -> None:
        """Adds gradients to the sums of their variables."""
        for gradient, variable in zip(grads, variables):
            total = self._total(variable)
            if isinstance(gradient, tf.IndexedSlices):
                ids = tf.cast(gradient.indices, tf.int64)
                values = tf.cast(gradient.values, total.dtype)
                row_update.add_rows(total.handle, ids, values)
            else:
                total.assign_add(tf.cast(gradient, total.dtype))

    def means(
        self, grads: Sequence[Gradient], variables: Sequence[Variable]
    ) -> list[Gradient]:
        """Mean gradients, of the same kind as `grads`."""
        return [self._mean(g, v) for g, v in zip(grads, variables)]

    def _mean(self, gradient, variable):
        total = tf.convert_to_tensor(self._total(variable))
        if not isinstance(gradient, tf.IndexedSlices):
            return total / self._steps
        is_moved = tf.reduce_any(total != 0, tf.range(1, tf.rank(total)))
        ids = tf.where(is_moved)[:, 0]
        rows = tf.gather(total, ids) / self._steps
        return tf.IndexedSlices(rows, ids, tf.shape(total))

    def _total(self, variable):
        index = self._optimizer._index_of(variable)
        return tf_variable(self._optimizer._gradient_sums[index])

    def clear(
        self, means: Sequence[Gradient], variables: Sequence[Variable]
    ) -> None:
        """Clears all sums, also of variables without a gradient."""
        of_rows = {
            self._optimizer._index_of(variable): mean.indices
            for mean, variable in zip(means, variables)
            if isinstance(mean, tf.IndexedSlices)
        }
        for index, total in enumerate(self._optimizer._gradient_sums):
            if index in of_rows:
                row_update.clear_rows(tf_variable(total), of_rows[index])
            elif total is not None:
                tf_variable(total).assign(tf.zeros_like(total))
