"""What skipped steps do to the moving average of a row, besides to the row.

A row that rests at w_0 under `catch_up` goes on moving: step i, the a_i-th of
the optimizer, takes u_i off it. After n steps of the average,

    average_n = w_0 + keep (average_0 - w_0) - sum_i u_i (1 - keep_i),
    keep = momentum^n,  keep_i = momentum^(n - a_i),

since w_j = w_0 - u_1 - ... - u_j, and what step i moves has been averaged in
n - a_i steps. While the count that Keras looks at is 0 the average is the row
itself: keep_i is 0 then. The u_i are those of custom_ops/core/skipped_steps.h:
a sum over steps for each coefficient of a polynomial, whatever the row's width.
"""

import math
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxclass.keras_internals import num_applied
from tfxclass.keras_internals import tf_variable
from tfxclass.optimizers.caught_up_rows import CaughtUpRows
from tfxclass.optimizers.caught_up_rows import capacity_of
from tfxclass.types import Variable


class Skips(NamedTuple):
    """The steps that some rows skipped, the latest `capacity`.

    Args:
        last_step: int64 [n], the clock at which each row was current.
        clock: int64 scalar.
        rates: float32 [capacity], of each step; None where all are 1.
        numbers: int64 [capacity], how many steps the optimizer had made.
        capacity: int.
    """

    last_step: tf.Tensor
    clock: tf.Tensor
    rates: Any
    numbers: Any
    capacity: int


def sums_of(
    skips: Skips,
    terms: np.ndarray,
    momentum: float,
    steps: tf.Tensor,
    first: int,
    dtype: tf.DType,
) -> tf.Tensor:
    """Coefficients of `sum_i u_i (1 - keep_i)`, `[n, number of terms]`.

    Args:
        skips: `Skips`.
        terms: float32 `[p, k]`, of `skipped_steps`: what a skipped step adds
            to each coefficient.
        momentum: float, of the average.
        steps: int64 scalar, how many steps the average is to have seen.
        first: int, how many steps keep nothing of an average.
        dtype: of the result.
    """
    base = tf.maximum(skips.clock - 1, 0) // skips.capacity * skips.capacity
    begin = tf.maximum(skips.last_step - base, 0)
    age = skips.clock - base - begin
    ahead = tf.range(terms.shape[1], dtype=tf.int64)
    is_there = ahead < age[:, tf.newaxis]
    places = tf.where(is_there, begin[:, tf.newaxis] + ahead, 0)
    number = tf.gather(skips.numbers, places)
    kept = tf.pow(tf.cast(momentum, dtype), tf.cast(steps - number, dtype))
    weights = 1 - tf.where(number < first, tf.zeros([], dtype), kept)
    if skips.rates is not None:
        weights *= tf.cast(tf.gather(skips.rates, places), dtype)
    weights = tf.where(is_there, weights, tf.zeros([], dtype))
    return tf.matmul(weights, tf.cast(terms, dtype), transpose_b=True)


def polynomial(coefficients: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Of each row at each `x`, `[n, dim]`; coefficients `[n, p]`."""
    columns = tf.unstack(coefficients[:, :, tf.newaxis], axis=1)
    value = tf.zeros_like(x) + columns[-1]
    for column in columns[-2::-1]:
        value = value * x + column
    return value


class AveragedSkips(CaughtUpRows):
    """Mixin: what the steps of a history do to averages with `use_ema`.

    `numbers` says which of the optimizer's steps those of a history were.
    Subclasses give `_slots` and `_skipped_moves`.
    """

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        if self.use_ema and self.catch_up:
            self._numbers = self._add_all(
                variables, "numbers", _history_shape, "int64"
            )

    @property
    def _averages_skips(self):
        """Whether rows and averages are brought up to date together."""
        return self.use_ema and self.catch_up and not self._is_replicated

    def _record_number(self, index):
        """Which of the optimizer's steps the next one of a history is."""
        if self._averages_skips:
            capacity = capacity_of(self._built_for[index])
            place = tf_variable(self._clocks[index]) % capacity
            numbers = tf_variable(self._numbers[index])
            number = num_applied(self)[tf.newaxis]
            numbers.scatter_update(tf.IndexedSlices(number, place[tf.newaxis]))

    def _skipped_of_average(self, index, ids, steps, dtype):
        """What the steps that rows skipped take off their averages."""
        rates = self._rates[index]
        skips = Skips(
            tf.gather(tf_variable(self._last_steps[index]), ids),
            tf.convert_to_tensor(tf_variable(self._clocks[index])),
            None if rates is None else tf_variable(rates),
            tf_variable(self._numbers[index]),
            capacity_of(self._built_for[index]),
        )

        def sums(terms):
            steps_seen = tf.cast(steps, tf.int64)
            return sums_of(
                skips,
                terms,
                self.ema_momentum,
                steps_seen,
                self._steps_kept_by_none,
                dtype,
            )

        rows = [tf.gather(tf_variable(x), ids) for x in self._slots(index)]
        shape = self._built_for[index].shape
        matrices = [
            tf.reshape(
                tf.cast(x, dtype),
                [-1, 1] if len(x.shape) < len(shape) else [-1, _width(shape)],
            )
            for x in rows
        ]
        moves = self._skipped_moves(matrices, sums, skips.capacity)
        if moves is None:
            return tf.zeros([], dtype)
        return tf.reshape(moves, [-1, *shape[1:]])

    def _skipped_moves(self, slots, sums, capacity):
        """What skipped steps add up to, weighted as `sums` does.

        Args:
            slots: list of `[n, width]`, or `[n, 1]`.
            sums: function of `terms` of `skipped_steps`, float32 `[p, k]`,
                that returns coefficients `[n, p]`.
            capacity: int, of the history.

        Returns:
            `[n, width]`, or None where resting rows do not move.
        """
        raise NotImplementedError

    @property
    def _steps_kept_by_none(self):
        """How long the count that Keras looks at stands at 0, int."""
        return self.gradient_accumulation_steps or 1

    def _why_no_averages_of_skips(self, variable):
        """Why averages cannot follow what skipped steps do, str or None."""
        if self._decays(variable):
            return (
                "and `catch_up=True` without weight decay: skipped steps would "
                "decay rows by their averages' past"
            )
        if not self._has_sums_of_skips(capacity_of(variable)):
            return (
                "and `catch_up=True` with betas whose skipped steps have sums "
                "(the defaults, and most)"
            )
        return None

    def _has_sums_of_skips(self, capacity):
        """Whether skipped steps are a sum over steps for all elements."""
        return True


def _history_shape(variable):
    return (capacity_of(variable),)


def _width(shape):
    return math.prod(shape[1:])
