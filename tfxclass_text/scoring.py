"""How good answers for held-out texts are, and what is fitted to them.

Scores are float `[rows, labels]`, the higher the likelier. The truth is bool,
of the same shape.
"""

import numpy as np

from tfxclass.calibration.calibrate import fit_temperature
from tfxclass.calibration.label_thresholds import Pairs
from tfxclass.calibration.label_thresholds import best_thresholds

#: By what a choice must raise the score, beyond its standard error.
MIN_GAIN = 0.002
#: Of margins of hinge losses, where nothing could be learned.
SLOPE = 3.0
# No threshold is below.
_MIN_ANSWER = 0.01
# Pairs of row and label for each true one that is fitted to.
_PAIRS = 5
# Scores that a softmax is fitted to, and rows at least.
_MAX_FITTED, _MIN_ROWS = 2_000_000, 100
# Steps of Newton's method, and what is added to the Hessian's diagonal.
_STEPS, _RIDGE = 50, 1e-6


def reciprocal_ranks(margins: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """1 / rank of the best true label of each row, `[rows]`.

    The label is in the middle of those with the same margin: all margins of a
    text without known terms may be the same.
    """
    rows = truth.any(axis=1)
    best = np.where(truth, margins, -np.inf).max(axis=1, keepdims=True)
    tied = ((margins == best) & ~truth).sum(axis=1)
    ranks = 1 + (margins > best).sum(axis=1) + tied / 2
    return rows / ranks


def row_precisions(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Average precision of each row that has a label, `[such rows]`.

    Labels with the same score are in the middle of their places.
    """
    rows = np.flatnonzero(truth.any(axis=1))
    return np.array([_precision(scores[i], truth[i]) for i in rows])


def _precision(scores, truth):
    # Sorting is much faster than the order of all.
    ordered, own = np.sort(scores), np.sort(scores[truth])[::-1]
    below = [np.searchsorted(ordered, own, side) for side in ("left", "right")]
    places = len(scores) + 0.5 - np.mean(below, axis=0)
    return np.mean(np.arange(1, len(own) + 1) / places)


def clear_gain(after: np.ndarray, before: np.ndarray) -> float:
    """Mean difference of the scores of rows, less its standard error.

    Differences within the error are noise, and do not hold on other texts.
    """
    difference = after - before
    if len(difference) < 2:
        return 0.0
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return float(difference.mean() - error)


def softmax_loss(logits: np.ndarray, truth: np.ndarray) -> float:
    """The mean negative log-likelihood of the likeliest label of each row."""
    logits = logits - logits.max(axis=1, keepdims=True)
    own = np.where(truth, logits, -np.inf).max(axis=1)
    return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - own))


def labeled_rows(truth: np.ndarray) -> np.ndarray:
    """Rows that have a label, int `[n]`, as many as it is quick to fit to."""
    rows = np.flatnonzero(truth.any(axis=1))
    step = max(len(rows) // max(_MAX_FITTED // truth.shape[1], _MIN_ROWS), 1)
    return rows[::step]


def fit_slope(margins: np.ndarray, truth: np.ndarray, default: float) -> float:
    """The factor of the margins whose softmax is likeliest.

    `default` is the answer where no row has a label.
    """
    rows = labeled_rows(truth)
    if not len(rows):
        return default
    margins, truth = margins[rows], truth[rows]
    return 1 / fit_temperature(
        lambda divisor: softmax_loss(margins / divisor, truth)
    )


def fit_sigmoid(
    scores: list[np.ndarray], truth: np.ndarray, rankings: list[np.ndarray]
) -> np.ndarray:
    """A factor of each of the scores, and an intercept: the likeliest ones.

    It is fitted to the pairs of row and label that some ranking puts first. The
    mass of labels far off would bend it. Where nothing can be learned, the
    first factor is 1 and the others are 0.

    References:
        Platt, Probabilistic Outputs for Support Vector Machines, 1999; its
        targets, which no finite number of rows drives to 0 or 1.
    """
    weights = np.zeros(len(scores) + 1)
    weights[0] = 1.0
    count = min(truth.size, _PAIRS * max(int(np.count_nonzero(truth)), 1))
    best = [np.argpartition(-x.ravel(), count - 1)[:count] for x in rankings]
    pairs = np.unique(np.concatenate(best))
    hits = truth.ravel()[pairs]
    up, down = np.count_nonzero(hits), np.count_nonzero(~hits)
    if not up or not down:
        return weights
    targets = np.where(hits, (up + 1) / (up + 2), 1 / (down + 2))
    columns = [x.ravel()[pairs] for x in scores]
    x = np.stack([*columns, np.ones(len(pairs))], axis=1).astype(np.float64)
    # Newton's method.
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -50, 50)))
        hessian = (x * (p * (1 - p))[:, np.newaxis]).T @ x
        hessian += _RIDGE * np.eye(len(weights))
        step = np.linalg.solve(hessian, x.T @ (p - targets))
        weights -= np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-6:
            break
    return weights


def tag_thresholds(probabilities: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Each label's least probability, for the greatest micro-F1 together.

    The thresholds of labels with few rows are near the one that is best for
    all. They are float32 `[labels]`.
    """
    rows, columns = np.nonzero(probabilities >= _MIN_ANSWER)
    scores = probabilities[rows, columns].astype(np.float32)
    pairs = Pairs(columns, scores, truth[rows, columns], truth.sum(axis=0))
    return np.asarray(best_thresholds(pairs, "micro")[0], np.float32)


def best_threshold(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """The least probability of a tag that makes micro-F1 greatest."""
    total = np.count_nonzero(truth)
    if not total:
        return 0.5
    # No threshold is less, and most probabilities are.
    kept = probabilities >= _MIN_ANSWER
    if not kept.any():
        return _MIN_ANSWER
    flat = probabilities[kept]
    order = np.argsort(-flat, kind="stable")
    hits = np.cumsum(truth[kept][order])
    f1 = 2 * hits / (np.arange(1, len(hits) + 1) + total)
    return float(min(flat[order[np.argmax(f1)]], 0.99))
