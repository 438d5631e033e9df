"""The best classes of some rows: what every search returns."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import tensorflow as tf


class Best(NamedTuple):
    """The best classes of some rows.

    Attributes:
        ids: int64 `[batch, k]`, best first, equal logits by rising id; NaN
            logits are never among them, and ids are -1 where fewer are left.
        logits: float32 `[batch, k]`.
        logsumexp: `[batch, 1]`, of all classes; float64, in exports float32.
    """

    ids: Any
    logits: Any
    logsumexp: Any


def merge(found: Sequence[Best], k: int) -> Best:
    """Merges the `Best` of consecutive parts into one."""
    if len(found) == 1:
        return found[0]
    ids, logits, sums = (tf.concat(x, axis=1) for x in zip(*found))
    # Among equal scores top_k takes the first one, with the lower id.
    _, places = tf.math.top_k(nan_last(logits), k)
    ids, logits = (
        tf.gather(x, places, axis=1, batch_dims=1) for x in (ids, logits)
    )
    return Best(ids, logits, tf.reduce_logsumexp(sums, axis=1, keepdims=True))


def nan_last(logits: tf.Tensor) -> tf.Tensor:
    """Logits to rank by: `tf.math.top_k` has no order for NaN."""
    lowest = tf.constant(float("-inf"), logits.dtype)
    return tf.where(tf.math.is_nan(logits), lowest, logits)


def mask_missing(
    ids: tf.Tensor, scores: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """id -1 and score 0 where no class was found, or where its score is NaN."""
    is_answer = (ids >= 0) & ~tf.math.is_nan(scores)
    return tf.where(is_answer, ids, -1), tf.where(is_answer, scores, 0.0)
