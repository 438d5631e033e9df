"""When an index has drifted from the rows: a few queries, answered exactly."""

import math
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.rows import search
from tfxclass.samplers.recall_watch import RecallWatch
from tfxclass.samplers.recall_watch import recall_of
from tfxclass.types import Scalar
from tfxclass.types import Variable

#: Queries of a probe, and the best classes of each that an index should find.
NUM_PROBES = 16
NUM_BEST = 10
#: What refreshes and probes may add to the time of a step; refreshes less where
#: the index is not all that finds neighbours.
REFRESH_SHARE = 0.25
REFRESH_SHARE_BESIDE_CACHE = 0.05
PROBE_SHARE = 0.02
#: An index is old at so many times the step at which it was begun.
OLD_AGE = 2
#: What a probe takes in addition to its time for each class.
PROBE_NANOSECONDS = 1e6
_MOST_STEPS = 5000
#: The interval of an index that is never refreshed by the clock.
NEVER = tf.int64.max


class Refresh(NamedTuple):
    """When an index is refreshed, int64 scalars and a bool one.

    Attributes:
        interval: steps from one begin to the next.
        lag: steps from a begin to its end.
        drifted: whether to begin now.
    """

    interval: Any
    lag: Any
    drifted: Any = False


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


def batch_of(queries: tf.Tensor) -> Scalar:
    """Rows of a batch, an int where a graph that is being made knows them."""
    known = queries.shape[0]
    return tf.shape(queries)[0] if known is None else known


def step_nanoseconds(batch: Scalar, num_sampled: Scalar, dim: int) -> Scalar:
    """Roughly what a training step takes, a float or a float64 scalar.

    A model rather than a measurement: what a step sees must not depend on how
    fast the machine is. 240 products a nanosecond, three passes, six times
    that for the rest of a step, and what no step goes without (two cores).
    """
    sizes = [
        float(size) if isinstance(size, int) else tf.cast(size, tf.float64)
        for size in (batch, num_sampled, dim)
    ]
    return 1.5e6 + 0.075 * math.prod(sizes)


def part_of_steps(nanoseconds: float, share: float, step: Scalar) -> tf.Tensor:
    """In how many steps what takes so long is that share, int64 scalar.

    Args:
        nanoseconds: float.
        share: float, of the time of the steps.
        step: float or float64 scalar, nanoseconds of one.
    """
    if isinstance(step, float):
        steps = math.ceil(nanoseconds / (share * step))
        return tf.constant(min(max(steps, 1), _MOST_STEPS), tf.int64)
    steps = tf.math.ceil(nanoseconds / (share * step))
    return tf.cast(tf.clip_by_value(steps, 1, _MOST_STEPS), tf.int64)


class Drift:
    """Recall of a sampler's index, and the refreshes that keep it up.

    Every so many steps the best classes of a few rows of the batch are found
    exactly. Where the index finds fewer than nine tenths of what it found when
    it was new, by more than chance (`RecallWatch`), it is refreshed, over so
    many steps that refreshes take a quarter of the time of the steps, or a
    twentieth where the sampler has a `NeighborCache`. So it is where it is
    twice as old as the model was when it was begun: an index of rows that were
    hardly trained finds little when it is new, and is no measure of what one
    of trained rows finds.

    Args:
        sampler: a sampler that is being built; gets the weights.
        num_classes: int.
        dim: int.
        refresh_nanoseconds: float, what a refresh takes, roughly.
    """

    def __init__(
        self,
        sampler: keras.layers.Layer,
        num_classes: int,
        dim: int,
        refresh_nanoseconds: float,
    ) -> None:
        self._sampler = sampler
        self._sizes = num_classes, dim
        self._refresh = refresh_nanoseconds
        self._share = REFRESH_SHARE
        if sampler.neighbor_cache is not None:
            self._share = REFRESH_SHARE_BESIDE_CACHE
        self.recall = sampler.gauge("recall")
        self._watch = [
            sampler.weight(f"{name}_recall", 0.0)
            for name in RecallWatch._fields
        ]
        self.begun = sampler.counter("refresh_begun", -(2**40))
        #: `begun` of the index that is watched.
        self._watched = sampler.counter("refresh_watched", -(2**41))

    def _part(self, nanoseconds, share, batch):
        num_sampled, dim = self._sampler.size_for(batch), self._sizes[1]
        step = step_nanoseconds(batch, num_sampled, dim)
        return part_of_steps(nanoseconds, share, step)

    def steps(self, step: Scalar, batch: Scalar) -> Refresh:
        """The `Refresh` at `step`."""
        lag = self._part(self._refresh, self._share, batch)
        drifted = tf.equal(step, tf.convert_to_tensor(self.begun))
        return Refresh(tf.constant(NEVER), lag, drifted)

    def watch(
        self,
        step: Scalar,
        queries: tf.Tensor,
        kernel: Variable,
        found: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    ) -> None:
        """Measures the recall where that is due, after the index advanced.

        Args:
            step: int64 scalar.
            queries: float32 `[batch, dim]`.
            kernel: the class matrix.
            found: of queries `[n, dim]` and ids `[n, k]`, -1 is padding: bool
                `[n, k]`, whether the index finds them.
        """
        num_classes, dim = self._sizes
        batch = batch_of(queries)
        # Products, read at 20 bytes a nanosecond, and a pass for the best.
        cost = num_classes * (0.2 * dim + 1.2 * NUM_PROBES)
        cost += PROBE_NANOSECONDS
        due = tf.equal(step % self._part(cost, PROBE_SHARE, batch), 0)

        def probe():
            self._probe(step, batch, queries[:NUM_PROBES], kernel, found)
            return True

        tf.cond(due, probe, lambda: False)

    def _probe(self, step, batch, queries, kernel, found):
        """Measures the recall; judges it unless a refresh is under way."""
        recall, variance = self._measure(queries, kernel, found)
        self.recall.assign(recall)
        begun = tf.convert_to_tensor(self.begun)
        lag = self.steps(step, batch).lag
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
            normalize=self._sampler.similarity == "cosine",
        )
        is_class = ids >= 0
        hits = tf.cast(found(queries, ids) & is_class, tf.int32)
        recall, variance = recall_of(
            tf.reduce_sum(hits, axis=1),
            tf.reduce_sum(tf.cast(is_class, tf.int32), axis=1),
        )
        last = tf.convert_to_tensor(self.recall)
        return tf.where(tf.reduce_any(is_class), recall, last), variance
