"""Mean directions of the features of new classes: what their rows begin as."""

from typing import NamedTuple

import numpy as np

# Rows whose norms are looked at.
_SAMPLE = 100_000


class Seen(NamedTuple):
    """Statistics of all features in the data, of whatever class.

    Attributes:
        rows: int, how many have a class.
        classes: int, how many different ones they have.
        totals: list, for each of a head's `part_queries` float64 `[dim]`, the
            sum of normalised queries.
        seconds: list of float64 `[dim, dim]`, the sum of their squares.
    """

    rows: int
    classes: int
    totals: list[np.ndarray]
    seconds: list[np.ndarray]


class ClassMeans(NamedTuple):
    """Statistics of the features of new classes.

    Attributes:
        of_parts: list, for each of a head's `part_queries` float32 `[n, dim]`:
            directions of the mean normalised queries; zeros without rows.
        counts: int64 `[n]`, rows of each class.
        sums: list of float32 `[n, dim]`: of their normalised queries.
        seen: `Seen`.
    """

    of_parts: list[np.ndarray]
    counts: np.ndarray
    sums: list[np.ndarray]
    seen: Seen


def directions(rows: np.ndarray) -> np.ndarray:
    """Rows `[n, dim]` over their norms, float32; zeros stay zeros."""
    rows = np.asarray(rows, np.float32)
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.maximum(norms, np.finfo(np.float32).tiny)


def sampled(rows: np.ndarray) -> np.ndarray:
    """Rows `[n, dim]`, or every so many of a great number."""
    return rows[:: len(rows) // _SAMPLE + 1]


def median_norm(rows: np.ndarray) -> float:
    """Median norm of rows `[n, dim]`, or of some of many; 1 for none."""
    norms = np.linalg.norm(np.asarray(sampled(rows), np.float32), axis=1)
    norms = norms[norms > 0]
    return float(np.median(norms)) if len(norms) else 1.0
