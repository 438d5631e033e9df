"""Rows that are brought up to date when they are read."""

import contextlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.keras_internals import merge_call
from tfxclass.keras_internals import num_applied
from tfxclass.keras_internals import tf_variable
from tfxclass.ops import half_rows
from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.ops import row_update
from tfxclass.optimizers.sharded_rows import ShardedRows
from tfxclass.optimizers.variable_groups import path_of
from tfxclass.rows import catching_up
from tfxclass.types import Array
from tfxclass.types import Config
from tfxclass.types import Variable

ROW_DTYPES = ("float32", "float64", "float16", "bfloat16")
# Steps a history holds: as many as there are rows, so that to bring all rows up
# where it is full costs a row a step.
_LEAST_STEPS, _MOST_STEPS = 256, 65536


class CaughtUpRows(ShardedRows):
    """Mixin: the history of each variable's steps, and catching up by it.

    A variable has a clock of its own, which counts the steps that gave it a row
    gradient. Steps without one do not move it, as with Keras. In a step with a
    dense gradient all rows are brought up first, so it needs no place in the
    history.

    Subclasses give `_slots(index)` and `_catch_up_op`, and say with
    `_HAS_RATES` whether a skipped step depends on its rate.
    """

    _HAS_RATES = False

    def __init__(
        self,
        *args: Any,
        catch_up: bool = False,
        compact_slots: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        check_choice("catch_up", catch_up, (False, True))
        check_choice("compact_slots", compact_slots, (False, True))
        if catch_up:
            library.require_compiled("catch_up=True")
        if compact_slots:
            library.require_compiled("compact_slots=True")
        self.catch_up = catch_up
        self.compact_slots = compact_slots

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        if not self.catch_up:
            return
        for variable in variables:
            catching_up.check_alone(variable)
        self._last_steps = [self._add_last_step(v) for v in variables]
        self._clocks = self._add_all(variables, "clock", _no_shape, "int64")
        self._rates = self._add_all(
            variables, "rates", _capacity_shape, "float32", self._has_rates
        )
        self._log_keeps = self._add_all(
            variables, "log_keeps", _sums_shape, "float64", self._decays
        )
        for variable in variables:
            catching_up.link(variable, self)

    def history_bytes(self, num_rows: int) -> int:
        """Bytes of what is kept of the steps of a variable, int."""
        if not self.catch_up:
            return 0
        capacity = _capacity(num_rows)
        sums = 8 * (capacity + 1) if self.weight_decay is not None else 0
        return sums + (4 * capacity if self._HAS_RATES else 0)

    def _has_rates(self, variable):
        return self._HAS_RATES

    def _decays(self, variable):
        return self.weight_decay is not None and self._has_decay(variable)

    def _has_history(self, variable):
        return bool(
            len(variable.shape)
            and _dtype_name(variable) in ROW_DTYPES
            and not getattr(variable, "overwrite_with_gradient", False)
        )

    def _add_last_step(self, variable):
        """At which clock each row was current, int64 [num_rows]."""

        def add():
            return self._add(variable, "last_step", (variable.shape[0],))

        if self._has_history(variable):
            with self._beside(variable):
                return self._add_in_shards(variable, add)

    def _add_all(self, variables, name, shape_of, dtype, is_wanted=None):
        added = []
        for variable in variables:
            added.append(None)
            if not self._has_history(variable):
                continue
            if is_wanted is None or is_wanted(variable):
                with self._beside(variable):
                    shape = shape_of(variable)
                    added[-1] = self._add(variable, name, shape, dtype)
        return added

    def _add(self, variable, name, shape, dtype="int64"):
        name = f"{path_of(variable).replace('/', '_')}_{name}"
        return self.add_variable(shape=shape, dtype=dtype, name=name)

    @contextlib.contextmanager
    def _beside(self, variable):
        extended = self._strategy.extended
        with extended.colocate_vars_with(tf_variable(variable)):
            with home(variable):
                yield

    def catch_up_rows(self, variable: Variable, ids: Array) -> None:
        """Brings rows to where the dense optimizer would have them now.

        Args:
            variable: one of the variables the optimizer was built with.
            ids: integer tensor of any shape.

        Raises:
            ValueError: without `catch_up=True`.
        """
        ids = tf.reshape(tf.cast(ids, tf.int64), [-1])
        self._catch_up_here(variable, ids, False)

    def catch_up_all(self, variable: Variable) -> None:
        """`catch_up_rows` for every row; O(num_rows)."""
        self._catch_up_here(variable, tf.zeros([0], tf.int64), True)

    def before_assign(self, variable: Variable) -> None:
        """Called before all rows of `variable` get other values."""
        if self.catch_up:
            self.catch_up_all(variable)

    def _catch_up_here(self, variable, ids, every_row):
        if not self.catch_up:
            raise ValueError(
                "Rows can only be caught up by an optimizer that was made "
                f"with `catch_up=True`. Received: {self.name} with "
                "catch_up=False"
            )
        variable = tf_variable(variable)
        if tf.distribute.get_replica_context() is not None:
            self._catch_up(variable, ids, every_row)
            return
        self._strategy.extended.update(
            variable, self._catch_up, args=(ids, every_row), group=False
        )

    def _catch_up_all_replicas(self, variable):
        """Every row, on every replica, from within one of them."""
        index = self._index_of(variable)
        if self._last_steps[index] is None:
            return

        def update(strategy, variable):
            ids = tf.zeros([0], tf.int64)
            strategy.extended.update(
                variable, self._catch_up, args=(ids, True), group=False
            )

        merge_call(update, self._strategy, tf_variable(variable))

    def _catch_up(self, variable, ids, every_row=False):
        index = self._index_of(variable)
        if self._last_steps[index] is None:
            return
        self._catch_up_op(
            variable.handle,
            self._slot_handles(index),
            self._history(index, variable),
            ids,
            kept=self._kept_as(index),
            every_row=every_row,
        )

    def _kept_as(self, index):
        """How the rows and slots of a variable are kept: `row_update.Kept`."""
        variable = self._built_for[index]
        dtype = tf.as_dtype(variable.dtype)
        is_half = half_rows.are_half(variable)
        compact = self._is_compact(variable)
        return row_update.Kept(
            dtype,
            tf.float32 if is_half else dtype,
            compact=compact,
            # Kernels of one head, and heads of one seed, by their places.
            seed=half_rows.seed_of(variable) * 1024 + index,
            step=num_applied(self) if is_half or compact else 0,
        )

    def _is_compact(self, variable):
        """Whether the slots of a variable are compact."""
        return bool(
            self.compact_slots
            and half_rows.are_class_rows(variable)
            and _dtype_name(variable) in ("float32", "bfloat16")
        )

    def _is_shared(self, variable):
        """Whether the rows of a variable share their second moment."""
        return False

    def _slot_handles(self, index):
        return [tf_variable(slot).handle for slot in self._slots(index)]

    def _history(self, index, variable):
        """A `row_update.History`, or None."""
        if not self.catch_up:
            return None
        parts = (self._last_steps, self._clocks, self._rates, self._log_keeps)
        present = [p[index] for p in parts if p[index] is not None]
        handles = [tf_variable(part).handle for part in present]
        return row_update.History(handles, capacity_of(variable))

    def get_config(self) -> Config:
        own = {"catch_up": self.catch_up, "compact_slots": self.compact_slots}
        return {**super().get_config(), **own}


def capacity_of(variable: Variable) -> int:
    """How many steps a variable's history holds."""
    return _capacity(variable.shape[0])


def _capacity(num_rows):
    return min(max(num_rows, _LEAST_STEPS), _MOST_STEPS)


def _no_shape(variable):
    return ()


def _capacity_shape(variable):
    return (capacity_of(variable),)


def _sums_shape(variable):
    return (capacity_of(variable) + 1,)


def home(variable: Variable) -> contextlib.AbstractContextManager:
    """Where a slot of `variable` lies; a strategy sees to it by itself."""
    if tf.distribute.has_strategy():
        return contextlib.nullcontext()
    return placement.beside(variable)


def _dtype_name(variable):
    return tf.as_dtype(variable.dtype).name
