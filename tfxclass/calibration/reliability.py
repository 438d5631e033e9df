"""Reliability: how often a model is right when it says how sure it is."""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.calibration.held_out import held_out
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

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(10)
    model = keras.Sequential([keras.Input([20]), head])
    x = np.random.default_rng(0).normal(size=[100, 20])
    found = tfxclass.calibration.reliability_of(model, (x, np.arange(100) % 10))
    print(found.expected_calibration_error)
    ```
    """
    num_bins = check_positive_int("num_bins", num_bins)
    rows = held_out(model, data)
    is_one = rows.head.objective.needs_logsumexp
    k = min(1 if is_one else _PAIRS, rows.head.num_classes)
    pairs = rows.pairs(k)
    if not len(pairs.scores):
        raise ValueError(
            "Reliability needs finite logits of the held-out examples. "
            "Received: NaN for all of them"
        )
    return in_bins(pairs.scores.astype(np.float64), pairs.hits, num_bins)


def in_bins(p: np.ndarray, hits: np.ndarray, num_bins: int) -> Reliability:
    """Compares probabilities `[n]` with whether each answer was right."""
    bins = np.minimum((p * num_bins).astype(np.int64), num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    # Empty bins have no mean.
    sizes = np.where(counts > 0, counts, np.nan)
    mean_p, mean_hits = (
        np.bincount(bins, weights=values, minlength=num_bins) / sizes
        for values in (p, hits)
    )
    edges = np.linspace(0, 1, num_bins + 1)
    return Reliability(edges, mean_p, mean_hits, counts)
