"""Batches of what `advise` is given, without end."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_batch
from tfxclass.checks import check_pair


def batches_of(data: Any, batch_size: int) -> Iterator[tuple[Any, tf.Tensor]]:
    """Batches `(x, y)` of tensors, over and over.

    Args:
        data: `(x, y)`, structures of arrays, whose rows are drawn; or a
            `tf.data.Dataset` of batches, which is repeated.
        batch_size: int, of arrays; as many rows as there are, at most.

    Raises:
        ValueError: other data, none, or arrays of unequal length.
    """
    if isinstance(data, tf.data.Dataset):
        return _of_dataset(data)
    rows = check_pair(data)
    arrays = keras.tree.map_structure(np.asarray, tuple(data))
    return _of_arrays(arrays, rows, batch_size)


def _of_arrays(arrays, rows, batch_size):
    random = np.random.default_rng(0)
    while True:
        order = random.permutation(rows)
        size = min(batch_size, rows)
        for start in range(0, rows - size + 1, size):
            part = order[start : start + size]
            yield keras.tree.map_structure(
                lambda each, part=part: tf.constant(each[part]), arrays
            )


def _of_dataset(dataset):
    while True:
        batch = None
        for batch in dataset:
            yield check_batch(batch)
        if batch is None:
            raise ValueError("`data` must have a batch. Received: none.")
