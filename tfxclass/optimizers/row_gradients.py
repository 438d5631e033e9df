"""Gradients of some rows of a variable: `tf.IndexedSlices`."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfxclass.keras_internals import num_applied
from tfxclass.keras_internals import tf_variable
from tfxclass.ops import placement
from tfxclass.ops import row_update
from tfxclass.types import Gradient
from tfxclass.types import Scalar
from tfxclass.types import Variable


class _RowGradient(tf.IndexedSlices):
    """Survives Keras' `gradient / loss_scale_factor`."""

    def __truediv__(self, scale):
        return _RowGradient(self.values / scale, self.indices, self.dense_shape)


class AllRows(tf.IndexedSlices):
    """A dense gradient, as the rows of a variable in their order.

    Args:
        values: the gradient, `[rows, ...]`.
    """

    def __init__(self, values: tf.Tensor) -> None:
        ids = tf.range(tf.shape(values, tf.int64)[0])
        super().__init__(values, ids, tf.shape(values))


def divisible(gradient: Gradient) -> Gradient:
    """A gradient that Keras can divide by a number."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return _RowGradient(gradient.values, gradient.indices, gradient.dense_shape)


def times(gradient: Gradient, number: Scalar) -> Gradient:
    """A gradient times a number, rows or dense."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient * number
    return with_values(gradient, gradient.values * number)


def all_reduce(
    reduce: Callable[[list[Any]], Any],
    pairs: Sequence[tuple[Gradient, Variable]],
    is_whole: Sequence[bool],
) -> list[tuple[Gradient, Variable]]:
    """Reduces pairs of gradient and variable where `is_whole`.

    Others are in shards, and are left as they are.

    `AllRows` are reduced as dense gradients: replicas would put their rows one
    below the other.
    """
    given = [
        (g.values if isinstance(g, AllRows) else g, v)
        for (g, v), whole in zip(pairs, is_whole)
        if whole
    ]
    reduced = iter(reduce(given))
    found = []
    for (gradient, variable), whole in zip(pairs, is_whole):
        if whole:
            is_all = isinstance(gradient, AllRows)
            gradient, variable = next(reduced)
            gradient = AllRows(gradient) if is_all else gradient
        found.append((gradient, variable))
    return found


def summed_rows(gradient: Gradient) -> Gradient:
    """A gradient where each row is named once."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    values = tf.convert_to_tensor(gradient.values)
    if values.dtype != tf.float64:
        values = tf.cast(values, tf.float32)
    if isinstance(gradient, AllRows):
        return AllRows(values)
    ids, sums = row_update.sum_duplicate_rows(
        tf.cast(gradient.indices, tf.int64), values
    )
    return tf.IndexedSlices(sums, ids, gradient.dense_shape)


def clipped(
    clip: Callable[[list[Any]], list[Any]], grads: Sequence[Gradient]
) -> list[Gradient]:
    """Gradients clipped by `clip(values)`, with duplicate rows summed first."""
    grads = list(map(summed_rows, grads))
    values = clip(list(map(values_of, grads)))
    return list(map(with_values, grads, values))


def with_l2(gradient: Gradient, variable: Variable, l2: float) -> Gradient:
    """`gradient + l2 * variable`, each touched row once."""
    if not isinstance(gradient, tf.IndexedSlices):
        here = tf.cast(tf.convert_to_tensor(variable), gradient.dtype)
        return gradient + l2 * here
    gradient = summed_rows(gradient)
    rows = placement.gather(variable, gradient.indices)
    rows = tf.cast(rows, gradient.values.dtype)
    return with_values(gradient, gradient.values + l2 * rows)


def values_of(gradient: Gradient) -> tf.Tensor:
    """The numbers of a gradient, rows or dense."""
    if isinstance(gradient, tf.IndexedSlices):
        return gradient.values
    return gradient


def with_values(gradient: Gradient, values: tf.Tensor) -> Gradient:
    """A gradient of the same rows, or a dense one."""
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    if isinstance(gradient, AllRows):
        return AllRows(values)
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


class GradientSums:
    """Keras' accumulators of gradients, of which rows that are not 0 count.

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
