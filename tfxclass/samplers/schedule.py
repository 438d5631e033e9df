"""When an index is refreshed: at intervals, in phases, or by its drift."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.rows import search
from tfxclass.samplers.sampler import NUM_PROBES
from tfxclass.samplers.sampler import part_of_steps
from tfxclass.samplers.sampler import probe_interval
from tfxclass.types import Config
from tfxclass.types import Scalar
from tfxclass.types import Variable

# What refreshes may add to the time of a step; less where the index is not all
# that finds neighbors.
_SHARE, _SHARE_BESIDE_CACHE = 0.25, 0.05
# Nanoseconds of a step on a GPU at most, while the host builds. An H200 took so
# long with uniform samples and a batch of 4,096.
_GPU_STEP = 2.35e6
#: An index is old at so many times the step at which it was begun.
OLD_AGE = 2
#: The interval of an index that is never refreshed by the clock.
NEVER = tf.int64.max
# Best classes of each query of a probe that an index should find.
_NUM_BEST = 10
# An index is to find this part of what it found when it was new.
_FLOOR = 0.9
# Probes of a new index that are averaged.
_FRESH_PROBES = 4
# What a probe counts in the running means of recall and noise.
_WEIGHT = 0.2
# Standard errors that a single probe, and the running mean, must be below.
_SINGLE, _RUNNING = 3.0, 2.0


#: Inputs of `RefreshingIndex.advance`, by name.
Refresh = dict[str, Any]


class FixedSchedule:
    """Refreshes after a number of steps, which grows with `decay` above 0.

    Refresh r begins at step interval * (e^(decay r) - 1) / (e^decay - 1). So
    interval r, interval * e^(decay r), is linear in the step.
    """

    def __init__(self, rebuild_interval: int, decay: float = 0.0) -> None:
        self.interval = check_positive_int("rebuild_interval", rebuild_interval)
        self._decay = decay

    def refresh(self, step: Scalar, step_time: Scalar) -> Refresh:
        """The `Refresh` at `step`, int64 scalar."""
        del step_time
        lag = interval = tf.constant(self.interval, tf.int64)
        if self._decay:
            grown = tf.cast(step, tf.float64) * math.expm1(self._decay)
            interval += tf.cast(grown, tf.int64)
        return {"interval": interval, "lag": lag, "drifted": False}


def check_rebuild_interval(value: int | str) -> int | str:
    """A positive integer as an int, or `"auto"`; ValueError for others."""
    if not isinstance(value, str):
        return check_positive_int("rebuild_interval", value)
    wanted = 'a positive integer or "auto"'
    check_value("rebuild_interval", value, value == "auto", wanted)
    return value


class Options:
    """Base of dataclasses that Keras saves as they are."""

    def get_config(self: Any) -> Config:
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: Config) -> Any:
        return cls(**config)


@keras.saving.register_keras_serializable("tfxclass")
@dataclasses.dataclass
class AdaptiveAllocation(Options):
    """Grows the sample, the trees and the rebuild interval during training.

    Use it to reproduce HF-A of the paper. All values change at the start of a
    phase. M is the smallest number for which the M greatest probabilities of an
    example have, on average, at least a given sum. The sample becomes the
    labels of the batch and M other classes, at most `num_sampled`. The given
    sum, trees and interval grow linearly over `ramp_steps`.

    Args:
        phase_steps: int, number of steps in a phase.
        cumulative_probability: `(first, last)` thresholds in (0, 1].
        ramp_steps: int, usually the steps of the whole training.
        num_trees: `(first, last)` ints.
        rebuild_interval: `(first, last)` ints, in steps.
        include_labels: bool, whether M counts the labels of the batch, as the
            paper may mean it. A batch with more labels than M then has no other
            classes. Defaults to False.

    References:
        See `HashingForestSampler`, "HF-A".
    """

    phase_steps: int = 1000
    cumulative_probability: tuple[float, float] = (0.6, 0.95)
    ramp_steps: int = 10_000
    num_trees: tuple[int, int] = (10, 50)
    rebuild_interval: tuple[int, int] = (50, 500)
    include_labels: bool = False

    def __post_init__(self) -> None:
        for name in ("cumulative_probability", "num_trees", "rebuild_interval"):
            value = getattr(self, name)
            wanted = "two numbers, for the first and the last step of the ramp"
            check_value(name, value, np.shape(value) == (2,), wanted)
            setattr(self, name, tuple(value))
        low, high = ends = self.cumulative_probability
        like = "two rising thresholds in (0, 1]"
        check_value("cumulative_probability", ends, 0 < low <= high <= 1, like)
        check_positive_int("phase_steps", self.phase_steps)
        check_positive_int("ramp_steps", self.ramp_steps)
        check_positive_int("num_trees", min(self.num_trees))
        check_positive_int("rebuild_interval", min(self.rebuild_interval))

    def refresh(self, step: Scalar, step_time: Scalar) -> Refresh:
        """The `Refresh` of a forest at `step`, int64 scalar."""
        del step_time
        done = self._done(step - step % self.phase_steps)
        interval = _between(self.rebuild_interval, done)
        refresh = {"interval": interval, "lag": interval, "drifted": False}
        return {**refresh, "num_trees": _between(self.num_trees, done)}

    def threshold(self, step: Scalar) -> tf.Tensor:
        """The required cumulative probability at `step`, float32 scalar."""
        low, high = self.cumulative_probability
        return low + (high - low) * self._done(step)

    def _done(self, step):
        """Which part of the training is done, float32 scalar."""
        return tf.minimum(tf.cast(step, tf.float32) / self.ramp_steps, 1.0)

    def num_classes_for(
        self, step: Scalar, probabilities: tf.Tensor
    ) -> tf.Tensor:
        """The number of classes to compute from `step` on, int64 scalar.

        `probabilities` `[rows, most]` are the greatest ones of some examples.
        """
        reached = tf.reduce_mean(tf.cumsum(probabilities, axis=1), axis=0)
        short = tf.cast(reached < self.threshold(step), tf.int64)
        most = tf.shape(probabilities, tf.int64)[1]
        return tf.minimum(tf.reduce_sum(short) + 1, most)


def _between(ends, done):
    first, last = ends
    value = first + (last - first) * done
    return tf.cast(tf.round(value), tf.int64)


class Drift:
    """Recall of a sampler's index, and the refreshes that keep it up.

    Every so many steps the best classes of a few rows of the batch are found
    exactly. Where the index finds fewer than nine tenths of what it found when
    it was new, by more than chance (`RecallWatch`), it is refreshed. It is also
    refreshed where it is twice as old as the model was when it was begun: the
    recall of an index of hardly trained rows is no measure. A refresh takes
    `refresh_nanoseconds`, roughly, over so many steps that it is a small share
    of their time. The `sampler` gets the weights, and is not kept.
    """

    def __init__(self, sampler: Any, refresh_nanoseconds: float) -> None:
        self._num_classes, self._dim = sampler.num_classes, sampler.dim
        self._normalize = sampler.normalize
        self._nanoseconds = refresh_nanoseconds
        has_cache = sampler.neighbor_cache is not None
        self._share = _SHARE_BESIDE_CACHE if has_cache else _SHARE
        self._most_step = _GPU_STEP if sampler.is_on_gpu() else math.inf
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
        """The `Refresh` at `step`, where a step takes so many nanoseconds."""
        step_time = tf.minimum(step_time, self._most_step)
        lag = part_of_steps(self._nanoseconds, self._share, step_time)
        drifted = tf.equal(step, tf.convert_to_tensor(self.begun))
        return {"interval": tf.constant(NEVER), "lag": lag, "drifted": drifted}

    def watch(
        self,
        step: Scalar,
        step_time: Scalar,
        lag: tf.Tensor,
        queries: tf.Tensor,
        kernel: Variable,
        found: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    ) -> None:
        """Measures the recall where that is due, after the index advanced.

        `found` says which ids, `[n, k]` with -1 for padding, the index finds
        for queries `[n, dim]`; bool `[n, k]`.
        """
        # Products, read at 20 bytes a nanosecond, and a pass for the best.
        cost = 0.2 * self._dim + 1.2 * NUM_PROBES
        every = probe_interval(cost, self._num_classes, step_time)

        def probe():
            measured = self._measure(queries[:NUM_PROBES], kernel, found)
            self._judge(step, lag, *measured)
            return True

        tf.cond(tf.equal(step % every, 0), probe, lambda: False)

    def _judge(self, step, lag, recall, variance):
        """Takes in a probe, unless a refresh is under way; may begin one."""
        self.recall.assign(recall)
        begun, watched = map(tf.convert_to_tensor, (self.begun, self._watched))
        counts = step >= begun + lag
        is_old = step >= OLD_AGE * tf.maximum(begun, 1) + lag
        before = RecallWatch(*map(tf.convert_to_tensor, self._watch))
        after = before.after(recall, variance, begun != watched)
        for weight, old, new in zip(self._watch, before, after):
            weight.assign(tf.where(counts, new, old))
        self._watched.assign(tf.where(counts, begun, watched))
        drifted = counts & (is_old | after.fell(recall))
        self.begun.assign(tf.where(drifted, step + 1, begun))

    def _measure(self, queries, kernel, found):
        """`(recall, variance)` of a probe, float32 scalars."""
        ids, _ = search.top_k(
            queries,
            tf.convert_to_tensor(kernel),
            min(_NUM_BEST, self._num_classes),
            normalize=self._normalize,
        )
        is_class = ids >= 0
        hits = tf.math.count_nonzero(found(queries, ids) & is_class, axis=1)
        recall, variance = recall_of(
            hits, tf.math.count_nonzero(is_class, axis=1)
        )
        last = tf.convert_to_tensor(self.recall)
        return tf.where(tf.reduce_any(is_class), recall, last), variance


class RecallWatch(NamedTuple):
    """Measurements of an index since it was new; float32 scalars."""

    #: Mean recall of its first probes, and how many these are.
    fresh: tf.Tensor
    probes: tf.Tensor
    #: Running means of the recall, and of a probe's variance.
    recent: tf.Tensor
    noise: tf.Tensor

    def after(
        self, recall: tf.Tensor, variance: tf.Tensor, is_new: tf.Tensor
    ) -> "RecallWatch":
        """With one probe more; `is_new` for the first one of an index."""
        probes = tf.where(is_new, 0.0, self.probes)
        fresh = (self.fresh * probes + recall) / (probes + 1)
        counts = probes < _FRESH_PROBES
        first = is_new | (self.noise == 0)
        recent = (1 - _WEIGHT) * self.recent + _WEIGHT * recall
        noise = (1 - _WEIGHT) * self.noise + _WEIGHT * variance
        return RecallWatch(
            tf.where(counts, fresh, self.fresh),
            tf.where(counts, probes + 1, probes),
            tf.where(is_new, recall, recent),
            tf.where(first, variance, noise),
        )

    def fell(self, recall: tf.Tensor) -> tf.Tensor:
        """Whether the recall fell below 0.9 times the one of the new index.

        It fell by more than noise. The last probe, `recall`, tells a sudden
        fall, and the mean a slow one.
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

    The index found `hits` classes for each query, of `wanted`. The variance is
    measured between the queries, whose hits come together, and is never below
    the one of independent hits, which is over 0.
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
