"""Mean directions of the features of new classes: what their rows begin as."""

from typing import NamedTuple

import numpy as np

# Rows whose norms are looked at.
_SAMPLE = 100_000


class ClassMeans(NamedTuple):
    """What is known of the features of new classes.

    Attributes:
        of_parts: list, for each of a head's `part_queries` float32 `[n, dim]`:
            directions of the mean normalised queries; zeros without rows.
        counts: int64 `[n]`, rows of each class.
    """

    of_parts: list[np.ndarray]
    counts: np.ndarray


def directions(rows: np.ndarray) -> np.ndarray:
    """Rows `[n, dim]` over their norms, float32; zeros stay zeros."""
    rows = np.asarray(rows, np.float32)
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.maximum(norms, np.finfo(np.float32).tiny)


def median_norm(rows: np.ndarray) -> float:
    """Of rows `[n, dim]`, or of a part of many; 1 of none."""
    rows = rows[:: len(rows) // _SAMPLE + 1]
    norms = np.linalg.norm(np.asarray(rows, np.float32), axis=1)
    norms = norms[norms > 0]
    return float(np.median(norms)) if len(norms) else 1.0
