"""The lists of an earlier export, with new classes in them."""

import os

import numpy as np
import tensorflow as tf

from tfxclass.ops import bfloat16_rows
from tfxclass.types import Path

# Rows at a time: the temporaries stay small.
_BLOCK = 16_384
# Relative to a row's greatest number: the rounding of int8 and bfloat16.
_ROUNDING = 1 / 128


def lists_of(
    folder: Path, rows: tf.Tensor, removed: list[int] = ()
) -> np.ndarray:
    """The list of each class, int64 `[num_classes]`.

    It is the list of `folder` for a row that is as it was there, but for
    rounding; for others the list whose mean row has the direction nearest to
    theirs.

    Args:
        folder: a version that `saved_model` wrote with lists.
        rows: float32 or bfloat16 tensor `[num_classes, dim]`.
        removed: ids of classes without a row.

    Raises:
        ValueError: no such version, or rows of another size.
    """
    earlier = _Earlier(folder, rows.shape[1])
    lists = np.zeros(rows.shape[0], np.int64)
    for start in range(0, rows.shape[0], _BLOCK):
        block = bfloat16_rows.widen(rows[start : start + _BLOCK]).numpy()
        end = start + len(block)
        lists[start:end] = earlier.lists_of(np.arange(start, end), block)
    lists[list(removed)] = 0
    return lists


class _Earlier:
    """The lists of an earlier version."""

    def __init__(self, folder, dim):
        path = os.path.join(os.fspath(folder), "variables", "variables")
        values = _values(path)
        if "order" not in values or "centres" not in values:
            raise ValueError(
                "`base` must be the folder of a version that was exported "
                f"with InvertedLists. Received: {os.fspath(folder)!r}"
            )
        centres = values["centres"]
        if centres.shape[1] != dim:
            raise ValueError(
                "`base` must have rows of as many dimensions as the head's, "
                f"{dim}. Received: {centres.shape[1]}"
            )
        norms = np.linalg.norm(centres, axis=1, keepdims=True)
        self.centres = centres / np.maximum(norms, np.finfo("float32").tiny)
        self.rows, self.scales = values["rows"], values.get("scales")
        # Place of each class in the lists; the last is of none.
        order, sizes = values["order"], np.diff(values["starts"])
        self.places = np.full(int(order.max()) + 2, -1)
        self.places[order] = np.arange(len(order))
        self.of_place = np.repeat(np.arange(len(sizes)), sizes)

    def lists_of(self, ids, rows):
        at = self.places[np.minimum(ids, len(self.places) - 1)]
        was = self.rows[at].astype("float32")
        if self.scales is not None:
            was *= self.scales[at, np.newaxis]
        error = np.abs(was - rows).max(axis=1)
        is_same = (at >= 0) & (error <= _ROUNDING * np.abs(rows).max(axis=1))
        lists = self.of_place[at]
        moved = tf.matmul(rows[~is_same], self.centres, transpose_b=True)
        lists[~is_same] = tf.argmax(moved, axis=1)
        return lists


def _values(path):
    """Arrays of a search by the name of their variable; {} of no file."""
    try:
        reader = tf.train.load_checkpoint(path)
    except (tf.errors.OpError, ValueError):
        return {}
    names = {
        "order": "order",
        "starts": "starts",
        "centres": "centres",
        "rows": "rows",
        "rows/codes": "rows",
        "rows/scales": "scales",
    }
    keys = {
        f"search/{k}/.ATTRIBUTES/VARIABLE_VALUE": v for k, v in names.items()
    }
    found = reader.get_variable_to_shape_map()
    return {v: reader.get_tensor(k) for k, v in keys.items() if k in found}
