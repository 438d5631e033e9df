"""When an index is refreshed: at intervals, or when it has drifted."""

import math
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.rows import search
from tfxclass.samplers.recall_watch import RecallWatch
from tfxclass.samplers.recall_watch import recall_of
from tfxclass.samplers.sample_size import NUM_PROBES
from tfxclass.samplers.sample_size import PROBE_NANOSECONDS
from tfxclass.samplers.sample_size import PROBE_SHARE
from tfxclass.samplers.sample_size import part_of_steps
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Scalar
from tfxclass.types import Variable

#: Best classes of each query of a probe that an index should find.
NUM_BEST = 10
#: What refreshes may add to the time of a step; less where the index is not all
#: that finds neighbors.
REFRESH_SHARE = 0.25
REFRESH_SHARE_BESIDE_CACHE = 0.05
#: An index is old at so many times the step at which it was begun.
OLD_AGE = 2
#: The interval of an index that is never refreshed by the clock.
NEVER = tf.int64.max


class Refresh(NamedTuple):
    """When an index is refreshed, int64 scalars and a bool one.

    Attributes:
        interval: steps from one begin to the next.
        lag: steps from a begin to its end.
        drifted: whether to begin now.
        num_trees: trees of a forest, or None for its own number.
    """

    interval: Any
    lag: Any
    drifted: Any = False
    num_trees: Any = None


class FixedSchedule:
    """Refreshes after a number of steps, which may grow.

    Refresh r begins at step interval * (e^(decay r) - 1) / (e^decay - 1). So
    interval r, interval * e^(decay r), is linear in the step.

    Args:
        interval: int, the first one in steps.
        decay: float >= 0. 0 keeps the interval.
    """

    def __init__(self, interval: int, decay: float = 0.0) -> None:
        self._interval, self._decay = interval, decay

    def refresh(self, step: Scalar, step_time: Scalar) -> Refresh:
        """The `Refresh` at `step`, int64 scalar."""
        del step_time
        lag = tf.constant(self._interval, tf.int64)
        if not self._decay:
            return Refresh(lag, lag)
        grown = tf.cast(step, tf.float64) * math.expm1(self._decay)
        return Refresh(self._interval + tf.cast(grown, tf.int64), lag)


def check_rebuild_interval(value: int | str) -> int | str:
    """A positive integer as an int, or `"auto"`; ValueError for others."""
    if isinstance(value, str) and value != "auto":
        raise ValueError(
            '`rebuild_interval` must be a positive integer or "auto". '
            f"Received: {value!r}"
        )
    if isinstance(value, str):
        return value
    return check_positive_int("rebuild_interval", value)


class Drift:
    """Recall of a sampler's index, and the refreshes that keep it up.

    Every so many steps the best classes of a few rows of the batch are found
    exactly. Where the index finds fewer than nine tenths of what it found when
    it was new, by more than chance (`RecallWatch`), it is refreshed, over so
    many steps that refreshes take a given share of the time of the steps. It is
    also refreshed where it is twice as old as the model was when it was begun:
    an index of rows that were hardly trained finds little when it is new, and
    is no measure of what one of trained rows finds.

    Args:
        sampler: a sampler that is being built. It gets the weights, and is not
            used afterwards.
        num_classes: int.
        dim: int.
        refresh_nanoseconds: float, what a refresh takes, roughly.
        share: float, the fraction of the time of the steps that refreshes may
            take.
    """

    def __init__(
        self,
        sampler: Sampler,
        num_classes: int,
        dim: int,
        refresh_nanoseconds: float,
        share: float,
    ) -> None:
        self._sizes = num_classes, dim
        self._normalize = sampler.normalize
        self._nanoseconds = refresh_nanoseconds
        self._share = share
        self.recall = sampler.gauge("recall")
        self._watch = [
            sampler.add_state(f"{name}_recall", 0.0)
            for name in RecallWatch._fields
        ]
        self.begun = sampler.add_state("refresh_begun", -(2**40), dtype="int64")
        #: `begun` of the index that is watched.
        self._watched = sampler.add_state(
            "refresh_watched", -(2**41), dtype="int64"
        )

    def refresh(self, step: Scalar, step_time: Scalar) -> Refresh:
        """The `Refresh` at `step`.

        Args:
            step: int64 scalar.
            step_time: float or float64 scalar, nanoseconds of a step.
        """
        lag = part_of_steps(self._nanoseconds, self._share, step_time)
        drifted = tf.equal(step, tf.convert_to_tensor(self.begun))
        return Refresh(tf.constant(NEVER), lag, drifted)

    def watch(
        self,
        step: Scalar,
        step_time: Scalar,
        queries: tf.Tensor,
        kernel: Variable,
        found: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    ) -> None:
        """Measures the recall where that is due, after the index advanced.

        Args:
            step, step_time: of `refresh`.
            queries: float32 `[batch, dim]`.
            kernel: the class matrix.
            found: of queries `[n, dim]` and ids `[n, k]`, -1 is padding: bool
                `[n, k]`, whether the index finds them.
        """
        num_classes, dim = self._sizes
        # Products, read at 20 bytes a nanosecond, and a pass for the best.
        cost = num_classes * (0.2 * dim + 1.2 * NUM_PROBES)
        cost += PROBE_NANOSECONDS
        every = part_of_steps(cost, PROBE_SHARE, step_time)
        due = tf.equal(step % every, 0)

        def probe():
            self._probe(step, step_time, queries[:NUM_PROBES], kernel, found)
            return True

        tf.cond(due, probe, lambda: False)

    def _probe(self, step, step_time, queries, kernel, found):
        """Measures the recall; judges it unless a refresh is under way."""
        recall, variance = self._measure(queries, kernel, found)
        self.recall.assign(recall)
        begun = tf.convert_to_tensor(self.begun)
        lag = self.refresh(step, step_time).lag
        is_free = step >= begun + lag
        is_old = step >= OLD_AGE * tf.maximum(begun, 1) + lag
        self._judge(step, recall, variance, is_free, is_old)

    def _judge(self, step, recall, variance, counts, is_old):
        """Takes in a probe, if it `counts`; may begin a refresh."""
        begun = tf.convert_to_tensor(self.begun)
        is_new = begun != tf.convert_to_tensor(self._watched)
        before = RecallWatch(*map(tf.convert_to_tensor, self._watch))
        after = before.after(recall, variance, is_new)
        for weight, old, new in zip(self._watch, before, after):
            weight.assign(tf.where(counts, new, old))
        watched = tf.where(counts, begun, tf.convert_to_tensor(self._watched))
        self._watched.assign(watched)
        drifted = counts & (is_old | after.fell(recall))
        self.begun.assign(tf.where(drifted, step + 1, begun))

    def _measure(self, queries, kernel, found):
        """`(recall, variance)` of a probe, float32 scalars."""
        ids, _ = search.top_k(
            queries,
            tf.convert_to_tensor(kernel),
            min(NUM_BEST, self._sizes[0]),
            normalize=self._normalize,
        )
        is_class = ids >= 0
        hits = tf.cast(found(queries, ids) & is_class, tf.int32)
        recall, variance = recall_of(
            tf.reduce_sum(hits, axis=1),
            tf.reduce_sum(tf.cast(is_class, tf.int32), axis=1),
        )
        last = tf.convert_to_tensor(self.recall)
        return tf.where(tf.reduce_any(is_class), recall, last), variance
