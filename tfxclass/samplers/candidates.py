"""A sample of labels, similar classes that were found, and random ones."""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.samplers.sampler import Sample
from tfxclass.types import Scalar

# Limits of the oversampling, and of the classes whose logits decide: at 670,091
# classes and a sample of 6,700, eight times these took 102 ms a step, and the
# votes of hash tables alone 46.
_MAX_OVERSAMPLING = 8
_MAX_RERANKED = 4096


def check_neighbor_fraction(value: float) -> None:
    """Raises ValueError unless `value` is in (0, 1]."""
    if not 0 < value <= 1:
        raise ValueError(
            f"`neighbor_fraction` must be in (0, 1]. Received: {value}"
        )


def sample_with_candidates(
    sampler: Any,
    target_ids: tf.Tensor,
    num_sampled: Scalar,
    found: tuple[tf.Tensor, tf.Tensor],
    share: Scalar,
) -> Sample:
    """The labels of a batch, candidates, and a uniform fill.

    Labels come first. Candidates get at most `share` of the rest. The other
    classes are uniform, among all that were not chosen. `correct_fill` weighs
    each of these for all the classes it stands for, which makes the sum of
    exponentials an unbiased estimate, however the candidates were found.
    Without it, and with a `share` of 1, the softmax is restricted to the
    sample.

    Args:
        sampler: has `correct_fill`, and `sample_overflow`: whether too many
            candidates are sampled by the softmax of their scores, or cut by
            score.
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
    count = chosen.log_expected_count
    return Sample(
        chosen.ids,
        count if sampler.correct_fill else tf.zeros_like(count),
        chosen.positions,
    )


def check_optional_int(name: str, value: int | None) -> int | None:
    """A positive integer as an int, or None; ValueError for others."""
    return value if value is None else check_positive_int(name, value)


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
