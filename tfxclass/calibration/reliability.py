"""Reliability: how often a model is right when it says how sure it is."""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.calibration.calibrate import flat
from tfxclass.calibration.held_out import held_out
from tfxclass.checks import check_positive_int
from tfxclass.types import Array

# Pairs of a row that are looked at where labels are independent.
_PAIRS = 20


class Reliability(NamedTuple):
    """Bins of equal width by probability.

    Attributes:
        edges: float64 `[bins + 1]`.
        confidence: float64 `[bins]`, mean probability; NaN where none fell.
        accuracy: float64 `[bins]`, share that was right; NaN likewise.
        counts: int64 `[bins]`.
    """

    edges: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray

    @property
    def expected_calibration_error(self) -> float:
        """Mean gap between confidence and accuracy, weighed by counts."""
        used = self.counts > 0
        gap = np.abs(self.confidence - self.accuracy)[used]
        return float(gap @ self.counts[used] / max(self.counts.sum(), 1))


def reliability(
    probabilities: ArrayLike, hits: ArrayLike, num_bins: int = 15
) -> Reliability:
    """`Reliability` of probabilities and whether each came true.

    Args:
        probabilities: floats in [0, 1], `[n]`.
        hits: bools `[n]`.
        num_bins: int.

    Raises:
        ValueError: shapes that differ, probabilities out of range, or NaN.
    """
    num_bins = check_positive_int("num_bins", num_bins)
    p = np.asarray(probabilities, np.float64)
    hits = np.asarray(hits, np.float64)
    if p.ndim != 1 or p.shape != hits.shape:
        raise ValueError(
            "`probabilities` must have one number for each of `hits`. "
            f"Received: shapes {p.shape} and {hits.shape}"
        )
    bad = np.flatnonzero(~((p >= 0) & (p <= 1)))
    if len(bad):
        raise ValueError(
            "`probabilities` must be in [0, 1]. Received: "
            f"{p[bad[0]]} at position {bad[0]}"
        )
    bins = np.minimum((p * num_bins).astype(np.int64), num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    means = [
        np.divide(
            np.bincount(bins, weights=values, minlength=num_bins),
            counts,
            out=np.full(num_bins, np.nan),
            where=counts > 0,
        )
        for values in (p, hits)
    ]
    return Reliability(np.linspace(0, 1, num_bins + 1), *means, counts)


def reliability_of(
    model: keras.Model,
    data: tf.data.Dataset | tuple[Array, Array],
    num_bins: int = 15,
) -> Reliability:
    """`Reliability` of `model` on held-out rows.

    Of a softmax: the best class of each row, and whether it is a label. Where
    labels are independent: the 20 best classes of each row.

    Args:
        model: as in `tfxclass.calibrate`.
        data: held-out rows, likewise.
        num_bins: int.

    Raises:
        ValueError: as `tfxclass.calibrate`.
    """
    rows = held_out(model, data)
    is_one = rows.head.objective.needs_logsumexp
    k = min(1 if is_one else _PAIRS, rows.head.num_classes)
    pairs = [flat(*answers) for answers in rows.answers(k)]
    _, scores, hits = (np.concatenate(x) for x in zip(*pairs))
    return reliability(scores, hits, num_bins)
