"""Data as Keras' `fit` takes them, as the datasets of a distributed one."""

from typing import Any

import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.data.batches import Batches
from tfxclass.data.batches import as_arrays
from tfxclass.types import Data

# Seed for arrays: equal in all workers, and in each start of a job.
_SEED = 0


def as_datasets(name: str, data: Any, batch_size: int, shuffle: bool) -> Data:
    """A `tf.data.Dataset` of global batches, or a function of the epoch.

    Args:
        name: str, of the argument, for errors.
        data: `tf.data.Dataset`, a function that returns one, or a tuple or
            list of arrays `(x, y)` or `(x, y, sample_weight)`.
        batch_size: int, rows in a global batch of arrays.
        shuffle: whether arrays come in a new order in each epoch.

    Raises:
        ValueError: something else.
    """
    batch_size = check_positive_int("batch_size", batch_size)
    if isinstance(data, tf.data.Dataset) or callable(data):
        return data
    if not isinstance(data, (tuple, list)):
        raise ValueError(
            f"`{name}` must be arrays (x, y) or (x, y, sample_weight), a "
            "tf.data.Dataset, or a function that takes the number of an epoch "
            f"and returns a dataset. Received: {type(data)}"
        )
    Batches(name, data, batch_size)  # its errors
    arrays = as_arrays(name, tuple(x for x in data if x is not None))
    arrays = tf.nest.map_structure(tf.convert_to_tensor, arrays)
    rows = tf.nest.flatten(arrays)[0].shape[0]
    order = tf.data.Dataset.range(rows)
    if shuffle:
        order = order.shuffle(rows, seed=_SEED)

    def gather(ids):
        return tf.nest.map_structure(lambda x: tf.gather(x, ids), arrays)

    return order.batch(batch_size).map(gather)
