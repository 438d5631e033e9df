"""Measures of rankings, of Keras' metrics and of finished answers.

They take `ranks` of labels, integers `[rows, p]` from 0, which are k or more
past the k best classes and for padding; the `count` of labels, floats `[rows]`,
whose type the result has; and k.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.checks import as_ids
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.retrieval.sequences import as_sequences


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
    """Sums `[rows]` of the gains of labels: among the k best, and at best."""
    reached = tf.where(ranks < k, gains, tf.zeros_like(gains))
    best = tf.math.top_k(gains, tf.minimum(k, tf.shape(gains)[1])).values
    return tf.reduce_sum(reached, axis=1), tf.reduce_sum(best, axis=1)


def _found(ranks, count, k):
    return tf.math.count_nonzero(ranks < k, axis=1, dtype=count.dtype)


def as_answers(
    ids: ArrayLike, labels: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Answers `[rows, n]` and labels `[rows, p]` as arrays; or ValueError.

    Answers are distinct, and a repeated label becomes -1: it counts once.
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


def evaluate(
    ids: ArrayLike,
    labels: ArrayLike,
    k: int | None = None,
    train: Sequence[Sequence[int]] | None = None,
) -> dict[str, float]:
    """Ranking metrics of answers, as recommender papers report them.

    Use it on the answers of `tfxclass.top_k`, whose option `exclude=True`
    leaves out the items that a user has already seen.

    Args:
        ids: integers `[questions, n]`, distinct answers, best first, then -1.
        labels: integers `[questions]`, the right item, or `[questions, p]`
            padded with -1 if there are several. A repeated label counts once. A
            question without a label counts as missed.
        k: int, number of answers that count. Defaults to `n`.
        train: item ids of each training sequence, for `coverage` and `novelty`.

    Returns:
        A dict of floats:

        - `"hit_rate"`: fraction of the questions with a label among the k
          answers (HR@k; with one label it is recall).
        - `"mrr"`: mean of 1 / rank of the first label, 0 past rank k.
        - `"ndcg"`: mean of the sum of 1 / log2(rank + 1) over the labels,
          divided by the best possible sum.
        - `"coverage"`: fraction of the training items that are in an answer.
        - `"novelty"`: mean of -log2 of the fraction of training sequences that
          contain the item. It is higher for answers that fewer users know.

    Raises:
        ValueError: if shapes do not agree, `k` is out of range, an answer has
            an item twice, no question has a label, or `train` has no items.

    Example:

    ```python
    ids = np.array([[3, 1, 2], [0, 2, 1]])
    values = tfxclass.retrieval.evaluate(ids, labels=[1, 0], k=2)
    ```

    References:
        Järvelin and Kekäläinen, ACM TOIS 2002 (NDCG). Zhou et al., Solving the
        apparent diversity-accuracy dilemma of recommender systems, PNAS 2010.
    """
    labels = as_ids("labels", labels)
    if labels.ndim == 1:
        labels = labels[:, np.newaxis]
    ids, labels = as_answers(ids, labels)
    if not np.any(labels >= 0):
        raise ValueError(
            "`labels` must have a question with a label. Received: "
            f"{len(labels)} questions without one. Fix: look at the split of "
            "the data, which may leave no questions for a test"
        )
    k = check_positive_int("k", ids.shape[1] if k is None else k)
    is_valid = k <= ids.shape[1]
    check_value("k", k, is_valid, f"at most {ids.shape[1]}, the answers")
    ids = ids[:, :k]
    ranks = ranks_of(ids, labels, k)
    count = tf.constant((labels >= 0).sum(axis=1), tf.float64)
    wanted = {"hit_rate": accuracy, "mrr": reciprocal_rank, "ndcg": ndcg}
    figures = {
        name: _mean(measure(ranks, count, k))
        for name, measure in wanted.items()
    }
    if train is not None:
        figures |= _of_catalogue(ids, as_sequences("train", train))
    return figures


def _of_catalogue(ids, train):
    """Coverage and novelty of answers `[questions, k]`."""
    items = [item for row in train for item in set(row)]
    if min(items, default=-1) < 0:
        raise ValueError(
            "`train` must have items, and no padding. Received: "
            f"{len(items)} items from {min(items, default=None)}"
        )
    answers = ids[ids >= 0]
    size = 1 + max(*items, int(answers.max(initial=0)))
    counts = np.bincount(np.array(items, np.int64), minlength=size)
    answered = np.unique(answers)
    known = np.count_nonzero(counts[answered])
    # An item of no sequence counts as one of a single sequence.
    shares = np.maximum(counts[answers], 1) / len(train)
    return {
        "coverage": float(known / np.count_nonzero(counts)),
        "novelty": _mean(-np.log2(shares)),
    }


def _mean(values):
    # Answers may all be -1.
    return float(np.mean(values)) if len(values) else 0.0
