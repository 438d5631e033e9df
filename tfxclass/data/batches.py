"""Data as `fit` takes them, batch by batch."""

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import as_array
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
    arrays = as_arrays(name, arrays)
    sizes = {_length(name, x) for x in tf.nest.flatten(arrays)}
    if len(sizes) > 1:
        raise ValueError(
            f"`{name}` must have arrays of the same length. Received: "
            f"{', '.join(map(str, sorted(sizes)))} rows."
        )
    return tf.data.Dataset.from_tensor_slices(arrays).batch(batch_size)


def as_arrays(name: str, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Inputs, labels and weights as NumPy arrays and tensors.

    Args:
        name: str, of the argument, for errors.
        arrays: the inputs, and what else there is: arrays, tensors, lists,
            tuples and Series. Inputs may be a structure of them.
    """
    inputs, *others = arrays
    others = [_as_array(name, x) for x in others]
    for array in others:
        if array.dtype == object and not isinstance(array.flat[0], str):
            raise ValueError(
                f"`{name}` must have numbers as labels and weights. Received: "
                f"an array of objects, among them {array.ravel()[-1]!r}. Fix: "
                "fill missing values, with -1 in labels"
            )
    return _as_inputs(name, inputs), *others


def pair_of_arrays(data: Any) -> tuple[Any, Any]:
    """`(x, y)` as NumPy arrays and tensors; ValueError for other data."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ValueError(
            "`data` must be (x, y) or a tf.data.Dataset of such batches. "
            f"Received: {type(data).__name__}"
        )
    arrays = as_arrays("data", tuple(data))
    sizes = {x.shape[0] for x in tf.nest.flatten(arrays) if len(x.shape)}
    if len(sizes) != 1 or sizes == {0}:
        raise ValueError(
            "`data` must have the same number of rows in x and y, at least "
            f"one. Received: {sorted(sizes)}"
        )
    return arrays


def _as_inputs(name, data):
    if isinstance(data, Mapping):
        return {key: _as_inputs(name, x) for key, x in data.items()}
    # A list of lists is a matrix; a tuple of them is several inputs.
    parts = (Mapping, list, tuple) if isinstance(data, tuple) else Mapping
    if isinstance(data, (list, tuple)) and any(
        isinstance(x, parts) or len(getattr(x, "shape", ())) for x in data
    ):
        return tuple(_as_inputs(name, x) for x in data)
    return _as_array(name, data)


def _as_array(name, data):
    return data if tf.is_tensor(data) else as_array(name, data)


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
