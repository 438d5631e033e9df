"""Batches of the user's data, and held-out examples."""

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_batch
from tfxclass.data.batches import pair_of_arrays

# Rows that judge learning rates: a tenth of all, and at most so many.
_MOST_HELD_OUT = 512
_HELD_OUT = 10
# Fewer rows than these are all trained on.
_LEAST_ROWS = 20

Batches = Iterator[tuple[Any, tf.Tensor]]


class Split(NamedTuple):
    """Training batches, and examples that are held out of them.

    Attributes:
        batches: function without arguments that returns training batches,
            without an end. Batches of arrays begin anew in the same order;
            batches of a dataset go on.
        held_out: list of batches `(x, y)` that judge a learning rate.
        rows: int, how many rows are held out; 0 where the data has so few rows
            that `held_out` is a training batch.
        steps: float, batches of one pass over the data; infinity if unknown.
    """

    batches: Callable[[], Batches]
    held_out: list[tuple[Any, tf.Tensor]]
    rows: int
    steps: float


def split(data: Any, batch_size: int) -> Split:
    """Holds rows out of `data`.

    Args:
        data: as in `batches_of`.
        batch_size: int.

    Raises:
        ValueError: as in `batches_of`.
    """
    if isinstance(data, tf.data.Dataset):
        return _split_dataset(data)
    arrays = keras.tree.map_structure(np.asarray, pair_of_arrays(data))
    count = len(arrays[1])
    order = np.random.default_rng(1).permutation(count)
    rows = min(count // _HELD_OUT, _MOST_HELD_OUT)
    rows = rows if count >= _LEAST_ROWS else 0
    kept = order[rows:] if rows else None
    some = order[:rows] if rows else order[:_MOST_HELD_OUT]
    held_out = [
        _rows_of(arrays, some[start : start + batch_size])
        for start in range(0, len(some), batch_size)
    ]
    left = count - rows
    size = min(batch_size, left)
    return Split(
        lambda: _of_arrays(arrays, count, batch_size, kept),
        held_out,
        rows,
        left / size,
    )


def _split_dataset(dataset):
    most = _num_held_out(dataset)
    held_out, rows = [], 0
    for batch in dataset.take(most):
        x, y = check_batch(batch)
        size = min(_MOST_HELD_OUT - rows, len(y))
        held_out.append(
            keras.tree.map_structure(lambda z, n=size: z[:n], (x, y))
        )
        rows += size
        if rows >= _MOST_HELD_OUT:
            break
    if not held_out:
        raise ValueError("`data` must have a batch. Received: none.")
    others = dataset.skip(len(held_out))
    has_others = any(True for _ in others.take(1))
    batches = _of_dataset(others if has_others else dataset)
    number = int(dataset.cardinality())
    steps = number - len(held_out) if number > len(held_out) else np.inf
    return Split(lambda: batches, held_out, rows if has_others else 0, steps)


def _num_held_out(dataset):
    """Batches: a tenth where the number is known, at least one."""
    number = int(dataset.cardinality())
    return max(number // _HELD_OUT, 1) if number >= 0 else _HELD_OUT


def batches_of(data: Any, batch_size: int) -> Batches:
    """Batches `(x, y)` of tensors, over and over.

    Args:
        data: `(x, y)`, structures of arrays, whose rows are shuffled; or a
            `tf.data.Dataset` of batches, which is repeated.
        batch_size: int, of arrays; as many rows as there are, at most.

    Raises:
        ValueError: other data, none, or arrays of unequal length.
    """
    if isinstance(data, tf.data.Dataset):
        return _of_dataset(data)
    arrays = keras.tree.map_structure(np.asarray, pair_of_arrays(data))
    return _of_arrays(arrays, len(arrays[1]), batch_size)


def _of_arrays(arrays, rows, batch_size, kept=None):
    random = np.random.default_rng(0)
    kept = np.arange(rows) if kept is None else kept
    while True:
        order = random.permutation(kept)
        size = min(batch_size, len(kept))
        for start in range(0, len(kept) - size + 1, size):
            yield _rows_of(arrays, order[start : start + size])


def _rows_of(arrays, rows):
    return keras.tree.map_structure(lambda x: tf.constant(x[rows]), arrays)


def _of_dataset(dataset):
    while True:
        batch = None
        for batch in dataset:
            yield check_batch(batch)
        if batch is None:
            raise ValueError("`data` must have a batch. Received: none.")
