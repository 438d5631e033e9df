"""Data as `fit` takes them, batch by batch."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int


class Batches:
    """Batches of arrays, of a `tf.data.Dataset` or a `keras.utils.PyDataset`.

    Args:
        name: str, of the argument, for errors.
        data: `tf.data.Dataset` or `PyDataset` of batches `(x, y)` or `(x, y,
            sample_weight)`, or a tuple or list of such arrays; each may be a
            structure of arrays.
        batch_size: int, rows in a batch of arrays.

    Attributes:
        count: int, number of batches, or None where it is not known.

    Raises:
        ValueError: something else, data without labels or batches, or arrays
            of different lengths.
    """

    def __init__(self, name: str, data: Any, batch_size: int) -> None:
        batch_size = check_positive_int("batch_size", batch_size)
        if isinstance(data, (tuple, list)):
            data = _of_arrays(name, tuple(data), batch_size)
        self._data = data
        if isinstance(data, tf.data.Dataset):
            _check_elements(name, data.element_spec)
            count = int(data.cardinality())
            self.count = count if count >= 0 else None
        elif isinstance(data, keras.utils.PyDataset):
            self.count = data.num_batches
            _check_elements(name, data[0])
        else:
            raise ValueError(_wanted(name, type(data).__name__))

    def after(self, skipped: int) -> Iterator[Any]:
        """Iterator over the batches behind the first `skipped`."""
        if isinstance(self._data, tf.data.Dataset):
            return iter(self._data.skip(skipped))
        return self._from(skipped)

    def _from(self, number):
        while self.count is None or number < self.count:
            yield tuple(self._data[number])
            number += 1


def _of_arrays(name, arrays, batch_size):
    if arrays and arrays[-1] is None:
        arrays = arrays[:-1]
    if len(arrays) not in (2, 3):
        raise ValueError(_wanted(name, f"{len(arrays)} arrays"))
    arrays = tuple(map(_as_array, arrays))
    sizes = {_length(name, x) for x in tf.nest.flatten(arrays)}
    if len(sizes) > 1:
        raise ValueError(
            f"`{name}` must have arrays of the same length. Received: "
            f"{', '.join(map(str, sorted(sizes)))} rows."
        )
    return tf.data.Dataset.from_tensor_slices(arrays).batch(batch_size)


def _as_array(data):
    """A plain list of labels, weights or texts is an array; else as it is."""
    is_plain = isinstance(data, list) and all(np.ndim(x) == 0 for x in data)
    return np.asarray(data) if is_plain else data


def _length(name, array):
    shape = np.shape(array) if not hasattr(array, "shape") else array.shape
    if len(shape) == 0:
        raise ValueError(_wanted(name, f"a single value, {array!r}"))
    return int(shape[0])


def _check_elements(name, element):
    """Checks that the elements are `(x, y)` or `(x, y, weight)`."""
    found = f"elements {element}"
    if not isinstance(element, (tuple, list)) or len(element) not in (2, 3):
        raise ValueError(_wanted(name, found))
    shape = getattr(element[1], "shape", None)
    if shape is None or tf.TensorShape(shape).rank == 0:
        raise ValueError(_wanted(name, found))


def _wanted(name, received):
    return (
        f"`{name}` must be data with labels, as `fit` takes them: arrays "
        "(inputs, labels) or (inputs, labels, sample_weight), or a "
        "tf.data.Dataset or a keras.utils.PyDataset of such batches. "
        f"Received: {received}"
    )
