"""The union of the classes that a training step computes."""

from typing import NamedTuple

import tensorflow as tf

from tfxclass.ops import library
from tfxclass.types import Scalar

tf.no_gradient("Tfxclass>ActiveClasses")


class ActiveClasses(NamedTuple):
    """The result of `active_classes`, in which the labels are the targets.

    Attributes:
        ids: int64 `[num_sampled]`, distinct: targets, candidates, fill.
        log_expected_count: float32 `[num_sampled]`, log of the probability
            that a class is among `ids`, given the targets and candidates (0
            for those) and, for a law, given the other classes that it drew:
            sums weighted by its inverse are unbiased.
        positions: int64, shape of the labels: where `ids` holds each label,
            -1 for padding.
        num_targets, num_candidates: int64 scalars, how many are among `ids`.
        target_log_expected_count: float32, shape of the labels: log of the
            probability that the fill gives that class, were it no label; 0 for
            padding and for a label that occurs more than once.
        fill_rate: float32 scalar, the fraction of the sample reserved for
            candidates that they fill; 0 where none of it is.
    """

    ids: tf.Tensor
    log_expected_count: tf.Tensor
    positions: tf.Tensor
    num_targets: tf.Tensor
    num_candidates: tf.Tensor
    target_log_expected_count: tf.Tensor
    fill_rate: tf.Tensor


def active_classes(
    labels: tf.Tensor,
    num_sampled: Scalar,
    num_classes: Scalar,
    seed: tf.Tensor,
    candidates: tf.Tensor | None = None,
    scores: tf.Tensor | None = None,
    candidate_share: Scalar = 1.0,
    fill: str = "uniform",
    cumulative: tf.Tensor | None = None,
    sample_overflow: bool = True,
) -> ActiveClasses:
    """Chooses `num_sampled` distinct classes, or all labels if these are more.

    All labels are in; then the candidates, the best-scored occurrence of each
    counting; then a random fill. `InvalidArgumentError` for ids or a share out
    of range, and shapes that do not agree.

    Args:
        labels, candidates: int64 of any shape, -1 is padding.
        num_sampled: int or int64 scalar tensor, at most `num_classes`.
        seed: int64 `[2]`. Same seed, same result.
        scores: float32, shape of `candidates`: logits.
        candidate_share: in [0, 1]: the part of the places that the labels leave
            which candidates may take. Below 1 one is left to the fill: without
            any, sums are no estimates.
        fill: `"uniform"`, `"log_uniform"` (class 0 the most frequent) or
            `"frequency"`. The last two draw by their law until enough are
            distinct; where no more classes have weight, the rest is uniform.
        cumulative: float64 `[num_classes]`, running sums of the weights of
            `"frequency"`.
        sample_overflow: whether candidates that do not fit are sampled without
            replacement by `exp(score)`; otherwise the best-scored are kept.
    """
    num_sampled = tf.cast(num_sampled, tf.int64)
    if candidates is None:
        candidates, scores = tf.zeros([0], tf.int64), tf.zeros([0])
    return ActiveClasses(
        *library.ops.tfxclass_active_classes(
            labels,
            candidates,
            scores,
            seed,
            num_sampled,
            candidate_share,
            tf.zeros([0], tf.float64) if cumulative is None else cumulative,
            num_classes=num_classes,
            fill=fill,
            sample_overflow=sample_overflow,
        )
    )
