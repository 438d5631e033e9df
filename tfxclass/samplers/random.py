"""Samplers that know nothing of the features."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.core.class_update import ClassUpdate
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Config
from tfxclass.types import Variable


class _RandomSampler(Sampler):
    is_stateless = True
    reads_class_vectors = False
    _fill = None
    _cumulative = None

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        self.built = True

    def sample(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Sample:
        chosen = self.choose(
            target_ids, fill=self._fill, cumulative=self._cumulative
        )
        return Sample(
            chosen.ids,
            chosen.log_expected_count,
            chosen.positions,
            chosen.target_log_expected_count,
        )


@keras.saving.register_keras_serializable("tfxclass")
class UniformSampler(_RandomSampler):
    """The labels of the batch, then classes drawn uniformly.

    Draws are without replacement among the classes that are no label of the
    batch, so the loss's estimate of the sum of exponentials is unbiased
    (Horvitz-Thompson), and every other label serves as a negative for free.

    Args:
        num_sampled: int, number of classes a step, labels included.
        seed: int.
    """

    _fill = "uniform"


@keras.saving.register_keras_serializable("tfxclass")
class LogUniformSampler(_RandomSampler):
    """The labels of the batch, then classes by a log-uniform law.

    For classes numbered by falling frequency: P(c) = log((c + 2) / (c + 1)) /
    log(num_classes + 1), drawn until `num_sampled` are distinct. The loss's
    estimate of the sum of exponentials is unbiased, as `FrequencySampler`'s.

    Args:
        num_sampled: int, number of classes a step, labels included.
        seed: int.
    """

    _fill = "log_uniform"

    def for_rows(
        self,
        first: int,
        num_rows: int,
        num_sampled: int | None,
        seed: int | None,
    ) -> Sampler:
        """By the same law, restricted to the rows."""
        if not first:
            return super().for_rows(first, num_rows, num_sampled, seed)
        ranks = np.arange(first, first + num_rows, dtype=np.float64)
        law = np.log1p(1 / (ranks + 1))
        return FrequencySampler(num_sampled, law, seed=seed)


@keras.saving.register_keras_serializable("tfxclass")
class FrequencySampler(_RandomSampler):
    """The labels of the batch, then classes by their frequency.

    P(c) is proportional to `counts[c] ** power`; draws go on until
    `num_sampled` are distinct. Given the others, a class is in with
    probability 1 - exp(-P(c) t), where t is when the first class that is left
    out would have come; with it the loss's estimate of the sum of exponentials
    is unbiased. A draw is a binary search among `num_classes` running sums (8
    bytes a class). For that every class must be drawn now and then: a count
    below `min_count`, and zero above all, counts as `min_count`.

    Args:
        num_sampled: int, number of classes a step, labels included.
        counts: numbers >= 0, `[num_classes]`, how frequent the classes are.
        power: float >= 0; 0.75 is word2vec's, 0 draws uniformly.
        min_count: float > 0, the least that a class counts; by default the
            least count above zero: a class that never occurred is drawn as
            often as the rarest that did.
        seed: int.

    References:
        Mikolov et al., Distributed Representations of Words and Phrases and
        their Compositionality, NeurIPS 2013.
        Cohen & Kaplan, Summarizing Data using Bottom-k Sketches, PODC 2007.
    """

    _fill = "frequency"

    def __init__(
        self,
        num_sampled: int | None,
        counts: ArrayLike,
        power: float = 1.0,
        min_count: float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, seed=seed, **kwargs)
        if not 0 <= power < float("inf"):
            raise ValueError(f"`power` must be >= 0. Received: {power}")
        if min_count is not None and not 0 < min_count < float("inf"):
            raise ValueError(f"`min_count` must be > 0. Received: {min_count}")
        self.counts = _check_counts(counts)
        self.power = power
        self.min_count = min_count
        with tf.init_scope():
            self._cumulative = tf.constant(self._sums(), tf.float64)

    def _sums(self):
        """Running sums of the weights of the classes, float64."""
        counts = self._at_least()
        return np.cumsum((counts / counts.max()) ** self.power)

    def _at_least(self):
        """What each class counts, float64 above 0."""
        least = self.min_count
        if least is None:
            least = self.counts[self.counts > 0].min()
        return np.maximum(self.counts, least)

    def index_bytes(self, num_classes: int, dim: int) -> int:
        return 16 * num_classes  # counts and their running sums

    def check_for(self, num_classes: int) -> None:
        if len(self.counts) != num_classes:
            raise ValueError(
                "`counts` must have a number for each class. Received: "
                f"{len(self.counts)} counts with num_classes={num_classes}."
            )

    def for_rows(
        self,
        first: int,
        num_rows: int,
        num_sampled: int | None,
        seed: int | None,
    ) -> Sampler:
        """By the same law, restricted to the rows."""
        counts = self._at_least()[first : first + num_rows]
        # Padding is drawn now and then, and counts nothing.
        short = num_rows - len(counts)
        counts = np.pad(counts, (0, short), constant_values=counts.min())
        return FrequencySampler(
            num_sampled, counts, power=self.power, seed=seed
        )

    def changed_config(self, change: ClassUpdate) -> Config:
        counts = change.resize_counts(self.counts)
        return {**self.get_config(), "counts": counts}

    def get_config(self) -> Config:
        # An array: Keras writes a list element by element.
        return {
            **super().get_config(),
            "counts": self.counts,
            "power": self.power,
            "min_count": self.min_count,
        }


def _check_counts(counts):
    """`counts` as float64 `[num_classes]`."""
    if isinstance(counts, dict):
        counts = keras.saving.deserialize_keras_object(counts)
    counts = np.array(counts, np.float64)
    if counts.ndim != 1:
        raise ValueError(
            f"`counts` must have shape [num_classes]. Received: {counts.shape}"
        )
    if not np.all(np.isfinite(counts) & (counts >= 0)):
        bad = np.flatnonzero(~(np.isfinite(counts) & (counts >= 0)))[0]
        raise ValueError(
            "`counts` must be finite and >= 0. Received: "
            f"{counts[bad]} for class {bad}"
        )
    if not np.any(counts):
        raise ValueError(
            "`counts` must not all be zero. Received: "
            f"{len(counts)} counts without one above zero."
        )
    return counts
