"""Moving averages of rows that are brought up to date when they change."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfxclass.keras_internals import num_applied
from tfxclass.keras_internals import tf_variable
from tfxclass.ops import half_rows
from tfxclass.ops import placement
from tfxclass.ops import row_update
from tfxclass.optimizers.averaged_skips import AveragedSkips
from tfxclass.optimizers.caught_up_rows import capacity_of
from tfxclass.optimizers.variable_groups import path_of
from tfxclass.rows import catching_up
from tfxclass.types import Scalar
from tfxclass.types import Variable

# Rows that are averaged at once where all of them are.
_BLOCK = 65536


class AveragedRows(AveragedSkips):
    """Mixin: `use_ema` at the cost of the rows that a step touches.

    Keras moves the average of each row in each step,

        average <- momentum * average + (1 - momentum) * row

    where momentum is 0 in the first step. While a row stands still for n steps,
    that is momentum^n at once. So each row has a count of the steps that its
    average has seen (`averaged`; `all_averaged` where all rows have), and the
    rest is made up for before the row changes, and for all rows before the
    averages are read: at the end of `fit`, by `SwapEMAWeights`, and every
    `ema_overwrite_frequency` steps.

    With `catch_up` a row moves in the steps it skips. What these do to its
    average is `AveragedSkips`.
    """

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        if not self.use_ema:
            return
        _refuse_half_rows(variables)
        self._averaged = self._add_all(variables, "averaged", _rows, "int64")
        self._all_averaged = self._add_all(
            variables, "all_averaged", _no_shape, "int64"
        )
        for variable in variables:
            catching_up.link(variable, self)

    def _catch_up(self, variable, ids, every_row=False):
        index = self._index_of(variable)
        if not self._averages_skips or self._averaged[index] is None:
            super()._catch_up(variable, ids, every_row)
            return
        steps = num_applied(self)
        if every_row:
            self._average_each_row(index, steps)
            return
        clock = tf_variable(self._clocks[index])
        # The rows' history is full: the op brings all of them up.
        is_full = (clock > 0) & (clock % capacity_of(variable) == 0)

        def some():
            self._average_rows(index, tf.unique(ids)[0], steps)

        tf.cond(is_full, lambda: self._average_blocks(index, steps), some)
        super()._catch_up(variable, ids)

    def _before_averages_are_read(self):
        if self.built and self.use_ema and not self._is_replicated:
            self._average_all(num_applied(self))

    def before_assign(self, variable: Variable) -> None:
        """Makes up for the steps in which `variable` was what it still is."""
        super().before_assign(variable)
        if self.use_ema and not self._is_replicated:
            index = self._index_of(variable)
            self._average_each_row(index, num_applied(self))

    def _average_all(self, steps):
        for index in range(len(self._built_for)):
            self._average_each_row(index, steps)

    def _average_each_row(self, index, steps):
        """All rows' averages as `steps` steps make them; in blocks."""
        if self._averaged[index] is None:
            return
        self._average_blocks(index, steps)
        self._all_averaged[index].assign(steps)
        if self._averages_skips:
            variable = tf_variable(self._built_for[index])
            none = tf.zeros([0], tf.int64)
            super()._catch_up(variable, none, every_row=True)

    def _average_blocks(self, index, steps):
        for_all_rows(
            self._built_for[index].shape[0],
            lambda ids: self._average_rows(index, ids, steps),
        )

    def _average_rows(
        self, index: int, ids: tf.Tensor, steps: Scalar
    ) -> tf.Tensor:
        """Averages of distinct rows as `steps` steps make them.

        With `catch_up` the rows themselves have to follow.

        Returns:
            What must be done before the rows change: a tensor.
        """
        variable, average = self._built_for[index], self._averages[index]
        average = tf_variable(average)
        dtype = tf.float64 if average.dtype == tf.float64 else tf.float32
        seen = tf.gather(tf_variable(self._averaged[index]), ids)
        seen = tf.maximum(seen, self._all_averaged[index])
        keep = self._kept(seen, tf.cast(steps, tf.int64), dtype)
        rows = tf.cast(placement.gather(variable, ids), dtype)
        lost = rows - tf.cast(tf.gather(average, ids), dtype)
        keep = tf.reshape(keep, [-1] + [1] * (len(variable.shape) - 1))
        move = (1 - keep) * lost
        if self._averages_skips:
            move -= self._skipped_of_average(index, ids, steps, dtype)
        move = tf.cast(move, average.dtype)
        row_update.add_rows(average.handle, ids, move)
        count = tf.fill(tf.shape(ids), tf.cast(steps, tf.int64))
        self._averaged[index].value.scatter_update(tf.IndexedSlices(count, ids))
        return rows

    def _kept(self, seen, steps, dtype):
        """What is left of averages that have `seen` steps, after `steps`."""
        first = self._steps_kept_by_none
        missed = tf.maximum(steps - seen, 0)
        momentum = tf.constant(self.ema_momentum, dtype)
        keep = tf.pow(momentum, tf.cast(missed, dtype))
        keep = tf.where(seen < first, tf.zeros([], dtype), keep)
        return tf.where(missed > 0, keep, tf.ones([], dtype))

    def _average_before(self, grads, variables):
        """Of what a dense gradient is about to move, and some step has left."""
        steps = num_applied(self)
        for gradient, variable in zip(grads, variables):
            index = self._index_of(variable)
            all_averaged = self._all_averaged[index]
            if isinstance(gradient, tf.IndexedSlices) or all_averaged is None:
                continue

            def average(index=index):
                self._average_each_row(index, steps)

            is_behind = all_averaged.value < steps
            # Not while the gradient still reads the variable.
            with tf.control_dependencies([gradient]):
                tf.cond(is_behind, average, lambda: None)

    def _average_after(self, grads, variables):
        """As Keras, of what had a dense gradient; rows are left for later."""
        steps = num_applied(self)
        moved = {
            self._index_of(v)
            for g, v in zip(grads, variables)
            if not isinstance(g, tf.IndexedSlices)
        }
        for index, average in enumerate(self._averages):
            all_averaged = self._all_averaged[index]
            if average is None or (
                index not in moved and all_averaged is not None
            ):
                continue
            self._move_average(average, self._built_for[index])
            if all_averaged is not None:
                all_averaged.assign(steps + 1)
        if self.ema_overwrite_frequency:
            is_due = (self.iterations + 1) % self.ema_overwrite_frequency == 0
            tf.cond(is_due, lambda: self._overwrite(steps), lambda: None)

    def _move_average(self, average, variable):
        """Keras' formula, on all rows."""
        dtype = tf.as_dtype(average.dtype)
        momentum = tf.cast(self.iterations != 0, dtype) * self.ema_momentum
        average = tf_variable(average)
        average.assign(
            momentum * average + (1 - momentum) * tf_variable(variable)
        )

    def _overwrite(self, steps):
        self._average_all(steps + 1)
        for variable, average in zip(self._built_for, self._averages):
            if average is not None:
                tf_variable(variable).assign(tf_variable(average))


def for_all_rows(num_rows: int, function: Callable[[tf.Tensor], Any]) -> None:
    """Calls function(ids), int64 `[n]`, for blocks of rows, one by one."""

    def body(start):
        function(tf.range(start, tf.minimum(start + _BLOCK, num_rows)))
        return (start + _BLOCK,)

    tf.while_loop(
        lambda start: start < num_rows,
        body,
        (tf.zeros([], tf.int64),),
        parallel_iterations=1,
    )


def _refuse_half_rows(variables):
    for variable in variables:
        if half_rows.are_half(variable):
            raise ValueError(
                "`use_ema=True` averages float32 rows: steps of an average "
                "are far below the last bit of bfloat16. Fix: leave it out, "
                "or `kernel_dtype` of the head. Received: "
                f"'{path_of(variable)}' in bfloat16"
            )


def _no_shape(variable):
    return ()


def _rows(variable):
    return (variable.shape[0],)
