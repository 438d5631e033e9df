"""Sparse rows as flat arrays, as the compiled ops take them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

# Rows that are padded at a time.
_BATCH = 1024
# Rows whose entries are moved at a time: places of all would be gigabytes.
_MOVED = 1 << 14


class SparseRows(NamedTuple):
    """Row i has the entries `splits[i]` to `splits[i + 1]`."""

    #: int64 `[rows + 1]`.
    splits: np.ndarray
    #: int64 or, of the terms of texts, int32; float32. Both `[entries]`.
    ids: np.ndarray
    values: np.ndarray

    def __len__(self) -> int:
        return len(self.splits) - 1

    def row_ids(self) -> np.ndarray:
        """int64 `[entries]`, the row of each."""
        return np.repeat(np.arange(len(self)), np.diff(self.splits))

    def with_ids(self, ids: np.ndarray) -> "SparseRows":
        """The same rows with other ids."""
        # `_replace` counts the fields by len(), which counts the rows.
        return SparseRows(self.splits, ids, self.values)

    def take(self, rows: np.ndarray) -> "SparseRows":
        """The given rows, in their order."""
        lengths = np.diff(self.splits)[rows]
        splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        places = np.repeat(self.splits[:-1][rows] - splits[:-1], lengths)
        places += np.arange(splits[-1])
        return SparseRows(splits, self.ids[places], self.values[places])

    def renumbered(self, place: np.ndarray) -> "SparseRows":
        """Entries by `place[id]`; those whose place is below 0 are left out."""
        found = self.where(place[self.ids] >= 0)
        return found.with_ids(place[found.ids])

    def where(self, kept: np.ndarray) -> "SparseRows":
        """The entries where `kept`, bool `[entries]`, is true."""
        splits = np.searchsorted(np.flatnonzero(kept), self.splits)
        return SparseRows(splits, self.ids[kept], self.values[kept])

    def heaviest(self, most: int) -> "SparseRows":
        """The `most` entries of each row that are furthest from 0."""
        lengths = np.diff(self.splits)
        kept = np.ones(len(self.ids), bool)
        for begin in range(0, len(self), _BATCH):
            of_rows = lengths[begin : begin + _BATCH]
            longest = of_rows.max(initial=0)
            if longest <= most:
                continue
            at = slice(*self.splits[[begin, begin + len(of_rows)]])
            inside = np.arange(longest) < of_rows[:, np.newaxis]
            sizes = np.full(inside.shape, -1, np.float32)
            sizes[inside] = np.abs(self.values[at])
            best = np.argpartition(-sizes, most - 1, axis=1)[:, :most]
            chosen = np.zeros(inside.shape, bool)
            np.put_along_axis(chosen, best, True, axis=1)
            kept[at] = chosen[inside]
        return self if kept.all() else self.where(kept)

    def padded(self) -> tuple[np.ndarray, np.ndarray]:
        """`(ids, values)` `[rows, longest]`, padded with id 0, value 0."""
        lengths = np.diff(self.splits)
        width = max(int(lengths.max(initial=0)), 1)
        inside = np.arange(width) < lengths[:, np.newaxis]
        ids = np.zeros(inside.shape, np.int64)
        values = np.zeros(inside.shape, np.float32)
        ids[inside], values[inside] = self.ids, self.values
        return ids, values


class LabeledRows(NamedTuple):
    """What classifiers are trained on."""

    #: The features of each row.
    rows: SparseRows
    #: The labels of each row; the values do not count.
    labels: SparseRows
    num_features: int
    num_labels: int

    def take(self, rows: np.ndarray) -> "LabeledRows":
        """The given rows, in their order."""
        return self._replace(
            rows=self.rows.take(rows), labels=self.labels.take(rows)
        )


def from_pairs(
    size: int, rows: np.ndarray, ids: ArrayLike, values: ArrayLike | None = None
) -> SparseRows:
    """`SparseRows` of entries in any order of rows."""
    order = np.argsort(rows, kind="stable")
    counts = np.bincount(rows, minlength=size)
    if values is None:
        values = np.ones(len(order), np.float32)
    return SparseRows(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.asarray(ids, np.int64)[order],
        np.asarray(values, np.float32)[order],
    )


def side_by_side(
    parts: Sequence[SparseRows], sizes: Sequence[int]
) -> SparseRows:
    """Rows with the entries of all parts; ids of a part follow the last's.

    The ids of a part are below its size.
    """
    if len(parts) == 1:
        return parts[0]
    splits = np.sum([part.splits for part in parts], axis=0)
    ids = np.empty(splits[-1], parts[0].ids.dtype)
    values = np.empty(splits[-1], np.float32)
    firsts = np.cumsum([0, *sizes])
    for begin in range(0, len(splits) - 1, _MOVED):
        begins = splits[:-1][begin : begin + _MOVED].copy()
        for part, first in zip(parts, firsts):
            ends = part.splits[begin : begin + _MOVED + 1]
            own, lengths = slice(ends[0], ends[-1]), np.diff(ends)
            places = np.arange(own.start, own.stop)
            places += np.repeat(begins - ends[:-1], lengths)
            ids[places] = part.ids[own] + ids.dtype.type(first)
            values[places] = part.values[own]
            begins += lengths
    return SparseRows(splits, ids, values)


def stack(*parts: SparseRows) -> SparseRows:
    """The rows of all parts, one part after the other."""
    lengths = np.concatenate([np.diff(part.splits) for part in parts])
    return SparseRows(
        np.append(0, np.cumsum(lengths)),
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.values for part in parts]),
    )
