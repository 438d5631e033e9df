"""Reliability: how often a model is right when it says how sure it is."""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.calibration.held_out import held_out
from tfxclass.checks import as_numbers
from tfxclass.checks import check_positive_int
from tfxclass.types import Array

# Pairs of a row that are looked at where labels are independent.
_PAIRS = 20


class Reliability(NamedTuple):
    """Confidence and accuracy in bins of equal width.

    Attributes:
        edges: float64 `[bins + 1]`, limits of the bins.
        confidence: float64 `[bins]`, mean probability, NaN in empty bins.
        accuracy: float64 `[bins]`, fraction that was right, NaN in empty bins.
        counts: int64 `[bins]`, number of answers in the bin.
    """

    edges: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray

    @property
    def expected_calibration_error(self) -> float:
        """Mean gap between confidence and accuracy, weighted by counts."""
        used = self.counts > 0
        gap = np.abs(self.confidence - self.accuracy)[used]
        return float(gap @ self.counts[used] / max(self.counts.sum(), 1))


def reliability(
    probabilities: ArrayLike, hits: ArrayLike, num_bins: int = 15
) -> Reliability:
    """Compares probabilities with whether each answer was right.

    Args:
        probabilities: floats in [0, 1], `[n]`.
        hits: bools `[n]`, whether each answer was right.
        num_bins: int, number of bins.

    Returns:
        A `Reliability`.

    Raises:
        ValueError: if shapes differ, or probabilities are out of range or NaN.

    Example:

    ```python
    found = tfxclass.calibration.reliability([0.9, 0.6], [True, False], 10)
    print(found.expected_calibration_error)
    ```
    """
    num_bins = check_positive_int("num_bins", num_bins)
    p = as_numbers("probabilities", probabilities)
    hits = as_numbers("hits", hits)
    if p.ndim != 1 or p.shape != hits.shape or not len(p):
        raise ValueError(
            "`probabilities` must have one number for each of `hits`, at least "
            f"one. Received: shapes {p.shape} and {hits.shape}"
        )
    if not np.all((hits == 0) | (hits == 1)):
        bad = hits[(hits != 0) & (hits != 1)][0]
        raise ValueError(f"`hits` must be True or False. Received: {bad}")
    bad = np.flatnonzero(~((p >= 0) & (p <= 1)))
    if len(bad):
        raise ValueError(
            "`probabilities` must be in [0, 1]. Received: "
            f"{p[bad[0]]} at position {bad[0]}"
        )
    bins = np.minimum((p * num_bins).astype(np.int64), num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    mean_p, mean_hits = (
        np.divide(
            np.bincount(bins, weights=values, minlength=num_bins),
            counts,
            out=np.full(num_bins, np.nan),
            where=counts > 0,
        )
        for values in (p, hits)
    )
    edges = np.linspace(0, 1, num_bins + 1)
    return Reliability(edges, mean_p, mean_hits, counts)


def reliability_of(
    model: keras.Model,
    data: tf.data.Dataset | tuple[Array, Array],
    num_bins: int = 15,
) -> Reliability:
    """Compares the probabilities of a model with held-out labels.

    For a softmax, it takes the best class of each example. For independent
    labels, it takes the 20 best classes of each example.

    Args:
        model: as in `tfxclass.calibrate`.
        data: held-out examples, as in `tfxclass.calibrate`.
        num_bins: int, number of bins.

    Returns:
        A `Reliability`.

    Raises:
        ValueError: as in `tfxclass.calibrate`.
    """
    rows = held_out(model, data)
    is_one = rows.head.objective.needs_logsumexp
    k = min(1 if is_one else _PAIRS, rows.head.num_classes)
    pairs = rows.pairs(k)
    return reliability(pairs.scores, pairs.hits, num_bins)
