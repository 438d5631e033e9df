"""Gradient accumulation that costs only the rows with a gradient."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfxclass.keras_internals import num_applied
from tfxclass.keras_internals import tf_variable
from tfxclass.ops import row_update
from tfxclass.types import Gradient
from tfxclass.types import Variable

_ROW_DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16)


class GradientSums:
    """Keras' gradient accumulators, and the ids of the rows in each.

    Each accumulator is as large as its variable. Only the rows that had a
    gradient since the last update are read, applied and cleared.

    Args:
        optimizer: a built `RowOptimizer` on one replica.
        variables: the variables it was built for.
    """

    def __init__(self, optimizer: Any, variables: Sequence[Variable]) -> None:
        self._optimizer = optimizer
        self._steps = optimizer.gradient_accumulation_steps
        self._ids = [self._add_ids(variable) for variable in variables]
        # Indices of variables that get row gradients.
        self._with_rows: set[int] = set()

    def _add_ids(self, variable):
        """Rows whose sums are not 0, int64 of any length."""
        is_replaced = getattr(variable, "overwrite_with_gradient", False)
        dtype = tf.as_dtype(variable.dtype)
        if not len(variable.shape) or dtype not in _ROW_DTYPES or is_replaced:
            return None
        ids = tf.Variable(
            tf.zeros([0], tf.int64), trainable=False, shape=[None]
        )
        self._optimizer._track(ids)
        return ids

    def is_last(self) -> tf.Tensor:
        """Whether this step applies the sums, a bool scalar."""
        return (num_applied(self._optimizer) + 1) % self._steps == 0

    def add(
        self, grads: Sequence[Gradient], variables: Sequence[Variable]
    ) -> None:
        """Adds gradients to the sums of their variables."""
        for gradient, variable in zip(grads, variables):
            index, total = self._total(variable)
            ids = self._ids[index]
            if isinstance(gradient, tf.IndexedSlices):
                self._with_rows.add(index)
                new = tf.cast(gradient.indices, tf.int64)
                values = tf.cast(gradient.values, total.dtype)
                row_update.add_rows(total.handle, new, values)
                ids.assign(_of_any_length(tf.concat([ids, new], axis=0)))
            else:
                total.assign_add(tf.cast(gradient, total.dtype))
                if ids is not None:
                    every = tf.range(variable.shape[0], dtype=tf.int64)
                    ids.assign(_of_any_length(every))

    def means(
        self, grads: Sequence[Gradient], variables: Sequence[Variable]
    ) -> list[Gradient]:
        """Mean gradients, of the same kind as `grads`."""
        return [self._mean(g, v) for g, v in zip(grads, variables)]

    def _mean(self, gradient, variable):
        index, total = self._total(variable)
        if not isinstance(gradient, tf.IndexedSlices):
            return total / self._steps
        ids = tf.unique(self._ids[index])[0]
        # A gather: a row update would have to copy a tensor of all rows.
        rows = tf.gather(total, ids)
        return tf.IndexedSlices(rows / self._steps, ids, tf.shape(total))

    def _total(self, variable):
        index = self._optimizer._index_of(variable)
        return index, tf_variable(self._optimizer._gradient_sums[index])

    def clear(self) -> None:
        """Clears all sums, also of variables without a gradient."""
        for index, ids in enumerate(self._ids):
            total = self._optimizer._gradient_sums[index]
            if total is None:
                continue
            total = tf_variable(total)
            if index in self._with_rows:
                row_update.clear_rows(total, ids)
            else:
                total.assign(tf.zeros_like(total))
            if ids is not None:
                ids.assign(_of_any_length(tf.zeros([0], tf.int64)))


def _of_any_length(ids):
    """Hides the length of `ids`, int64 `[n]`, from TensorFlow's graph rewrites.

    They would assume the variable to have the length of the assigned value in
    the whole step, also where it was longer.
    """
    return tf.raw_ops.PlaceholderWithDefault(input=ids, shape=[None])
