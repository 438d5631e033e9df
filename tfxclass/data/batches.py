"""Data as `fit` takes them, batch by batch."""

import itertools
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import as_array
from tfxclass.checks import check_positive_int


def without_autotune(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset without the tuning of its pipeline while it runs.

    A dropped iterator may wait a minute for the tuning thread, which misses a
    cancellation (`Model::OptimizeLoop` in 2.21).
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


class Batches:
    """Batches of arrays, of a `tf.data.Dataset` or a `keras.utils.PyDataset`.

    Batches are `(x, y)` or `(x, y, sample_weight)`. Arrays come `batch_size`
    rows at a time. `count` is the number of batches, or None if unknown.
    """

    def __init__(self, name: str, data: Any, batch_size: int) -> None:
        batch_size = check_positive_int("batch_size", batch_size)
        if isinstance(data, (tuple, list)):
            arrays = labelled_arrays(name, data)
            data = tf.data.Dataset.from_tensor_slices(arrays)
            data = without_autotune(data.batch(batch_size))
        self._data = data
        if isinstance(data, tf.data.Dataset):
            element, count = data.element_spec, int(data.cardinality())
            self.count = count if count >= 0 else None
        elif isinstance(data, keras.utils.PyDataset):
            element, self.count = data[0], data.num_batches
        else:
            raise ValueError(_wanted(name, type(data).__name__))
        # The elements must be `(x, y)` or `(x, y, weight)`.
        is_pair = isinstance(element, (tuple, list)) and len(element) in (2, 3)
        shape = getattr(element[1], "shape", None) if is_pair else None
        if shape is None or tf.TensorShape(shape).rank == 0:
            raise ValueError(_wanted(name, f"elements {element}"))

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self._data, tf.data.Dataset):
            return iter(self._data)
        count = itertools.count() if self.count is None else range(self.count)
        return (tuple(self._data[number]) for number in count)


def labelled_arrays(name: str, data: Any) -> tuple[Any, ...]:
    """`(x, y)` or `(x, y, weight)` as arrays of one length; or ValueError."""
    if not isinstance(data, (tuple, list)):
        raise ValueError(_wanted(name, type(data).__name__))
    if data and data[-1] is None:
        data = data[:-1]
    if len(data) not in (2, 3):
        raise ValueError(_wanted(name, f"{len(data)} arrays"))
    arrays = as_arrays(name, tuple(data))
    sizes = set()
    for array in tf.nest.flatten(arrays):
        if len(array.shape) == 0:
            raise ValueError(_wanted(name, f"a single value, {array!r}"))
        sizes.add(int(array.shape[0]))
    if len(sizes) > 1:
        raise ValueError(
            f"`{name}` must have arrays of the same length. Received: "
            f"{', '.join(map(str, sorted(sizes)))} rows."
        )
    return arrays


def as_arrays(name: str, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Inputs, and labels and weights if given, as NumPy arrays and tensors."""
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


def _wanted(name, received):
    return (
        f"`{name}` must be data with labels, as `fit` takes them: arrays "
        "(inputs, labels) or (inputs, labels, sample_weight), or a "
        "tf.data.Dataset or a keras.utils.PyDataset of such batches. "
        f"Received: {received}"
    )
