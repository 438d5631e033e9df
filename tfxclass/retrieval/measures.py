"""Measures of rankings, one for Keras' metrics and for finished answers.

Each takes the ranks of a row's labels, the number of labels, and k:

- `ranks`: integers `[rows, p]` from 0; k or more past the k best classes, and
  for padding;
- `count`: floats `[rows]`, whose type the result has.
"""

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.checks import as_ids


def ranks_of(ids: tf.Tensor, labels: tf.Tensor, none: int) -> tf.Tensor:
    """Ranks of labels `[rows, p]` among answers `[rows, n]`, int32 `[rows, p]`.

    Padding, -1, and labels that are no answer have the rank `none`.
    """
    ids = ids[:, tf.newaxis]
    same = (labels[:, :, tf.newaxis] == ids) & (ids >= 0)
    places = tf.range(tf.shape(ids)[2])
    return tf.reduce_min(tf.where(same, places, none), axis=2)


def accuracy(ranks: tf.Tensor, count: tf.Tensor, k: int) -> tf.Tensor:
    """1 for rows with a label among the k best, else 0."""
    return tf.cast(tf.reduce_any(ranks < k, axis=1), count.dtype)


def precision(ranks: tf.Tensor, count: tf.Tensor, k: int) -> tf.Tensor:
    """Fraction of the k best classes that are labels."""
    return _found(ranks, count, k) / k


def recall(ranks: tf.Tensor, count: tf.Tensor, k: int) -> tf.Tensor:
    """Fraction of the labels that are among the k best classes."""
    return tf.math.divide_no_nan(_found(ranks, count, k), count)


def r_precision(ranks: tf.Tensor, count: tf.Tensor, k: int) -> tf.Tensor:
    """Labels among the k best, over min(k, number of labels)."""
    most = tf.minimum(count, tf.cast(k, count.dtype))
    return tf.math.divide_no_nan(_found(ranks, count, k), most)


def ndcg(ranks: tf.Tensor, count: tf.Tensor, k: int) -> tf.Tensor:
    """Gains 1 / log2(rank + 2), over the gains of all labels first."""
    gains = 1 / np.log2(np.arange(2, k + 2))
    gain_at = tf.constant([*gains, 0.0], count.dtype)
    best = tf.constant([0.0, *np.cumsum(gains)], count.dtype)
    gained = tf.gather(gain_at, tf.minimum(ranks, k))
    most = tf.gather(best, tf.minimum(tf.cast(count, tf.int32), k))
    return tf.math.divide_no_nan(tf.reduce_sum(gained, axis=1), most)


def reciprocal_rank(ranks: tf.Tensor, count: tf.Tensor, k: int) -> tf.Tensor:
    """1 / (rank + 1) of the best label, 0 past the k best."""
    first = tf.reduce_min(ranks, axis=1)
    inverse = 1 / (tf.cast(first, count.dtype) + 1)
    return tf.where(first < k, inverse, tf.zeros_like(inverse))


def gained(
    ranks: tf.Tensor, gains: tf.Tensor, k: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums of the gains of labels: among the k best, and of a best ranking.

    `gains` are floats `[rows, p]`, 0 for padding. Both sums are `[rows]`.
    """
    reached = tf.where(ranks < k, gains, tf.zeros_like(gains))
    best = tf.math.top_k(gains, tf.minimum(k, tf.shape(gains)[1])).values
    return tf.reduce_sum(reached, axis=1), tf.reduce_sum(best, axis=1)


def _found(ranks, count, k):
    return tf.math.count_nonzero(ranks < k, axis=1, dtype=count.dtype)


def as_answers(
    ids: ArrayLike, labels: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Answers and labels as arrays, each id once in a row; or ValueError.

    Ids are `[rows, n]`, best first, and labels `[rows, p]`, both padded with
    -1. An answer that names an item twice would count it twice, and measures
    would be above 1. A repeated label becomes -1: it counts once.
    """
    ids, labels = as_ids("ids", ids), as_ids("labels", labels)
    if ids.ndim != 2 or labels.ndim != 2 or len(ids) != len(labels):
        raise ValueError(
            "`ids` must have shape [rows, n], and `labels` [rows, p] with as "
            f"many rows. Received: shapes {ids.shape} and {labels.shape}"
        )
    bad = np.flatnonzero((_is_repeated(ids) & (ids >= 0)).any(axis=1))
    if len(bad):
        raise ValueError(
            "`ids` must not name a class twice in a row. Received: "
            f"{ids[bad[0]][:10].tolist()} in row {bad[0]}"
        )
    return ids, np.where(_is_repeated(labels), -1, labels)


def _is_repeated(ids):
    """Whether an id was in its row before, bool of the same shape."""
    order = np.argsort(ids, axis=1, kind="stable")
    ranked = np.take_along_axis(ids, order, axis=1)
    found = np.zeros(ids.shape, bool)
    np.put_along_axis(
        found, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], axis=1
    )
    return found
