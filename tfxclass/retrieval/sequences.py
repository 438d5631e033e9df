"""Sequences of items as arrays that a model reads."""

import numbers
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
from typing import Any

import numpy as np

from tfxclass.checks import as_list
from tfxclass.checks import check_choice
from tfxclass.checks import check_positive_int


def as_sequences(name: str, sequences: Any) -> list[Sequence[int]]:
    """Sequences of item ids in their order; ValueError for others."""
    if isinstance(sequences, (Mapping, Set)):
        raise ValueError(
            f"`{name}` must be a list of lists of item ids. Received: a "
            f"{type(sequences).__name__}"
        )
    found = as_list(name, sequences, "lists of item ids")
    for number, row in enumerate(found):
        if hasattr(row, "to_list"):
            # By position: the labels of a Series are no order.
            found[number] = row = row.to_list()
        if np.ndim(row) != 1 or not _are_ids(row):
            raise ValueError(
                f"`{name}` must be lists of integer item ids. Received: "
                f"{row!r} at position {number}. Fix: ids, names = "
                "tfxclass.retrieval.number_items(sessions)"
            )
    return found


def _are_ids(row):
    if isinstance(row, np.ndarray):
        return not row.size or row.dtype.kind in "iu"
    return all(
        isinstance(item, numbers.Integral) and not isinstance(item, bool)
        for item in row
    )


def number_items(
    sequences: Sequence[Sequence[str | int]],
    padding: str | int = "<padding>",
) -> tuple[list[list[int]], list[str | int]]:
    """Numbers items by their names, from 1 on: 0 is padding.

    Args:
        sequences: names of items, all strings, or all integers.
        padding: name of the id 0, which no item has.

    Returns:
        `(ids, names)`. `ids` has the sequences as lists of ids, and
        `names[id]` is the name of an id, sorted after the padding. Give
        `names` as `labels` to exports. Their ids of -1 stand for no answer.

    Example:

    ```python
    ids, names = tfxclass.retrieval.number_items([["tea", "cup"], ["tea"]])
    assert ids == [[2, 1], [2]] and names[2] == "tea"
    ```
    """
    rows = as_list("sequences", sequences, "lists of names")
    rows = [as_list("sequences", row, "lists of names") for row in rows]
    items = {item for row in rows for item in row}
    kinds = {str if isinstance(item, str) else type(item) for item in items}
    if kinds != {str} and not _are_ids(items):
        raise ValueError(
            "`sequences` must be lists of names, all strings or all integers. "
            f"Received: {', '.join(sorted(kind.__name__ for kind in kinds))}"
        )
    if padding in items:
        raise ValueError(
            f"`padding` must not be the name of an item. Received: {padding!r}"
        )
    names = [padding, *np.sort(np.array(list(items))).tolist()]
    ids = {name: number for number, name in enumerate(names)}
    return [[ids[item] for item in row] for row in rows], names


def pad(
    sequences: Sequence[Sequence[int]],
    length: int,
    value: int = 0,
    latest: str = "last",
) -> np.ndarray:
    """The latest items of each sequence, in rows of equal length.

    Args:
        sequences: item ids of each sequence, in the order of time.
        length: int, items in a row. A longer sequence keeps its latest items.
        value: int, the padding: 0 for inputs, if no item has the id 0, and -1
            for labels and for `top_k(exclude=True)`, which needs the length of
            the longest sequence.
        latest: `"last"`: padding comes first, as causal transformers need it.
            `"first"`: column i has the item of i steps before the latest.

    Returns:
        int64 `[sequences, length]`.

    Example:

    ```python
    x = tfxclass.retrieval.pad([[5, 7], [1, 2, 3, 4]], length=3)
    ```
    """
    length = check_positive_int("length", length)
    check_choice("latest", latest, ("last", "first"))
    sequences = as_sequences("sequences", sequences)
    sizes = np.array([min(len(row), length) for row in sequences], np.int64)
    kept = [item for row in sequences for item in row[-length:]]
    rows = np.full((len(sizes), length), value, np.int64)
    is_item = np.arange(length) >= length - sizes[:, np.newaxis]
    rows[is_item] = kept
    return rows if latest == "last" else rows[:, ::-1]


def next_items(
    sequences: Sequence[Sequence[int]],
) -> tuple[list[Sequence[int]], np.ndarray]:
    """Every beginning of every sequence, with the item that comes next.

    They are `(beginnings, labels)`: lists of item ids, and int64 `[questions]`.

    Example:

    ```python
    beginnings, labels = tfxclass.retrieval.next_items([[5, 7, 9], [1, 2]])
    ```
    """
    sequences = as_sequences("sequences", sequences)
    pairs = [(s[:i], s[i]) for s in sequences for i in range(1, len(s))]
    labels = np.array([label for _, label in pairs], np.int64)
    return [beginning for beginning, _ in pairs], labels
