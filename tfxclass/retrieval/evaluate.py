"""How good the first k items of each answer are."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.checks import as_ids
from tfxclass.checks import check_positive_int
from tfxclass.retrieval import measures
from tfxclass.retrieval.measures import as_answers
from tfxclass.retrieval.sequences import as_sequences


def evaluate(
    ids: ArrayLike,
    labels: ArrayLike,
    k: int | None = None,
    train: Sequence[Sequence[int]] | None = None,
) -> dict[str, float]:
    """Ranking metrics of answers, as recommender papers report them.

    Use it on the answers of `tfxclass.top_k`. Use
    `tfxclass.top_k(exclude=True)` for answers without the items that a user has
    already seen.

    Args:
        ids: integers `[questions, n]`, the answers, best first, -1 where there
            are fewer. As `tfxclass.top_k` returns them. No item may be in a row
            twice.
        labels: integers `[questions]`, the right item, or `[questions, p]`
            padded with -1 if there are several. A repeated label counts once. A
            question without a label counts as missed.
        k: int, number of answers that count. Defaults to `n`.
        train: item ids of each training sequence, for `coverage` and `novelty`.
            Defaults to None.

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
        Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR
        techniques, ACM TOIS 2002 (NDCG).
        Zhou et al., Solving the apparent diversity-accuracy dilemma of
        recommender systems, PNAS 2010 (novelty).
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
    if not 1 <= k <= ids.shape[1]:
        raise ValueError(
            "`k` must be at least 1 and at most the number of answers. "
            f"Received: k={k} with {ids.shape[1]} answers"
        )
    ids = ids[:, :k]
    ranks = measures.ranks_of(ids, labels, k)
    count = tf.constant((labels >= 0).sum(axis=1), tf.float64)
    figures = {
        "hit_rate": _mean(measures.accuracy(ranks, count, k)),
        "mrr": _mean(measures.reciprocal_rank(ranks, count, k)),
        "ndcg": _mean(measures.ndcg(ranks, count, k)),
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
