"""Base of the samplers that find similar classes and add random ones."""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.samplers.sample_size import count_labels
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Config
from tfxclass.types import Scalar
from tfxclass.types import Variable

# Limits of the oversampling, and of the classes whose logits decide: at 670,091
# classes and a sample of 6,700, eight times these took 102 ms a step, and the
# votes of hash tables alone 46.
_MAX_OVERSAMPLING = 8
_MAX_RERANKED = 4096


class CandidateSampler(Sampler):
    """The labels of the batch, candidates, and a uniform fill.

    A subclass gives the candidates. Labels come first. Candidates get at
    most `neighbor_fraction` of the rest of the sample. If there are more of
    them, they are sampled by the softmax of their scores. The other classes of
    the sample are uniform, among all that were not chosen. `correct_fill`
    weighs each of these for all the classes it stands for, which makes the sum
    of exponentials an unbiased estimate, however the candidates were found.
    Without it, and with `neighbor_fraction=1`, the softmax is restricted to
    the sample.

    Args:
        num_sampled: int, number of classes a step, labels included.
        neighbor_fraction: float in (0, 1], largest fraction of the sample
            without its labels that candidates get.
        correct_fill: whether the fill is weighted.
        seed: int.
    """

    #: Whether too many candidates are sampled, or cut by score.
    sample_overflow = True

    def __init__(
        self,
        num_sampled: int | None = None,
        neighbor_fraction: float = 0.5,
        correct_fill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, **kwargs)
        check_neighbor_fraction(neighbor_fraction)
        self.neighbor_fraction = neighbor_fraction
        self.correct_fill = correct_fill

    @property
    def estimates_sums(self) -> bool:
        return self.correct_fill

    def refresh(self, queries: tf.Tensor, kernel: Variable) -> None:
        """Keeps an index current; called before each search.

        Args:
            queries, kernel: of `sample`.
        """

    def candidates(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        candidate_budget: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, scores)`, of one shape; -1 is padding.

        Args:
            queries, target_ids, kernel: of `sample`.
            candidate_budget: int64 scalar, how many candidates to look for.
        """
        raise NotImplementedError

    def num_active_classes(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Scalar:
        """How many classes this step computes, an int or an int64 scalar."""
        return self.size_for(count_labels(target_ids))

    def sample(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Sample:
        num_sampled = self.num_active_classes(queries, target_ids, kernel)
        self.refresh(queries, kernel)
        found = self.candidates(
            queries,
            target_ids,
            kernel,
            candidate_count(num_sampled, self.neighbor_fraction),
        )
        return sample_with_candidates(
            self, target_ids, num_sampled, found, self.neighbor_fraction
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "neighbor_fraction": self.neighbor_fraction,
            "correct_fill": self.correct_fill,
        }


def check_neighbor_fraction(value: float) -> None:
    """Raises ValueError unless `value` is in (0, 1]."""
    if not 0 < value <= 1:
        raise ValueError(
            f"`neighbor_fraction` must be in (0, 1]. Received: {value}"
        )


def sample_with_candidates(
    sampler: Sampler,
    target_ids: tf.Tensor,
    num_sampled: Scalar,
    found: tuple[tf.Tensor, tf.Tensor],
    share: Scalar,
) -> Sample:
    """The labels of a batch, candidates, and a uniform fill.

    Args:
        sampler: with the attributes `sample_overflow`, whether too many
            candidates are sampled or cut by score, and `correct_fill`.
        target_ids: int64 `[batch, p]`, -1 is padding.
        num_sampled: int or int64 scalar.
        found: `(ids, scores)` of the candidates, -1 is padding.
        share: float, or float32 scalar: fraction of the classes that labels
            leave, for candidates.
    """
    ids, scores = found
    chosen = sampler.choose(
        target_ids,
        num_sampled=num_sampled,
        candidates=ids,
        scores=scores,
        candidate_share=share,
        sample_overflow=sampler.sample_overflow,
    )
    sampler.note_fill_rate(chosen.fill_rate)
    count = chosen.log_expected_count
    return Sample(
        chosen.ids,
        count if sampler.correct_fill else tf.zeros_like(count),
        chosen.positions,
    )


def free_slots(target_ids: tf.Tensor, num_sampled: Scalar) -> tf.Tensor:
    """How many classes distinct labels leave to sample, int64 scalar."""
    ids = tf.unique(tf.reshape(target_ids, [-1])).y
    labels = tf.reduce_sum(tf.cast(ids >= 0, tf.int64))
    return tf.maximum(tf.cast(num_sampled, tf.int64) - labels, 0)


def candidate_count(count: Scalar, fraction: Scalar) -> tf.Tensor:
    """That fraction of a number of classes, int64 scalar.

    Below 1 it leaves one for the fill: without any the sum is no estimate.
    """
    if isinstance(count, int) and isinstance(fraction, float):
        # A constant instead of eight ops, rounded as they round.
        part = math.ceil(np.float32(fraction) * np.float32(count))
        left = int(fraction < 1)
        return tf.constant(min(part, max(count - left, 0)), tf.int64)
    count = tf.cast(count, tf.int64)
    part = tf.math.ceil(fraction * tf.cast(count, tf.float32))
    left = tf.cast(fraction < 1, tf.int64)
    return tf.minimum(tf.cast(part, tf.int64), tf.maximum(count - left, 0))


class NeighborSampler(CandidateSampler):
    """Candidates that the features of each row of the batch find.

    Args:
        num_sampled: int, number of classes a step, labels included.
        num_neighbors: int Q, classes looked for a row of the batch;
            by default as many as fill the candidates' part of the
            sample, and its labels.
        neighbor_fraction, correct_fill, seed: of `CandidateSampler`.
    """

    def __init__(
        self,
        num_sampled: int | None = None,
        num_neighbors: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, **kwargs)
        if num_neighbors is not None:
            num_neighbors = check_positive_int("num_neighbors", num_neighbors)
        self.num_neighbors = num_neighbors

    def neighbors(
        self, queries: tf.Tensor, kernel: Variable, num_neighbors: Scalar
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, scores)` `[batch, num_neighbors]`, scores are logits."""
        raise NotImplementedError

    def candidates(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        candidate_budget: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        wanted = neighbors_a_row(
            queries,
            target_ids,
            candidate_budget,
            self.num_neighbors,
            self.num_classes,
        )
        return self.search(queries, target_ids, kernel, wanted)

    def search(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        wanted: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`candidates`, `wanted` of them (int64 scalar) for each row."""
        return self.neighbors(queries, kernel, wanted)

    def get_config(self) -> Config:
        return {**super().get_config(), "num_neighbors": self.num_neighbors}


def neighbors_a_row(
    queries: tf.Tensor,
    target_ids: tf.Tensor,
    candidate_budget: tf.Tensor,
    num_neighbors: int | None,
    num_classes: int,
) -> tf.Tensor:
    """How many neighbors to search for each row, int64 scalar.

    Args:
        queries, target_ids: of `sample`.
        candidate_budget: int64 scalar, how many candidates the batch has room
            for.
        num_neighbors: int, where the number is given.
        num_classes: int.
    """
    if num_neighbors is not None:
        wanted = tf.constant(num_neighbors, tf.int64)
    else:
        batch = tf.maximum(tf.shape(queries, tf.int64)[0], 1)
        wanted = tf.maximum(candidate_budget // batch, 1)
        # The nearest of a trained row are its own labels, on average.
        wanted += _labels_a_row(target_ids, batch)
    return tf.minimum(wanted, num_classes)


def _labels_a_row(target_ids, batch):
    """Their mean, rounded up."""
    if target_ids.shape[1] == 1:
        return 1
    labels = tf.reduce_sum(tf.cast(target_ids >= 0, tf.int64))
    return -(-labels // batch)


def oversampling(num_sampled: int) -> int:
    """How many times the candidates that fit an index gives; logits decide."""
    return max(1, min(_MAX_OVERSAMPLING, _MAX_RERANKED // num_sampled))
