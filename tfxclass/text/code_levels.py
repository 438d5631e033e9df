"""Levels above tags that are codes: what their names begin with."""

from collections.abc import Sequence

import numpy as np

from tfxclass.text.sparse_rows import SparseRows
from tfxclass.text.sparse_rows import from_pairs

# Beginnings of a level: so many times those of the level before at least, and
# at most this share of the names.
_MIN_GROWTH, _MAX_SHARE = 2, 0.7
_LONGEST = 32


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
    return sum(margins[:, level] for level in parents)
