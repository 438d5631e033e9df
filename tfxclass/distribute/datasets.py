"""Data as Keras' `fit` takes them, as the datasets of a distributed one."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.data.batches import Batches
from tfxclass.data.batches import as_arrays
from tfxclass.types import Data

# Seed for arrays: equal in all workers, and in each start of a job.
_SEED = 0


def as_datasets(
    name: str, data: Any, batch_size: int, shuffle: bool, is_remote: bool
) -> Data:
    """A `tf.data.Dataset` of global batches, or a function of the epoch.

    Args:
        name: str, of the argument, for errors.
        data: `tf.data.Dataset`, a function that returns one, a
            `keras.utils.PyDataset`, or a tuple or list of arrays `(x, y)` or
            `(x, y, sample_weight)`.
        batch_size: int, rows in a global batch of arrays.
        shuffle: whether arrays come in a new order in each epoch.
        is_remote: whether other processes read the data.

    Raises:
        ValueError: something else, or a `PyDataset` for other processes.
    """
    batch_size = check_positive_int("batch_size", batch_size)
    if isinstance(data, tf.data.Dataset) or callable(data):
        return data
    if isinstance(data, (tuple, list)):
        Batches(name, data, batch_size)  # its errors
        return _of_arrays(name, data, batch_size, shuffle)
    if isinstance(data, keras.utils.PyDataset):
        if is_remote:
            raise ValueError(
                f"`{name}`: the workers of a ParameterServerStrategy cannot "
                "call Python of the coordinator. Give arrays or a "
                f"tf.data.Dataset. Received: a {type(data).__name__}"
            )
        return _of_py_dataset(data)
    raise ValueError(
        f"`{name}` must be arrays (x, y) or (x, y, sample_weight), a "
        "tf.data.Dataset, a keras.utils.PyDataset, or a function that takes "
        f"the number of an epoch and returns a dataset. Received: {type(data)}"
    )


def _of_arrays(name, arrays, batch_size, shuffle):
    arrays = as_arrays(name, tuple(x for x in arrays if x is not None))
    arrays = tf.nest.map_structure(tf.convert_to_tensor, arrays)
    rows = tf.nest.flatten(arrays)[0].shape[0]
    order = tf.data.Dataset.range(rows)
    if shuffle:
        order = order.shuffle(rows, seed=_SEED)

    def gather(ids):
        return tf.nest.map_structure(lambda x: tf.gather(x, ids), arrays)

    return order.batch(batch_size).map(gather)


def _of_py_dataset(batches):
    """A function of the epoch: each pass ends with Keras' `on_epoch_end`."""
    signature = tf.nest.map_structure(_spec, tuple(batches[0]))

    def of_epoch(_):
        return tf.data.Dataset.from_generator(
            lambda: _pass(batches), output_signature=signature
        )

    return of_epoch


def _pass(batches):
    for number in range(batches.num_batches):
        yield tuple(batches[number])
    batches.on_epoch_end()


def _spec(array):
    """Rows of several labels are as wide as a batch needs."""
    array = np.asarray(array)
    sizes = array.shape[1:]
    if np.issubdtype(array.dtype, np.integer):
        sizes = [None] * len(sizes)
    return tf.TensorSpec([None, *sizes], array.dtype)
