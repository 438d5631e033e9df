"""What makes class vectors: an encoder, and a table of class features."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import as_array
from tfxclass.checks import check_class_order
from tfxclass.checks import check_optional_int
from tfxclass.checks import check_value
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.layers.head_weights import constant
from tfxclass.layers.head_weights import fixed_spec

#: Names of the weights of the table begin with it.
PREFIX = "class_features_"


@dataclasses.dataclass(frozen=True)
class ClassTower:
    """The tower of a `TwoTowerSoftmax` that makes class vectors.

    Args:
        encoder: `keras.Model` from features of classes, `[n, ...]`, to vectors
            `[n, dim]`, as wide as the features of the query. It may share
            layers with the encoder of the query, or be that encoder.
        features: array or tensor of numbers `[num_classes, ...]`, or a tuple or
            dict of them: the input of `encoder`, one row for each class. It is
            saved with the model.
        use_residual: bool, whether each class also has a trainable vector of
            its own, zero at first, which is added to the encoded one: frequent
            classes are learned exactly, and rare ones follow their features.
        refresh_interval: int or None, number of steps in which all class
            vectors are encoded again, a few in each step, for samplers that
            search them. None encodes only the sampled classes.

    Raises:
        ValueError: if an argument is out of range.

    Example:

    ```python
    encoder = keras.Sequential([keras.layers.Dense(64)])
    tower = tfxclass.layers.ClassTower(encoder, np.zeros([50_000, 20], "f"))
    head = tfxclass.layers.TwoTowerSoftmax(50_000, tower)
    ```
    """

    encoder: keras.Model
    features: Any
    use_residual: bool = False
    refresh_interval: int | None = 1000

    def __post_init__(self) -> None:
        wanted = "a keras.Model from class features to vectors [n, dim]"
        is_model = isinstance(self.encoder, keras.Model)
        check_value("encoder", self.encoder, is_model, wanted)
        wanted = "an array with a row for each class, or a tuple or dict"
        check_value("features", None, self.features is not None, wanted)
        for column in keras.tree.flatten(self.features):
            check_class_order("features", column)
        check_optional_int("refresh_interval", self.refresh_interval)


def columns_of(given: Any, num_rows: int, name: str) -> Any:
    """`given` as a structure of NumPy arrays `[num_rows, ...]`.

    What `to_config` returned becomes zeros. Errors name the argument `name`.
    """
    # A file has no tuples.
    given = list(given) if isinstance(given, tuple) else given
    return keras.tree.map_structure(
        lambda x: _column_of(x, num_rows, name), given
    )


def _column_of(given, num_rows, name):
    if isinstance(given, str):
        dtype, _, sizes = given.rstrip("]").partition("[")
        shape = num_rows, *map(int, filter(None, sizes.split(",")))
        # An array that takes the memory of one number.
        return np.broadcast_to(np.zeros([], dtype), shape)
    if isinstance(given, tf.RaggedTensor):
        raise ValueError(
            f"`{name}` must not be ragged. Received: a RaggedTensor. "
            "Fix: pad the rows, e.g. with ragged.to_tensor(-1)"
        )
    values = as_array(name, given)
    if values.dtype.kind not in "iufb":
        raise ValueError(
            f"`{name}` must be numbers. Received: "
            f"dtype={values.dtype}. Fix: turn text into ids first, e.g. with "
            "keras.layers.TextVectorization"
        )
    if values.ndim == 0 or len(values) != num_rows:
        raise ValueError(
            f"`{name}` must be arrays with one row for each class. "
            f"Received: shape {values.shape} for {num_rows} classes"
        )
    return values


def to_config(columns: Any) -> Any:
    """Types and shapes of a structure of columns, as a structure of str."""
    return keras.tree.map_structure(
        lambda column: f"{column.dtype}{list(column.shape[1:])}", columns
    )


def weight_specs(columns: Any) -> list[WeightSpec]:
    """The `WeightSpec` of each column of a structure."""
    return [
        fixed_spec(
            f"{PREFIX}{i}", column.shape, constant(column), str(column.dtype)
        )
        for i, column in enumerate(keras.tree.flatten(columns))
    ]


def set_rows(
    weights: Sequence[keras.Variable], ids: np.ndarray, features: Any
) -> None:
    """Sets the features `[n, ...]` of classes `ids` `[n]` in a table."""
    columns = keras.tree.flatten(
        columns_of(features, len(ids), "class_features")
    )
    wanted = [tuple(weight.shape[1:]) for weight in weights]
    shapes = [column.shape[1:] for column in columns]
    like = f"of the shapes of the other classes, {wanted} for each class"
    check_value("class_features", shapes, shapes == wanted, like)
    for weight, column in zip(weights, columns, strict=True):
        values = np.array(weight.numpy())
        values[ids] = column
        weight.assign(values)
