"""Held-out rows as a head sees them, and how often it is right about them."""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass import progress
from tfxclass.calibration.label_thresholds import Pairs
from tfxclass.checks import check_batch
from tfxclass.checks import check_positive_int
from tfxclass.core.forward import flatten
from tfxclass.data.batches import Batches
from tfxclass.inference.graph import check_plain_logits
from tfxclass.inference.graph import encoder_of
from tfxclass.layers.class_head import ClassHead
from tfxclass.types import Array

_BATCH = 256
# Pairs of a row that are looked at where labels are independent.
_PAIRS = 20


class HeldOut(NamedTuple):
    """A head, and `(features, ids)` of batches of the rows with labels."""

    head: ClassHead
    batches: list[tuple[tf.Tensor, tf.Tensor]]

    def pairs(self, k: int) -> Pairs:
        """The k best classes of each row."""
        best = tf.function(lambda x: self.head.top_k(x, k))
        batches = progress.progress_iter(
            self.batches, "Answering held-out batches", len(self.batches)
        )
        positives = np.zeros(self.head.num_classes, np.int64)
        found = []
        for features, labels in batches:
            ids, scores = (x.numpy() for x in best(features))
            labels = labels.numpy()
            np.add.at(positives, labels[labels >= 0], 1)
            same = ids[:, :, np.newaxis] == labels[:, np.newaxis, :]
            kept, hits = ids >= 0, same.any(axis=2)
            found.append((ids[kept], scores[kept], hits[kept]))
        ids, scores, hits = (np.concatenate(x) for x in zip(*found))
        return Pairs(ids, scores, hits, positives)


def held_out(
    model: keras.Model, data: tf.data.Dataset | tuple[Array, Array]
) -> HeldOut:
    """The rows of `data`, whose features are kept; or ValueError."""
    encoder, head = encoder_of(model)
    check_plain_logits("Calibration", head)
    if head.activation is None:
        raise ValueError(
            "Calibration needs probabilities. Received: the head "
            f"{head.name!r} with activation=None"
        )
    found = []
    batches = Batches("data", data, _BATCH)
    name = "Computing held-out batches"
    for batch in progress.progress_iter(batches, name, batches.count):
        x, y = check_batch(batch)
        encoded = encoder(x, training=False)
        ids = head.targets(encoded, y).ids
        is_labelled = tf.reduce_any(ids >= 0, axis=1)
        if tf.reduce_any(is_labelled):
            rows = flatten(encoded)
            found.append((rows[is_labelled], ids[is_labelled]))
    if not found:
        raise ValueError("`data` must have rows with labels. Received: none.")
    return HeldOut(head, found)


class Reliability(NamedTuple):
    """Confidence and accuracy in bins of equal width.

    Attributes:
        edges: float64 `[bins + 1]`, limits of the bins.
        confidence, accuracy: float64 `[bins]`, mean probability, and fraction
            that was right; NaN in empty bins.
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
    """The `Reliability` of a model's probabilities on held-out examples.

    It takes the best class of each example for a softmax, and the 20 best for
    independent labels.

    Args:
        model, data: as in `tfxclass.calibrate`, which raises the same errors.
        num_bins: int, number of bins.

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
    k = 1 if rows.head.objective.needs_logsumexp else _PAIRS
    pairs = rows.pairs(min(k, rows.head.num_classes))
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
