"""The mean direction of each label's rows, as linear weights next to others."""

import numpy as np

from tfxclass_text.linear_ops import SparseWeights
from tfxclass_text.sparse_rows import LabeledRows


def centroids(data: LabeledRows) -> SparseWeights:
    """The sum of each label's rows, scaled to norm 1; biases are 0.

    A label of one or two rows has a centroid that is as good as the centroids
    of others, where a margin has hardly moved from -1: together they rank rare
    labels better (Rocchio's classifier, 1971).
    """
    rows, labels, num_features, num_labels = data
    entries = rows.take(labels.row_ids())
    columns = np.repeat(labels.ids, np.diff(entries.splits))
    weights = from_entries(
        entries.ids, columns, entries.values, num_features, num_labels
    )
    squares = np.bincount(
        weights.columns, weights.values**2, minlength=num_labels
    )
    scale = 1 / np.sqrt(np.maximum(squares, 1e-12))
    values = weights.values * scale[weights.columns]
    return weights._replace(values=values.astype(np.float32))


def add(
    one: SparseWeights, other: SparseWeights, factor: float
) -> SparseWeights:
    """`one + factor * other`, of the same columns."""
    size, width = len(one.splits) - 1, len(one.biases)
    features = [
        np.repeat(np.arange(size), np.diff(w.splits)) for w in (one, other)
    ]
    summed = from_entries(
        np.concatenate(features),
        np.concatenate([one.columns, other.columns]),
        np.concatenate([one.values, factor * other.values]),
        size,
        width,
    )
    return summed._replace(biases=one.biases + factor * other.biases)


def sum_weights(one: SparseWeights, other: SparseWeights) -> SparseWeights:
    """`one + other`, of the same columns; quick if `other` has few features."""
    is_changed = np.diff(other.splits) > 0
    before = np.repeat(is_changed, np.diff(one.splits))
    size, width = len(is_changed), len(one.biases)
    changed = from_entries(
        np.concatenate(
            [
                np.repeat(np.arange(size), np.diff(one.splits))[before],
                np.repeat(np.arange(size), np.diff(other.splits)),
            ]
        ),
        np.concatenate([one.columns[before], other.columns]),
        np.concatenate([one.values[before], other.values]),
        size,
        width,
    )
    lengths = np.where(is_changed, np.diff(changed.splits), np.diff(one.splits))
    splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    after = np.repeat(is_changed, lengths)
    columns = np.empty(splits[-1], np.int32)
    values = np.empty(splits[-1], np.float32)
    columns[after], values[after] = changed.columns, changed.values
    columns[~after], values[~after] = one.columns[~before], one.values[~before]
    return SparseWeights(splits, columns, values, one.biases + other.biases)


def prune(
    weights: SparseWeights, num_columns: int, threshold: float
) -> SparseWeights:
    """Without weights of less than `threshold` in the first columns."""
    kept = np.abs(weights.values) >= threshold
    kept |= weights.columns >= num_columns
    ends = np.concatenate([[0], np.cumsum(kept)])[weights.splits]
    return weights._replace(
        splits=ends, columns=weights.columns[kept], values=weights.values[kept]
    )


def scaled(weights: SparseWeights, factor: float) -> SparseWeights:
    """`factor * weights`, biases too."""
    by = np.float32(factor)
    return weights._replace(
        values=by * weights.values, biases=by * weights.biases
    )


def from_entries(
    features: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
    num_features: int,
    num_labels: int,
) -> SparseWeights:
    """`SparseWeights` of entries in any order; equal places are added up."""
    keys, places = np.unique(
        features.astype(np.int64) * num_labels + columns, return_inverse=True
    )
    summed = np.bincount(places, values, minlength=len(keys))
    counts = np.bincount(keys // num_labels, minlength=num_features)
    return SparseWeights(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        (keys % num_labels).astype(np.int32),
        summed.astype(np.float32),
        np.zeros(num_labels, np.float32),
    )
