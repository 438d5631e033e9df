"""Data as Keras' `fit` takes them, as the datasets of a distributed one."""

from typing import Any

import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.data.batches import labelled_arrays
from tfxclass.types import Data

# Seed for arrays: equal in all workers, and in each start of a job.
_SEED = 0


def as_datasets(name: str, data: Any, batch_size: int, shuffle: bool) -> Data:
    """A `tf.data.Dataset` of global batches, or a function of the epoch.

    Arrays `(x, y)` or `(x, y, sample_weight)` come `batch_size` rows at a time,
    with `shuffle` in a new order in each epoch.
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
    arrays = labelled_arrays(name, data)
    arrays = tf.nest.map_structure(tf.convert_to_tensor, arrays)
    rows = tf.nest.flatten(arrays)[0].shape[0]
    order = tf.data.Dataset.range(rows)
    if shuffle:
        order = order.shuffle(rows, seed=_SEED)

    def gather(ids):
        return tf.nest.map_structure(lambda x: tf.gather(x, ids), arrays)

    return order.batch(batch_size).map(gather)
