"""Answers and labels of questions, checked before they are measured."""

import numpy as np
from numpy.typing import ArrayLike

from tfxclass.checks import as_ids


def as_answers(
    ids: ArrayLike, labels: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Answers and labels as arrays, each id once in a row; or ValueError.

    An answer that names an item twice would count it twice, and measures would
    be above 1. A repeated label counts once, as in training.

    Args:
        ids: integers `[rows, n]`, best first, -1 where there are fewer.
        labels: integers `[rows, p]`, padded with -1.

    Returns:
        `(ids, labels)`: integers `[rows, n]` and `[rows, p]`, with -1 in place
        of repeated labels.
    """
    ids, labels = as_ids("ids", ids), as_ids("labels", labels)
    if ids.ndim != 2 or labels.ndim != 2 or len(ids) != len(labels):
        raise ValueError(
            "`ids` must have shape [rows, n], and `labels` [rows, p] with as "
            f"many rows. Received: shapes {ids.shape} and {labels.shape}"
        )
    bad = np.flatnonzero((_is_repeated(ids) & (ids >= 0)).any(axis=1))
    if len(bad):
        raise ValueError(
            "`ids` must not name a class twice in a row. Received: "
            f"{ids[bad[0]][:10].tolist()} in row {bad[0]}"
        )
    return ids, np.where(_is_repeated(labels), -1, labels)


def _is_repeated(ids):
    """Whether an id was in its row before, bool of the same shape."""
    order = np.argsort(ids, axis=1, kind="stable")
    ranked = np.take_along_axis(ids, order, axis=1)
    found = np.zeros(ids.shape, bool)
    np.put_along_axis(
        found, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], axis=1
    )
    return found
