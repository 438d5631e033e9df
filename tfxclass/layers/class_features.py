"""A table of class features, held as weights of a head."""

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import as_array
from tfxclass.checks import as_ids
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.ops import placement

#: Names of the weights of the table begin with it.
PREFIX = "class_features_"


@dataclasses.dataclass(frozen=True)
class Column:
    """An array of the table.

    Attributes:
        shape: tuple of ints, of the features of one class.
        dtype: str.
        values: `[num_classes, *shape]`, or None where a file has the values.
    """

    shape: tuple
    dtype: str
    values: np.ndarray | None = None


def columns_of(given: Any, num_rows: int) -> Any:
    """`given` as a structure of `Column`.

    Args:
        given: array or tensor `[num_rows, ...]`, or a tuple, list or dict of
            them; or what `to_config` returned.
        num_rows: int.

    Raises:
        ValueError: another number of rows, text, or a ragged tensor.
    """
    # A file has no tuples.
    given = list(given) if isinstance(given, tuple) else given
    return keras.tree.map_structure(lambda x: _column_of(x, num_rows), given)


def _column_of(given, num_rows):
    if isinstance(given, str):
        dtype, _, sizes = given.rstrip("]").partition("[")
        return Column(tuple(map(int, filter(None, sizes.split(",")))), dtype)
    if isinstance(given, tf.RaggedTensor):
        raise ValueError(
            "`class_features` must not be ragged. Received: a RaggedTensor. "
            "Fix: pad the rows, e.g. with ragged.to_tensor(-1)"
        )
    values = as_array("class_features", given)
    if values.dtype.kind not in "iufb":
        raise ValueError(
            "`class_features` must be numbers. Received: "
            f"dtype={values.dtype}. Fix: turn text into ids first, e.g. with "
            "keras.layers.TextVectorization"
        )
    if values.ndim == 0 or len(values) != num_rows:
        raise ValueError(
            "`class_features` must be arrays with one row for each class. "
            f"Received: shape {values.shape} for {num_rows} classes"
        )
    return Column(values.shape[1:], str(values.dtype), values)


def to_config(columns: Any) -> Any:
    """Shapes and types of a structure of `Column`, as a structure of str."""
    return keras.tree.map_structure(
        lambda column: f"{column.dtype}{list(column.shape)}", columns
    )


def weight_specs(columns: Any, num_classes: int) -> list[WeightSpec]:
    """The `WeightSpec` of each `Column` of a structure."""
    return [
        WeightSpec(
            f"{PREFIX}{i}",
            (num_classes, *column.shape),
            _initializer(column.values),
            column.dtype,
            trainable=False,
            is_rows=False,
        )
        for i, column in enumerate(keras.tree.flatten(columns))
    ]


def _initializer(values):
    if values is None:
        return "zeros"
    return lambda shape, dtype=None: tf.constant(values)


def checked_ids(ids: Any, num_classes: int) -> np.ndarray:
    """int64 `[n]`; ValueError unless they are distinct classes."""
    given = as_ids("ids", ids)
    is_right = given.ndim == 1
    if is_right and len(given):
        is_right = given.min() >= 0 and given.max() < num_classes
        is_right = is_right and len(np.unique(given)) == len(given)
    if not is_right:
        raise ValueError(
            "`ids` must be distinct integers in [0, num_classes), of shape "
            f"[n]. Received: {given!r} with num_classes={num_classes}"
        )
    return given.astype(np.int64)


class Table:
    """The class features of a head that is built.

    Args:
        columns: structure of `Column`.
        weights_by_name: dict of the head's weights.
    """

    def __init__(
        self, columns: Any, weights_by_name: dict[str, keras.Variable]
    ) -> None:
        self._columns = columns
        self._weights = [
            weight
            for name, weight in weights_by_name.items()
            if name.startswith(PREFIX)
        ]

    def _packed(self, flat):
        return keras.tree.pack_sequence_as(self._columns, flat)

    def read(self) -> Any:
        """All features, a structure of NumPy arrays."""
        return self._packed([weight.numpy() for weight in self._weights])

    def gather(self, ids: tf.Tensor) -> Any:
        """Features of classes `ids`, int64 `[n]`, a structure of tensors."""
        return self._packed(
            [placement.gather(weight, ids) for weight in self._weights]
        )

    def set_rows(self, ids: np.ndarray, features: Any) -> None:
        """Sets the features of some classes.

        Args:
            ids: int64 `[n]`.
            features: structure of arrays `[n, ...]`, like the table's.

        Raises:
            ValueError: another number of arrays or rows, or other shapes.
        """
        columns = keras.tree.flatten(columns_of(features, len(ids)))
        wanted = [tuple(weight.shape[1:]) for weight in self._weights]
        shapes = [column.shape for column in columns]
        if shapes != wanted:
            raise ValueError(
                "`class_features` must have the shapes of the other classes, "
                f"{wanted} for each class. Received: {shapes}"
            )
        for weight, column in zip(self._weights, columns, strict=True):
            values = np.array(weight.numpy())
            values[ids] = column.values
            weight.assign(values)
