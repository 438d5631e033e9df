"""The steps that a variable has seen: custom_ops/core/skipped_steps.h."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfxclass.ops.stock.row_rules import Skipped

# From a decay of 1 on nothing is left of a row.
_MOST_DECAY = 1 - 1e-15


class StepHistory:
    """Of the handles of a `History`: last_step, clock, rates, log_keeps."""

    def __init__(
        self, handles: Sequence[tf.Tensor], capacity: int, has_rates: bool
    ) -> None:
        handles = list(handles)
        self.last_step, self.clock = handles[:2]
        rest = handles[2:]
        self.rates = rest.pop(0) if has_rates else None
        self.log_keeps = rest.pop(0) if rest else None
        self.capacity = capacity

    def read_clock(self) -> tf.Tensor:
        """int64, how many steps there were."""
        return _read(self.clock, tf.int64)

    def is_full(self, clock: tf.Tensor) -> tf.Tensor:
        """Whether the next step begins the history anew."""
        return (clock > 0) & (clock % self.capacity == 0)

    def record(self, rate: tf.Tensor, decay: tf.Tensor, rows: tf.Tensor) -> Any:
        """A step of `rows`: writes it, and the clock moves on."""
        clock = self.read_clock()
        place = (clock % self.capacity)[tf.newaxis]
        written = []
        if self.rates is not None:
            rate = tf.cast(rate, tf.float32)[tf.newaxis]
            written.append(_write(self.rates, place, rate))
        if self.log_keeps is not None:
            before = _gather(self.log_keeps, place, tf.float64)
            zero = tf.zeros_like(before)
            before = tf.where(place == 0, zero, before)
            after = before + tf.math.log1p(-tf.minimum(decay, _MOST_DECAY))
            places = tf.concat([place, place + 1], axis=0)
            values = tf.concat([before, after], axis=0)
            written.append(_write(self.log_keeps, places, values))
        now = tf.fill(tf.shape(rows), clock + 1)
        written.append(_write(self.last_step, rows, now))
        with tf.control_dependencies([x for x in written if x is not None]):
            one = tf.ones([], tf.int64)
            return tf.raw_ops.AssignAddVariableOp(
                resource=self.clock, value=one
            )

    def behind(self, rows: tf.Tensor) -> tf.Tensor:
        """Those of `rows` that are not current."""
        last = _gather(self.last_step, rows, tf.int64)
        return tf.boolean_mask(rows, last < self.read_clock())

    def skipped(
        self,
        rows: tf.Tensor,
        terms: tf.Tensor,
        each_element: bool,
        fades: Sequence[Any],
        beside: Callable[[tf.Tensor], tf.Tensor],
    ) -> Skipped:
        """`Skipped` of rows that are behind.

        Args:
            terms: float32 [terms, steps].
            beside: function that makes numbers [n] broadcast to rows.
        """
        clock = self.read_clock()
        base = tf.where(clock > 0, (clock - 1) // self.capacity, 0)
        base *= self.capacity
        last = _gather(self.last_step, rows, tf.int64)
        first, end = tf.maximum(last - base, 0), clock - base
        age = tf.cast(end - first, tf.float64)
        keep = tf.ones_like(age)
        if self.log_keeps is not None:
            logs = _read(self.log_keeps, tf.float64)
            keep = tf.exp(logs[end] - tf.gather(logs, first))
        rates = self._rates(first, end, tf.shape(terms, tf.int64)[1])
        if each_element:
            moves = _each_element(rates, terms, beside)
        else:
            moves = [
                beside(tf.linalg.matvec(rates, of_term))
                for of_term in tf.unstack(terms)
            ]
        faded = [beside(tf.cast(f, tf.float64) ** age) for f in fades]
        return Skipped(beside(keep), *faded, moves)

    def _rates(self, first, end, num_steps):
        """Rate of each skipped step times what decay kept since, [n, steps]."""
        places = first[:, tf.newaxis] + tf.range(num_steps)
        counts = places < end
        places = tf.minimum(places, self.capacity - 1)
        rates = tf.ones(tf.shape(places))
        if self.rates is not None:
            rates = tf.gather(_read(self.rates, tf.float32), places)
        if self.log_keeps is not None:
            logs = _read(self.log_keeps, tf.float64)
            kept = tf.exp(logs[end] - tf.gather(logs, places + 1))
            rates = tf.cast(kept * tf.cast(rates, tf.float64), tf.float32)
        return tf.where(counts, rates, 0.0)


def _each_element(rates, terms, beside):
    """Function of root and epsilon: the sum over steps for each element."""

    def moves(root, epsilon):
        def add(i, total):
            rate = beside(rates[:, i] * terms[0, i])
            of_root = tf.cast(terms[1, i], root.dtype)
            return i + 1, total + rate / (of_root * root + epsilon)

        return tf.while_loop(
            lambda i, _: i < tf.shape(terms)[1],
            add,
            (tf.constant(0), tf.zeros_like(root)),
            shape_invariants=(tf.TensorShape([]), root.shape),
            parallel_iterations=1,
        )[1]

    return moves


def _read(handle, dtype):
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def _gather(handle, ids, dtype):
    return tf.raw_ops.ResourceGather(resource=handle, indices=ids, dtype=dtype)


def _write(handle, ids, values):
    return tf.raw_ops.ResourceScatterUpdate(
        resource=handle, indices=ids, updates=values
    )
