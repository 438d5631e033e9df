"""When an index is refreshed: at intervals, or when it has drifted."""

import math
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.rows import search
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Scalar
from tfxclass.types import Variable

#: Queries of a probe, the part of the time of all steps that probes may take,
#: and what one takes in addition to its time for each class.
NUM_PROBES = 16
PROBE_SHARE = 0.02
PROBE_NANOSECONDS = 1e6
_MOST_STEPS = 5000
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
# An index is to find this part of what it found when it was new.
_FLOOR = 0.9
#: Probes of a new index that are averaged.
FRESH_PROBES = 4
# What a probe counts in the running means of recall and noise.
_WEIGHT = 0.2
# Standard errors that a single probe, and the running mean, must be below.
_SINGLE, _RUNNING = 3.0, 2.0


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


class RecallWatch(NamedTuple):
    """Measurements of an index since it was new; float32 scalars.

    Attributes:
        fresh: mean recall of its first probes.
        probes: how many these are.
        recent: running mean of the recall.
        noise: running mean of a probe's variance.
    """

    fresh: tf.Tensor
    probes: tf.Tensor
    recent: tf.Tensor
    noise: tf.Tensor

    def after(
        self, recall: tf.Tensor, variance: tf.Tensor, is_new: tf.Tensor
    ) -> "RecallWatch":
        """With one probe more.

        Args:
            recall: float32 scalar.
            variance: float32 scalar, of `recall` as an estimate.
            is_new: bool scalar, whether it is the first one of this index.
        """
        probes = tf.where(is_new, 0.0, self.probes)
        fresh = (self.fresh * probes + recall) / (probes + 1)
        counts = probes < FRESH_PROBES
        first = is_new | (self.noise == 0)
        return RecallWatch(
            tf.where(counts, fresh, self.fresh),
            tf.where(counts, probes + 1, probes),
            tf.where(is_new, recall, self._running(self.recent, recall)),
            tf.where(first, variance, self._running(self.noise, variance)),
        )

    @staticmethod
    def _running(mean, value):
        return (1 - _WEIGHT) * mean + _WEIGHT * value

    def fell(self, recall: tf.Tensor) -> tf.Tensor:
        """Whether the recall is below 0.9 times the one of the new index.

        By the last probe, `recall`, alone, which tells a sudden fall, or by the
        running mean, which tells a slow one; each by more than noise is.
        """
        of_fresh = 1 / tf.maximum(self.probes, 1.0)
        floor = _FLOOR * self.fresh
        single = _SINGLE * tf.sqrt(self.noise * (1 + of_fresh))
        of_mean = _WEIGHT / (2 - _WEIGHT)
        running = _RUNNING * tf.sqrt(self.noise * (of_mean + of_fresh))
        return (recall < floor - single) | (self.recent < floor - running)


def recall_of(
    hits: tf.Tensor, wanted: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """`(recall, variance)` of a probe, float32 scalars.

    The variance is measured between the queries, whose hits come together, and
    is at least the variance of independent hits with a prior that is never 0 or
    1.

    Args:
        hits: int32 `[queries]`, classes that the index found.
        wanted: int32 `[queries]`, of so many; 0 counts for nothing.
    """
    hits, wanted = (tf.cast(x, tf.float32) for x in (hits, wanted))
    total = tf.maximum(tf.reduce_sum(wanted), 1.0)
    recall = tf.reduce_sum(hits) / total
    rest = hits - recall * wanted
    queries = tf.reduce_sum(tf.cast(wanted > 0, tf.float32))
    unbiased = queries / tf.maximum(queries - 1, 1.0)
    between = unbiased * tf.reduce_sum(rest**2) / total**2
    prior = (tf.reduce_sum(hits) + 1) / (total + 2)
    return recall, tf.maximum(between, prior * (1 - prior) / total)
