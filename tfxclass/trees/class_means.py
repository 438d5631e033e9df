"""Mean features of new classes, and the class vectors made of them."""

from typing import NamedTuple

import numpy as np

# Rows whose norms are looked at.
_SAMPLE = 100_000


class Seen(NamedTuple):
    """Statistics of all features in the data, of whatever class."""

    #: How many rows have a class, and how many classes these are.
    rows: int
    classes: int
    #: For each of a head's `part_queries`, normalized: the sum, float64
    #: `[dim]`, and the sum of squares, `[dim, dim]`.
    totals: list[np.ndarray]
    seconds: list[np.ndarray]


class ClassMeans(NamedTuple):
    """Statistics of the features of n new classes."""

    #: Directions of `sums`, zeros without rows.
    of_parts: list[np.ndarray]
    #: Rows of each class, int64 `[n]`.
    counts: np.ndarray
    #: Sums of the normalized `part_queries`, float32 `[n, dim]` each.
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


def new_rows(
    others: np.ndarray, means: ClassMeans, part: int, is_cosine: bool
) -> np.ndarray:
    """Rows of new classes, from their features and the rows of the others.

    What all features have in common tells no class from another one. So a new
    row is the mean of its class less the mean of the other rows of the data,
    added to the mean of the other class rows. Where the data show enough
    classes, it is as strong as those: logits on features of other classes
    deviate as much. As long a row would win too often, since trained rows are
    partly where features hardly are.

    `others` are class rows `[rows, dim]`, and `part` says which of the queries
    they are multiplied with. Returns float32 `[n, dim]`. If `is_cosine`, rows
    are normalized in logits, and these as long as `others`.
    """
    old = np.asarray(sampled(others), np.float32)
    norm = median_norm(old)
    if is_cosine:
        old = directions(old)
    common = old.mean(axis=0) if len(old) else 0
    old = old - common
    apart = _apart(means, part)
    length = median_norm(old)
    strength = _strength(old, means, part, apart)
    found = common + strength * length * directions(apart)
    if is_cosine:
        found = norm * directions(_filled(found, means, part))
    return found.astype(np.float32)


def _apart(means, part):
    """Means of classes minus the mean of all others, `[n, dim]`."""
    counts = np.maximum(means.counts, 1)[:, None]
    total, sums = means.seen.totals[part], means.sums[part]
    num_others = np.maximum(means.seen.rows - means.counts, 1)[:, None]
    return sums / counts - (total - sums) / num_others


def _shows_enough(means, part):
    """Whether the data show how features are spread in all directions."""
    return means.seen.classes > means.sums[part].shape[1]


def _strength(old, means, part, apart):
    """The factor, at most 1, that shortens rows of the others' length."""
    if not _shows_enough(means, part):
        return 1.0
    rows, counts = means.seen.rows, means.counts
    mean = means.seen.totals[part] / rows
    covariance = means.seen.seconds[part] / rows - np.outer(mean, mean)
    # Only the mean of a class's own examples is known.
    own = counts * np.sum(apart**2, axis=1)
    of_new = rows * _energy(directions(apart), covariance) - own
    of_new = of_new[counts > 0] / np.maximum(rows - counts[counts > 0], 1)
    of_old = _energy(old, covariance) / median_norm(old) ** 2
    least = np.finfo(np.float32).tiny
    ratio = np.median(of_old) / max(np.median(of_new), least)
    return min(1.0, np.sqrt(ratio)) or 1.0


def _energy(rows, moments):
    return np.maximum(np.sum((rows @ moments) * rows, axis=1), 0)


def _filled(rows, means, part):
    """Rows as long as 1 by what lies where features are least."""
    if not _shows_enough(means, part):
        return rows
    _, axes = np.linalg.eigh(means.seen.seconds[part])
    missing = 1 - np.sum(rows**2, axis=1, keepdims=True)
    return rows + np.sqrt(np.maximum(missing, 0)) * axes[:, 0]
