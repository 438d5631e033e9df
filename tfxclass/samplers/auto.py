"""Uniform sampling where that is nearly exact, and neighbors elsewhere."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.rows.blocks import effective_classes
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.samplers import neighbor_cache
from tfxclass.samplers.forest import Forest
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.samplers.indexed import candidate_count
from tfxclass.samplers.indexed import free_slots
from tfxclass.samplers.indexed import is_among
from tfxclass.samplers.indexed import neighbors_a_row
from tfxclass.samplers.indexed import sample_with_candidates
from tfxclass.samplers.sampler import NUM_PROBES
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import count_labels
from tfxclass.samplers.sampler import probe_interval
from tfxclass.samplers.schedule import Drift
from tfxclass.types import Scalar
from tfxclass.types import Variable

# Neighbors pay where v (1 - p_y) is above this times the ratio of costs.
_PAYS_ABOVE = 0.5
# Extra probes at first, at half of an interval, a quarter, and so on: class
# vectors that uniform samples alone have moved for long stay worse.
_EARLY_PROBES = 5
# The weight of the old estimate when a probe gives a new one.
_KEPT = 0.5
_GAUGES = "k_eff", "v", "noise"


@keras.saving.register_keras_serializable("tfxclass")
class AutoSampler(IndexedSampler):
    """Uniform samples, plus similar classes when that helps (`"auto"`).

    It is the default of `SampledSoftmax`, and needs no tuning. It measures how
    noisy uniform samples are, and adds classes similar to the labels while the
    noise costs more than the search.

    The noise is the mean of v (1 - p_y), computed exactly for 16 examples from
    time to time. Here v = N / (m k_eff) is the relative variance of the uniform
    estimate from m negatives of N classes, and 1 - p_y the model's uncertainty
    about the labels. k_eff = (sum p)^2 / sum p^2 is the effective number of
    other classes that share the rest of the probability mass. Similar classes
    get `neighbor_fraction` of the sample while the noise exceeds half the
    relative cost of a step with them (`choice` 1), and none below half of this
    threshold (`choice` 0). Costs come from a model, so a run can be repeated.

    Similar classes come from a `NeighborCache`, which has no index to build. On
    GPUs, in shards and on parameter servers a hashing forest is used instead.
    `tfxclass.callbacks.SamplerLog` shows `"k_eff"` (geometric mean), `"v"`,
    `"noise"`, `"choice"` and `"recall"`: the fraction of an example's eight
    best other classes that are cached, or as in `HashingForestSampler`.

    Args:
        num_sampled, seed: as in `Sampler`.
        neighbor_fraction: as in `HashingForestSampler`.

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(
        1_000_000, sampler=tfxclass.samplers.AutoSampler(4096)
    )
    ```

    References:
        See `HashingForestSampler` (HF-A) and `NeighborCache`.
    """

    # No row searches an index: cached neighbors are enough on a CPU.
    default_query_fraction = 0.0
    # A uniform step is short where neighbors pay at all, so a larger search
    # would cost more than it brings.
    max_oversampling = 2
    may_cache = correct_fill = True

    def __init__(self, num_sampled: int | None = None, **kwargs: Any) -> None:
        super().__init__(num_sampled, **kwargs)
        # A query takes a third of the time that it takes in the forest of a
        # `HashingForestSampler`.
        self.source = Forest(20, 50, 64, None, self.seed)

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        super().build(kernel_shape)
        if self.neighbor_cache is None:
            self.schedule = Drift(self, self.source.build_nanoseconds())
        for name in (*_GAUGES, "choice"):
            self.gauge(name)
        if self.neighbor_cache is not None:
            self.gauge("recall")

    def cost_ratio(self, queries: tf.Tensor) -> tf.Tensor:
        """Modeled relative cost of a step with similar classes, float64."""
        step = self.step_time(queries)
        if self.neighbor_cache is not None:
            search = neighbor_cache.nanoseconds_of(self.num_classes, self.dim)
        else:
            search = self.source.query_nanoseconds()
        rows = tf.cast(tf.shape(queries)[0], tf.float64)
        # Comparing and choosing candidates takes a part of a step, too.
        return (1.5 * step + rows * search) / step

    def sample(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Sample:
        self._decide(queries, target_ids, kernel)
        num_sampled = self.size_for(count_labels(target_ids))
        budget = self.candidate_budget(num_sampled)
        found = self._find(queries, target_ids, kernel, budget)
        return sample_with_candidates(
            self, target_ids, num_sampled, found, self.candidate_share()
        )

    def _decide(self, queries, target_ids, kernel):
        # Products and norms of rows, and four passes over the logits.
        cost = 0.4 * self.dim + 5.0 * NUM_PROBES
        step_time = self.step_time(queries)
        every = probe_interval(cost, self.num_classes, step_time)
        due = _is_due(tf.convert_to_tensor(self.step), every)

        def probe(queries, target_ids):
            self._probe(queries, target_ids, kernel)
            return True

        if tf.inside_function() and not self.is_on_servers:
            # As a function call, a step without a probe passes one op, not
            # hundreds. Calls cannot read variables of a parameter server.
            probe = tf.function(
                probe,
                autograph=False,
                experimental_attributes={"_noinline": True},
            )
        tf.cond(due, lambda: probe(queries, target_ids), lambda: False)

    def _probe(self, queries, target_ids, kernel):
        """Measures the noise, and chooses by it."""
        labels = target_ids[:NUM_PROBES, self.num_negatives :]
        width = neighbor_cache.width_of(self.num_classes) + tf.shape(labels)[1]
        found = effective_classes(
            queries[:NUM_PROBES],
            target_ids[:NUM_PROBES],
            ClassRows(tf.convert_to_tensor(kernel), normalize=self.normalize),
            num_best=tf.minimum(width, self.num_classes),
            max_queries=NUM_PROBES,
        )
        if self.neighbor_cache is not None:
            recall = self._recall(found.best, labels)
            self.measured["recall"].assign(recall)
        measured = self._measured(found, target_ids)
        for name, value in zip(_GAUGES, measured, strict=True):
            self.measured[name].assign(value)
        level = tf.cast(measured[2], tf.float64)
        level /= _PAYS_ABOVE * self.cost_ratio(queries)
        self.measured["choice"].assign(self._choose(level))

    def _choose(self, level):
        """The choice at a noise of `level` times the threshold, float32."""
        # It rises at the threshold, and falls below half of it.
        rises, stays = tf.unstack(tf.cast(level >= [1.0, 0.5], tf.float32))
        return tf.maximum(rises, stays * self._state("choice"))

    def _measured(self, found, target_ids):
        """`(k_eff, v, noise)` of the rows of a probe, in their batch."""
        k_eff, missed, counts, _ = found
        size = self.size_for(count_labels(target_ids))
        num_sampled = tf.cast(size, tf.int64)
        negatives = tf.maximum(free_slots(target_ids, num_sampled), 1)
        v = self.num_classes / (tf.cast(negatives, tf.float32) * k_eff)
        # Where all classes are computed there is no noise.
        v = tf.where(num_sampled >= self.num_classes, 0.0, v)
        weights = tf.cast(counts, tf.float32)
        of_rows = tf.stack([tf.math.log(k_eff), v, v * missed])
        total = tf.reduce_sum(weights)
        log_k_eff, v, noise = tf.unstack(
            tf.math.divide_no_nan(tf.linalg.matvec(of_rows, weights), total)
        )
        old = [self._state(name) for name in _GAUGES]
        noise = _KEPT * old[2] + (1 - _KEPT) * noise
        new = tf.exp(log_k_eff), v, noise
        return tf.unstack(tf.where(total > 0, new, old))

    def _state(self, name):
        return tf.convert_to_tensor(self.measured[name])

    def _recall(self, best, labels):
        """The cached fraction of the best classes that are no labels."""
        width = neighbor_cache.width_of(self.num_classes)
        is_other = (best >= 0) & ~is_among(best, labels)
        is_other &= tf.cumsum(tf.cast(is_other, tf.int32), axis=1) <= width
        kept = self.neighbor_cache.neighbors(tf.reshape(labels, [-1]))
        rows, num_labels = tf.unstack(tf.shape(labels))
        kept = tf.reshape(kept, [rows, num_labels * width])
        hits = is_other & is_among(best, kept)
        hits, others = (tf.cast(x, tf.float32) for x in (hits, is_other))
        return tf.math.divide_no_nan(tf.reduce_sum(hits), tf.reduce_sum(others))

    def candidate_share(self) -> tf.Tensor:
        """Fraction of the non-label places kept for similar classes."""
        return self._state("choice") * self.neighbor_fraction

    def candidate_budget(self, num_sampled: Scalar) -> tf.Tensor:
        """How many similar classes to look for, int64 scalar."""
        chosen = candidate_count(num_sampled, self.neighbor_fraction)
        return chosen * tf.cast(self._state("choice"), tf.int64)

    def _find(self, queries, target_ids, kernel, budget):
        """`(ids, scores)` of similar classes; none where the budget is 0."""
        step, has_budget = tf.convert_to_tensor(self.step), budget > 0
        if self.neighbor_cache is not None:
            # Looking up zero rows is cheaper than a tf.cond.
            rows = tf.where(has_budget, tf.shape(queries)[0], 0)
            batch = queries[:rows], target_ids[:rows]
            wanted = neighbors_a_row(*batch, budget, None, self.num_classes)
            wanted *= self.oversampling()
            return self.neighbor_cache.find(*batch, kernel, wanted, step)

        def searched():
            self.advance(queries, kernel)
            found = self.source.find(queries, target_ids, kernel, budget, step)
            return tuple(tf.reshape(part, [-1]) for part in found)

        nothing = tf.zeros([0], tf.int64), tf.zeros([0])
        return tf.cond(has_budget, searched, lambda: nothing)


def _is_due(step, every):
    """Whether a probe is due, bool scalar: also sooner than usual, at first."""
    early = every // [2**k for k in range(1, _EARLY_PROBES + 1)]
    return tf.equal(step % every, 0) | tf.reduce_any(tf.equal(step, early))
