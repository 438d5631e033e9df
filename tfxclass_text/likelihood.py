"""Fits of scores to labels: the parameters that make the labels likeliest."""

import numpy as np

from tfxclass.calibration.calibrate import fit_temperature

_STEPS = 50


def fit_logistic(
    x: np.ndarray, targets: np.ndarray, start: list[float], ridge: float
) -> np.ndarray:
    """Weights of a logistic regression, float64 `[n]`, by Newton's method.

    Args:
        x: float64 `[pairs, n]`, scores; a column of ones gives an intercept.
        targets: `[pairs]`, numbers from 0 to 1.
        start: the weights to begin with.
        ridge: float, added to the diagonal of the Hessian.
    """
    weights = np.array(start, np.float64)
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-np.clip(x @ weights, -50, 50)))
        hessian = (x * (p * (1 - p))[:, np.newaxis]).T @ x
        hessian += ridge * np.eye(len(weights))
        step = np.linalg.solve(hessian, x.T @ (p - targets))
        weights -= np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-6:
            break
    return weights


def softmax_loss(logits: np.ndarray, truth: np.ndarray) -> float:
    """The mean negative log-likelihood of each row's likeliest label.

    Args:
        logits: float `[rows, labels]`.
        truth: bool `[rows, labels]`; each row has a label.
    """
    logits = logits - logits.max(axis=1, keepdims=True)
    own = np.where(truth, logits, -np.inf).max(axis=1)
    return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - own))


def fit_slope(margins: np.ndarray, truth: np.ndarray, default: float) -> float:
    """The factor of the margins whose softmax is likeliest.

    Args:
        margins: float `[rows, labels]`.
        truth: bool `[rows, labels]`; rows without a label count for nothing.
        default: float, where there are no other rows.
    """
    rows = truth.any(axis=1)
    if not rows.any():
        return default
    margins, truth = margins[rows], truth[rows]
    return 1 / fit_temperature(
        lambda divisor: softmax_loss(margins / divisor, truth)
    )
