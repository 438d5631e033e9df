"""Uniform draws where they are nearly exact, neighbours where they are not."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.rows.class_rows import ClassRows
from tfxclass.samplers import remembered
from tfxclass.samplers.candidates import part_of
from tfxclass.samplers.drift import NUM_PROBES
from tfxclass.samplers.drift import PROBE_NANOSECONDS
from tfxclass.samplers.drift import PROBE_SHARE
from tfxclass.samplers.drift import batch_of
from tfxclass.samplers.drift import part_of_steps
from tfxclass.samplers.drift import step_nanoseconds
from tfxclass.samplers.effective import effective_classes
from tfxclass.samplers.hashing_forest import HashingForestSampler
from tfxclass.samplers.sample_size import count_labels
from tfxclass.samplers.sampler import Sample
from tfxclass.types import Config
from tfxclass.types import Scalar
from tfxclass.types import Variable

#: Neighbours pay where v (1 - p_y) is above this times the ratio of costs.
PAYS_ABOVE = 0.5
# So many probes come early, at half of an interval, a quarter, and so on: rows
# that uniform draws alone have moved for long stay worse.
_EARLY_PROBES = 5
# Of an old estimate, a probe.
_KEPT = 0.5


@keras.saving.register_keras_serializable("tfxclass")
class AutoSampler(HashingForestSampler):
    """Uniform draws, and neighbours of the labels where these pay.

    The relative variance of uniform's estimate of the negatives' mass is
    v = N / (m k_eff), for m negatives of N classes and k_eff = (sum p)^2 /
    sum p^2 over the classes that are not labels; it counts for a row as far as
    the row does not know its labels, 1 - p_y. Every so many steps both are
    computed exactly for 16 rows of the batch. Where v (1 - p_y), averaged over
    probes, exceeds half the ratio of the costs of a step with neighbours and
    one without (by a model of them, so that a run can be repeated), half of
    the places (`neighbor_fraction`) are for neighbours (`choice` 1: uniform
    mixed with neighbours). Below half of that it falls back to uniform draws
    alone (0).

    Neighbours are what is remembered: the best that were seen of each label,
    neighbours of theirs, and labels of rows that lately had like features, by
    hash tables that are written as rows come by. So there is no index that is
    built, and none that is late. On GPUs, in shards and on parameter servers a
    hashing forest finds them.

    Metrics, by `tfxclass.metrics.SamplerState`: `"k_eff"` and `"v"` (geometric
    mean, mean), `"noise"` (v (1 - p_y), averaged), `"choice"` and `"recall"`
    (of a row's eight best other classes, those that are remembered of its
    labels; of a forest as `HashingForestSampler` has it, and not where that is
    rebuilt at fixed intervals).

    Args:
        num_sampled: int, number of classes a step, labels included.
        num_trees, leaf_size: of the forest; fewer trees and smaller cells than
            `HashingForestSampler` has, a third of the time a query.
        query_share: float in (0, 1], part of the rows that the forest is asked
            for as well, of `HashingForestSampler`; by default it is not,
            where neighbours can be remembered.
        num_neighbors, num_candidates, rebuild_interval, neighbor_fraction,
            correct_fill, seed: of `HashingForestSampler`.

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018 (phases and exact rows, HF-A).
        `Remembered` has those of the search.
    """

    # What is beyond costs more than it brings: a step of uniform draws is
    # short where this pays at all.
    most_times = 2
    usual_share = 0.0

    def __init__(
        self,
        num_sampled: int | None = None,
        num_trees: int = 20,
        leaf_size: int = 50,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("allocation") is not None:
            raise ValueError(
                "`allocation` belongs to a HashingForestSampler; an "
                "AutoSampler decides by itself. Received: "
                f"{kwargs['allocation']!r}"
            )
        super().__init__(
            num_sampled, num_trees=num_trees, leaf_size=leaf_size, **kwargs
        )

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        super().build(kernel_shape)
        self.dim = kernel_shape[1]
        self.forest_trees, _ = self.trees_and_sketch(*kernel_shape)
        for name in ("k_eff", "v", "noise", "choice"):
            self.gauge(name)
        # A drift measures that of a forest.
        self.measures_recall = (
            self.drift is None and self.remembered is not None
        )
        if self.measures_recall:
            self.gauge("recall")

    def _state(self, name):
        return tf.convert_to_tensor(self.measured[name])

    def cost_ratio(self, batch: Scalar) -> Scalar:
        """Of a step with neighbours over one without, by a model."""
        step = step_nanoseconds(batch, self.size_for(batch), self.dim)
        rows = batch if isinstance(batch, int) else tf.cast(batch, tf.float64)
        search = 0.0
        if self.remembered is not None:
            search = remembered.nanoseconds_of(self.num_classes, self.dim)
        share = self.share_of_queries()
        if share > 0:
            walk = self.forest_trees * (
                100 + self.levels * (20 + self.dim / 16)
            )
            scored = (self.num_candidates or 10 * self.leaf_size) * 100
            search += share * (walk + scored)
        # What is compared and chosen takes a part of a step, too.
        return (1.5 * step + rows * search) / step

    def sample(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Sample:
        self._decide(queries, target_ids, kernel)
        return super().sample(queries, target_ids, kernel)

    def _decide(self, queries, target_ids, kernel):
        batch = batch_of(queries)
        # Products and norms of rows, and four passes over the logits.
        cost = self.num_classes * (0.4 * self.dim + 5.0 * NUM_PROBES)
        cost += PROBE_NANOSECONDS
        step = step_nanoseconds(batch, self.size_for(batch), self.dim)
        every = part_of_steps(cost, PROBE_SHARE, step)
        due = _is_due(tf.convert_to_tensor(self.step), every)

        def probe(queries, target_ids):
            self._probe(queries, target_ids, kernel, batch)
            return True

        if tf.inside_function() and not self.is_on_servers:
            # A call: a step without a probe passes one op, not hundreds. (None
            # can be made with the rows of a parameter server.)
            probe = tf.function(
                probe,
                autograph=False,
                experimental_attributes={"_noinline": True},
            )
        tf.cond(due, lambda: probe(queries, target_ids), lambda: False)

    def _probe(self, queries, target_ids, kernel, batch):
        """Measures the noise, and chooses by it."""
        labels = target_ids[:NUM_PROBES, self.num_negatives :]
        width = remembered.width_of(self.num_classes) + tf.shape(labels)[1]
        found = effective_classes(
            queries[:NUM_PROBES],
            target_ids[:NUM_PROBES],
            ClassRows(
                tf.convert_to_tensor(kernel),
                normalize=self.similarity == "cosine",
            ),
            num_best=tf.minimum(width, self.num_classes),
            most_queries=NUM_PROBES,
        )
        if self.measures_recall:
            recall = self._recall(found.best, labels)
            self.measured["recall"].assign(recall)
        measured = self._measured(found, target_ids)
        for name, value in zip(("k_eff", "v", "noise"), measured, strict=True):
            self.measured[name].assign(value)
        level = tf.cast(measured[2], tf.float64)
        level /= PAYS_ABOVE * self.cost_ratio(batch)
        self.measured["choice"].assign(self._choose(level))

    def _choose(self, level):
        """The choice at a noise of `level` times the threshold, float32."""
        # It rises at the threshold, and falls below half of it.
        rises, stays = tf.unstack(tf.cast(level >= [1.0, 0.5], tf.float32))
        return tf.maximum(rises, stays * self._state("choice"))

    def _measured(self, found, target_ids):
        """`(k_eff, v, noise)` of the rows of a probe, in their batch."""
        k_eff, missed, counts, _ = found
        labels = tf.unique(tf.reshape(target_ids, [-1])).y
        num_labels = tf.reduce_sum(tf.cast(labels >= 0, tf.int32))
        num_sampled = tf.cast(self.size_for(count_labels(target_ids)), tf.int32)
        negatives = tf.maximum(num_sampled - num_labels, 1)
        v = self.num_classes / (tf.cast(negatives, tf.float32) * k_eff)
        # Where all classes are computed there is no noise.
        v = tf.where(num_sampled >= self.num_classes, 0.0, v)
        weights = tf.cast(counts, tf.float32)
        of_rows = tf.stack([tf.math.log(k_eff), v, v * missed])
        total = tf.reduce_sum(weights)
        log_k_eff, v, noise = tf.unstack(
            tf.math.divide_no_nan(tf.linalg.matvec(of_rows, weights), total)
        )
        old = [self._state(name) for name in ("k_eff", "v", "noise")]
        noise = _KEPT * old[2] + (1 - _KEPT) * noise
        new = tf.exp(log_k_eff), v, noise
        return tuple(tf.unstack(tf.where(total > 0, new, old)))

    def _recall(self, best, labels):
        """Of the best classes that are no labels, the part remembered."""
        width = remembered.width_of(self.num_classes)
        is_other = (best >= 0) & ~_among(best, labels)
        is_other &= tf.cumsum(tf.cast(is_other, tf.int32), axis=1) <= width
        kept = self.remembered.kept(tf.reshape(labels, [-1]))
        rows, num_labels = tf.unstack(tf.shape(labels))
        kept = tf.reshape(kept, [rows, num_labels * width])
        hits = is_other & _among(best, kept)
        count = [
            tf.reduce_sum(tf.cast(x, tf.float32)) for x in (hits, is_other)
        ]
        return tf.math.divide_no_nan(*count)

    def candidate_share(self) -> tf.Tensor:
        return self._state("choice") * self.neighbor_fraction

    def places(self, num_sampled: Scalar, share: Scalar) -> tf.Tensor:
        # A constant times the choice, instead of eight ops.
        chosen = part_of(num_sampled, self.neighbor_fraction)
        return chosen * tf.cast(self._state("choice"), tf.int64)

    def found(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        places: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        find, has_places = super().found, places > 0
        if self.share_of_queries() == 0:
            # What is remembered of no rows is found sooner than a condition.
            rows = tf.where(has_places, tf.shape(queries)[0], 0)
            return find(queries[:rows], target_ids[:rows], kernel, places)

        def searched():
            found = find(queries, target_ids, kernel, places)
            return tuple(tf.reshape(part, [-1]) for part in found)

        nothing = tf.zeros([0], tf.int64), tf.zeros([0])
        return tf.cond(has_places, searched, lambda: nothing)

    def get_config(self) -> Config:
        config = super().get_config()
        del config["allocation"]
        return config


def _is_due(step, every):
    """Whether a probe is due, bool scalar: also sooner than usual, at first."""
    early = every // [2**k for k in range(1, _EARLY_PROBES + 1)]
    return tf.equal(step % every, 0) | tf.reduce_any(tf.equal(step, early))


def _among(ids, others):
    """Which of `ids` `[n, k]` are among `others` `[n, m]` of their row."""
    return tf.reduce_any(ids[:, :, tf.newaxis] == others[:, tf.newaxis], axis=2)
