"""Ranks and what is reported of them."""

import numpy as np


def ranks(queries, targets, classes, excluded=None, block=256):
    """Rank of each query's target among all classes, from 1, ties halved.

    Args:
        queries: `[n, dim]`, dense or sparse.
        targets: int `[n]`, the class meant.
        classes: `[num_classes, dim]`, of the same kind; the score is the dot
            product.
        excluded: int `[n, p]`, classes that are no answers, padded with -1.
        block: queries a block; never [n, num_classes] scores.
    """
    found = []
    for start in range(0, len(targets), block):
        scores = queries[start : start + block] @ classes.T
        if not isinstance(scores, np.ndarray):
            scores = scores.toarray()
        if excluded is not None:
            row, column = np.nonzero(excluded[start : start + block] >= 0)
            named = excluded[start : start + block][row, column]
            scores[row, named] = -np.inf
        at = targets[start : start + block]
        own = scores[np.arange(len(at)), at][:, np.newaxis]
        higher = np.sum(scores > own, axis=1)
        equal = np.sum(scores == own, axis=1) - 1
        found.append(1 + higher + equal // 2)
    return np.concatenate(found)


def summary(found):
    """`(accuracy@1, @10, @100, median rank)`."""
    return (*(np.mean(found <= k) for k in (1, 10, 100)), np.median(found))
