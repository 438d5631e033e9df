"""The classes of the batch itself, and of those before."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_fraction
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.core.targets import places_of
from tfxclass.keras_internals import tf_variable
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler
from tfxclass.samplers.sampler import clip
from tfxclass.types import Scalar
from tfxclass.types import Variable

# Steps between two batches with a class that was never seen.
_NEVER = 1e6


@keras.saving.register_keras_serializable("tfxclass")
class BatchSampler(Sampler):
    """In-batch negatives: the labels of the other examples in the batch.

    Use it to train a retrieval model with two towers. Frequent classes are in
    many batches, and would be pushed down. Therefore the loss subtracts the log
    of the fraction of batches that contain the class (log-Q correction). It is
    estimated from a moving average of the steps between two batches with the
    class, so no counts are needed. The labels of an example, and hard negatives
    that come with it (`num_negatives`), are in its sample with probability 1,
    so nothing is subtracted from their logits. The expected gradient is close
    to the gradient of the full softmax (Khrylchenko et al., 2025).

    Args:
        num_sampled, seed: as in `Sampler`. Places that labels and memory do not
            fill are left out of the loss. By default there are none.
        memory: int >= 0, number of labels of earlier batches that are
            negatives, too, with their current class vectors. Defaults to 0.
        rate: float in (0, 1], rate of the moving average. Defaults to 0.05.
        num_buckets: int. Classes with the same id modulo `num_buckets` share an
            estimate. Each takes 8 bytes. Defaults to 2^20.
        correct_labels: bool, whether the log of the fraction is also subtracted
            from the logits of an example's own labels, as Yi et al. (2019) do.
            Rare labels are then pulled up too little. Defaults to False.
        correct_negatives: bool, whether the log of the fraction is subtracted
            from the logits of negatives. Without it, frequent classes are
            pushed down. That can be wanted where scores of another model, which
            knows frequent classes well, are added. Defaults to True.

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(
        1_000_000, sampler=tfxclass.samplers.BatchSampler(memory=8192)
    )
    ```

    References:
        Khrylchenko et al., Correcting the LogQ Correction: Revisiting Sampled
        Softmax for Large-Scale Retrieval, RecSys 2025 (arXiv 2507.09331).
        Yi et al., Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
        Recommendations, RecSys 2019 (Algorithm 2).
        Wang et al., Cross-Batch Negative Sampling for Training Two-Tower
        Recommenders, SIGIR 2021.
    """

    estimates_sums = False
    reads_class_vectors = False

    def __init__(
        self,
        num_sampled: int | None = None,
        memory: int = 0,
        rate: float = 0.05,
        num_buckets: int = 1 << 20,
        correct_labels: bool = False,
        correct_negatives: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, seed=seed, **kwargs)
        is_size = isinstance(memory, int) and memory >= 0
        check_value("memory", memory, is_size, "an int >= 0")
        self.memory = memory
        self.rate = check_fraction("rate", rate)
        self.num_buckets = check_positive_int("num_buckets", num_buckets)
        self.correct_labels = bool(correct_labels)
        self.correct_negatives = bool(correct_negatives)
        if correct_labels and not correct_negatives:
            raise ValueError(
                "`correct_labels=True` needs `correct_negatives=True`. "
                f"Received: correct_negatives={correct_negatives}"
            )

    def size_for(self, num_labels: Scalar) -> Scalar:
        if not self.follows_batch:
            return self.num_sampled
        # There is nothing else that could be a negative.
        return clip(num_labels + self.memory, 1, self.num_classes)

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        self.step = self.add_state("step", 0, dtype="int64")
        shape = (self.num_buckets,)
        self.last_step = self.add_state("last_step", -1, shape, "int32")
        self.interval = self.add_state("interval", _NEVER, shape)
        # In how many steps the labels of a full memory came.
        self.span = self.add_state("span", 1)
        self.recent = self.add_state("recent", -1, (self.memory,), "int64")

    def sample(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Sample:
        recent = tf.convert_to_tensor(self.recent)
        # The last ones first, where there is no place for all.
        age = -tf.range(self.memory, dtype=tf.float32)
        chosen = self.choose(
            target_ids, candidates=recent, scores=age, sample_overflow=False
        )
        self._note(target_ids[:, self.num_negatives :])
        count = chosen.num_targets + chosen.num_candidates
        is_in = tf.range(tf.size(chosen.ids, tf.int64)) < count
        rows = tf.shape(target_ids)[0]
        is_plain = self._is_given(chosen) | (not self.correct_negatives)
        log_count = tf.where(is_plain, 0.0, self._log_expected(chosen.ids))
        at = tf.maximum(chosen.positions, 0)
        of_targets = tf.where(target_ids >= 0, tf.gather(log_count, at), 0.0)
        if not self.correct_labels:
            log_count = self._without_own(log_count, chosen.positions)
        return Sample(
            chosen.ids,
            log_count,
            chosen.positions,
            of_targets,
            tf.repeat(is_in[tf.newaxis], rows, axis=0),
        )

    def _without_own(self, log_count, positions):
        """`[n]` for each row, with 0 at the row's own labels; `[rows, n]`."""
        own = positions[:, self.num_negatives :]
        log_count = tf.repeat(log_count[tf.newaxis], tf.shape(own)[0], axis=0)
        _, at = places_of(own)
        zeros = tf.zeros([tf.shape(at)[0]])
        return tf.tensor_scatter_nd_update(log_count, at, zeros)

    def _is_given(self, chosen):
        """Which classes are in for sure: negatives, and no labels; `[n]`."""
        places = tf.range(tf.size(chosen.ids, tf.int64))
        if not self.num_negatives:
            return tf.zeros_like(places, tf.bool)
        labels = chosen.positions[:, self.num_negatives :]
        labels = tf.boolean_mask(labels, labels >= 0)
        count = tf.math.bincount(
            tf.cast(labels, tf.int32), minlength=tf.size(chosen.ids)
        )
        return (places < chosen.num_targets) & (count == 0)

    def _log_expected(self, ids):
        """Log of the probability that a class is in a step, `[n]`."""
        interval = tf.gather(self.interval.value, ids % self.num_buckets)
        steps = tf.convert_to_tensor(self.span) if self.memory else 1.0
        return tf.minimum(tf.math.log(steps / interval), 0.0)

    def _note(self, target_ids):
        """Counts a step with these labels."""
        labels = tf.boolean_mask(target_ids, target_ids >= 0)
        buckets, _ = tf.unique(labels % self.num_buckets)
        step = self.step.value + 1
        now = tf.cast(step, tf.int32)
        last = tf.gather(self.last_step.value, buckets)
        since = tf.cast(now - tf.maximum(last, 0), tf.float32)
        before = tf.gather(self.interval.value, buckets)
        mean = before + self.rate * (since - before)
        # Nothing is known before the second time.
        mean = tf.where(last < 0, since, mean)
        self.step.assign(step)
        _scatter(self.interval, buckets, mean)
        _scatter(self.last_step, buckets, tf.fill(tf.shape(buckets), now))
        if self.memory:
            self._remember(labels)

    def _remember(self, labels):
        recent = tf.concat([labels, self.recent.value], axis=0)
        self.recent.assign(recent[: self.memory])
        steps = self.memory / tf.maximum(tf.size(labels), 1)
        steps = 1.0 + tf.cast(steps, tf.float32)
        # No more than there have been.
        self.span.assign(
            tf.minimum(steps, tf.cast(self.step.value, tf.float32))
        )

    def for_rows(self, first: int, num_rows: int, **options: Any) -> Sampler:
        raise ValueError(
            "A BatchSampler does not work in a ShardedSoftmax, which samples "
            "a part of the classes at a time. Fix: use SampledSoftmax."
        )

    def index_bytes(self, num_classes: int, dim: int) -> int:
        return 8 * self.num_buckets


def _scatter(variable, places, values):
    slices = tf.IndexedSlices(values, places)
    tf_variable(variable).scatter_update(slices)
