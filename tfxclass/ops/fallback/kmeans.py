"""Fallback of the halves of a spherical 2-means, in NumPy."""

import numpy as np
import tensorflow as tf

from tfxclass.ops.fallback.registry import Flags
from tfxclass.ops.fallback.registry import Floats
from tfxclass.ops.fallback.registry import Id
from tfxclass.ops.fallback.registry import Ids
from tfxclass.ops.fallback.registry import InvalidInput
from tfxclass.ops.fallback.registry import fallback
from tfxclass.ops.fallback.registry import generator
from tfxclass.ops.fallback.registry import on_host

_LEAST_GAIN = 1e-4
_MOST = np.iinfo(np.int32).max


def normalized(rows: np.ndarray) -> np.ndarray:
    """Rows over their norms, float32; zero rows stay zero."""
    rows = np.asarray(rows, np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)


def _directions(rows):
    rows = np.asarray(rows, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(rows, axis=-1)
    if rows.ndim != 2 or 0 in rows.shape:
        raise InvalidInput(
            "`rows` must have 1 to 2147483647 rows, of one column or more. "
            f"Received: shape {rows.shape}"
        )
    if not np.all(np.isfinite(norms)):
        raise InvalidInput(
            "`rows` must be finite, and so their norms. Received: NaN, "
            "infinity or greater than 1e19"
        )
    return normalized(rows)


@fallback
def halve_groups(
    rows: Floats, ids: Ids, sizes: Ids, splits: Flags, passes: Id, seed: Id
) -> tf.Tensor:
    """See `tfxclass.ops.kmeans.halve_groups`."""

    def run(rows, ids, sizes, splits, passes, seed):
        _check_groups(rows, ids, sizes, splits, passes)
        directions, ids, start = _directions(rows), ids.copy(), 0
        for size, split in zip(sizes, splits):
            part = ids[start : start + size]
            if split and size > 1:
                part[:] = _halved(directions, part, passes, seed, start)
            start += size
        return (ids,)

    inputs = [rows, ids, sizes, splits, passes, seed]
    return on_host(run, [tf.int64], inputs, [ids.shape])[0]


def _check_groups(rows, ids, sizes, splits, passes):
    for name, value in (("ids", ids), ("sizes", sizes)):
        if value.ndim != 1:
            raise InvalidInput(
                f"`{name}` must have rank 1. Received: shape {value.shape}"
            )
    if splits.shape != sizes.shape:
        raise InvalidInput(
            f"`splits` must have the shape of `sizes`, {sizes.shape}. "
            f"Received: shape {splits.shape}"
        )
    if np.any(sizes < 0) or sizes.sum() != len(ids):
        raise InvalidInput(
            "`sizes` must not be negative, and add up to the "
            f"{len(ids)} of `ids`. Received: a sum of {sizes.sum()}"
        )
    if not 1 <= passes <= _MOST:
        raise InvalidInput(
            f"`passes` must be in [1, {_MOST}]. Received: {passes}"
        )
    if np.any((ids < 0) | (ids >= len(rows))):
        raise InvalidInput(
            f"`ids` must be in [0, {len(rows)}). Received: {ids}"
        )


def _halved(rows, ids, passes, seed, start):
    """`ids` with the left half of a 2-means first."""
    count = len(ids)
    half = (count + 1) // 2
    one, other = generator(seed, start).choice(count, 2, replace=False)
    axis, gained = rows[ids[other]] - rows[ids[one]], 0.0
    for _ in range(passes):
        ids = ids[np.lexsort((ids, rows[ids] @ axis))]
        sums = [
            rows[part].sum(axis=0, dtype=np.float64)
            for part in (ids[:half], ids[half:])
        ]
        lengths = [np.linalg.norm(x) for x in sums]
        left, right = [x / max(n, 1e-30) for x, n in zip(sums, lengths)]
        axis = (right - left).astype(np.float32)
        if sum(lengths) - gained <= _LEAST_GAIN * sum(lengths):
            break
        gained = sum(lengths)
    return ids
