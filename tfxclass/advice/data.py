"""Batches of what `advise` is given, without end."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf


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
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ValueError(
            "`data` must be (x, y) or a tf.data.Dataset of such batches. "
            f"Received: {type(data).__name__}"
        )
    arrays = keras.tree.map_structure(np.asarray, tuple(data))
    sizes = {len(each) for each in keras.tree.flatten(arrays)}
    if len(sizes) != 1 or sizes == {0}:
        raise ValueError(
            "`data` must have the same number of rows in x and y, at least "
            f"one. Received: {sorted(sizes)}"
        )
    return _of_arrays(arrays, sizes.pop(), batch_size)


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
            if not isinstance(batch, tuple) or len(batch) != 2:
                raise ValueError(
                    "`data` must give batches (x, y). Received: "
                    f"{type(batch).__name__} of {len(batch)}"
                )
            yield batch
        if batch is None:
            raise ValueError("`data` must have a batch. Received: none.")
