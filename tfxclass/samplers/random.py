"""Samplers that know nothing of the features."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.checks import as_numbers_of_classes
from tfxclass.checks import check_nonnegative
from tfxclass.checks import check_one_per_class
from tfxclass.checks import check_positive
from tfxclass.core.class_update import ClassUpdate
from tfxclass.ops import library
from tfxclass.ops.fallback.refused import BY_FREQUENCY
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Variable


class _RandomSampler(Sampler):
    is_stateless = True
    reads_class_vectors = False
    _fill: str | None = None
    _cumulative = None

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        super().build(kernel_shape)
        if self._fill != "uniform":
            library.require_compiled(BY_FREQUENCY)

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
    """The labels of the batch, and other classes sampled uniformly.

    Use it as a fast default, when classes are not very similar. Classes are
    sampled without replacement among those that are not labels of the batch.
    The estimate of the sum of exponentials is unbiased (Horvitz-Thompson), and
    the labels of other examples are negatives, too.

    Args:
        num_sampled, seed: as in `Sampler`.

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(
        1_000_000, sampler=tfxclass.samplers.UniformSampler(4096)
    )
    ```
    """

    _fill = "uniform"


@keras.saving.register_keras_serializable("tfxclass")
class LogUniformSampler(_RandomSampler):
    """The labels of the batch, and classes sampled log-uniformly.

    Use it as `UniformSampler`, for classes numbered by falling frequency, such
    as words, if counts are not known. The probability is P(c) = log((c + 2) /
    (c + 1)) / log(num_classes + 1), sampled until `num_sampled` classes are
    distinct. The estimate is unbiased, as with `FrequencySampler`.

    Args:
        num_sampled, seed: as in `Sampler`.

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(
        50_000, sampler=tfxclass.samplers.LogUniformSampler(1024)
    )
    ```
    """

    _fill = "log_uniform"

    def for_rows(self, first: int, num_rows: int, **options: Any) -> Sampler:
        """A copy with this distribution, for the given classes only."""
        if not first:
            return super().for_rows(first, num_rows, **options)
        ranks = np.arange(first, first + num_rows, dtype=np.float64)
        law = np.log1p(1 / (ranks + 1))
        return FrequencySampler(counts=law, **options)


@keras.saving.register_keras_serializable("tfxclass")
class FrequencySampler(_RandomSampler):
    """The labels of the batch, and classes sampled by their frequency.

    Use it for classes with very different frequencies, if counts are known.
    P(c) is proportional to `counts[c] ** power`, and sampling continues until
    `num_sampled` classes are distinct. With the probability 1 - exp(-P(c) t) of
    a class, where t is the time at which the first left-out class would have
    come, the estimate of the sum of exponentials is unbiased.

    Args:
        num_sampled, seed: as in `Sampler`.
        counts: numbers >= 0, `[num_classes]`, frequencies of the classes.
        power: float >= 0. 0.75 is word2vec's, and 0 is uniform. Defaults to 1.
        min_count: float > 0, replaces lower counts, such as zero: every class
            needs a positive probability. Defaults to the lowest positive count.

    Example:

    ```python
    counts = np.arange(10_000, 0, -1)
    sampler = tfxclass.samplers.FrequencySampler(1024, counts, power=0.75)
    head = tfxclass.layers.SampledSoftmax(10_000, sampler=sampler)
    ```

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
        check_nonnegative("power", power)
        if min_count is not None:
            check_positive("min_count", min_count)
        # An array: Keras writes a list element by element.
        self.counts = as_numbers_of_classes("counts", counts)
        if not np.any(self.counts):
            raise ValueError(
                "`counts` must not all be zero. Received: "
                f"{len(self.counts)} counts without one above zero."
            )
        self.power, self.min_count = power, min_count
        weights = self._effective_counts()
        sums = np.cumsum((weights / weights.max()) ** power)
        with tf.init_scope():
            self._cumulative = tf.constant(sums, tf.float64)

    def _effective_counts(self):
        least = self.min_count or self.counts[self.counts > 0].min()
        return np.maximum(self.counts, least)

    def index_bytes(self, num_classes: int, dim: int) -> int:
        return 16 * num_classes  # counts and their running sums

    def check_for(self, num_classes: int) -> None:
        check_one_per_class("counts", self.counts, num_classes)

    def for_rows(self, first: int, num_rows: int, **options: Any) -> Sampler:
        """A copy with this distribution, for the given classes only."""
        counts = self._effective_counts()[first : first + num_rows]
        # Padding is drawn now and then, and counts nothing.
        short = num_rows - len(counts)
        counts = np.pad(counts, (0, short), constant_values=counts.min())
        return FrequencySampler(counts=counts, power=self.power, **options)

    def changed(self, change: ClassUpdate) -> Sampler:
        counts = change.resize_counts(self.counts)
        return type(self).from_config({**self.get_config(), "counts": counts})
