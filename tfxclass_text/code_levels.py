"""Levels above tags that are codes: what their names begin with."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.sparse_rows import from_pairs

# Beginnings of a level: at least so many times as in the level before, and at
# most this share of the names.
_MIN_GROWTH, _MAX_SHARE = 2, 0.7
_LONGEST = 32
# By so much, labels that begin alike are closer in cosine than others.
_MIN_LIKENESS = 0.02


def levels(names: Sequence[str]) -> np.ndarray:
    """What each name begins with, by length; int32 `[levels, names]`.

    "C50" is below "C" and "C5" if other names are, too. Beginnings are numbered
    from 0 on, over all levels; there are none where the names share none.

    Args:
        names: list of str.
    """
    found, first, before = [], 0, 1
    for length in range(1, _LONGEST):
        begins = [name[:length] for name in names]
        distinct, ids = np.unique(begins, return_inverse=True)
        if len(distinct) > _MAX_SHARE * len(names):
            break
        if len(distinct) >= _MIN_GROWTH * before:
            found.append(first + ids)
            first, before = first + len(distinct), len(distinct)
    if not found:
        return np.zeros((0, len(names)), np.int32)
    return np.stack(found).astype(np.int32)


def are_related(
    vectors: np.ndarray, parents: np.ndarray, seed: int = 0
) -> bool:
    """Whether labels whose names begin alike have rows that are alike.

    Numbers that were given one after the other begin alike, too, and mean
    nothing: their labels are no more alike than labels in a random order.

    Args:
        vectors: float32 `[num_labels, dim]`, of `linear_tree.label_vectors`.
        parents: int `[levels, num_labels]`, of `levels`.
        seed: int, of the random order.
    """
    units = _units(vectors - vectors.mean(axis=0))
    order = np.random.default_rng(seed).permutation(len(vectors))
    gains = [
        _with_siblings(units, level) - _with_siblings(units, level[order])
        for level in parents
    ]
    return any(
        gain.mean() > _MIN_LIKENESS + 2 * gain.std() / np.sqrt(len(gain))
        for gain in gains
    )


def _units(vectors):
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(norms, 1e-12)


def _with_siblings(units, level):
    """The cosine of each vector with the sum of the others of its parent."""
    sums = np.zeros((int(level.max()) + 1, units.shape[1]), np.float32)
    np.add.at(sums, level, units)
    return np.sum(units * _units(sums[level] - units), axis=1)


def count(parents: np.ndarray) -> int:
    """Beginnings in all levels, int."""
    return int(parents.max(initial=-1)) + 1


def parent_labels(labels: SparseRows, parents: np.ndarray) -> SparseRows:
    """The beginnings of the names of each row's labels, `SparseRows`."""
    size = count(parents)
    keys = labels.row_ids() * size + parents[:, labels.ids]
    rows, ids = np.divmod(np.unique(keys), size)
    return from_pairs(len(labels), rows, ids)


def parent_margins(margins: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """Each label's sum of its beginnings' margins, float32 `[rows, labels]`."""
    total: Any = sum(margins[:, level] for level in parents)
    return total
