"""Checks of arguments that several classes share."""

import contextlib
import difflib
import inspect
import numbers
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np


def check_positive_int(name: str, value: Any) -> int:
    """`value` as an int, also of 3.0; raises ValueError unless it is >= 1."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not float(value).is_integer() or value < 1:
        raise ValueError(
            f"`{name}` must be a positive integer. Received: {value!r}"
        )
    return int(value)


def as_list(
    name: str, values: Any, items: str = "integers", single: Any = ()
) -> list[Any]:
    """`values` as a list; raises ValueError if they are no collection.

    Args:
        name: str, the argument that an error names.
        values: what was given for it.
        items: str, what the list must hold.
        single: type, or tuple of types. One value of it becomes a list of one.
    """
    if isinstance(values, single) and not isinstance(values, bool):
        return [values]
    error = f"`{name}` must be a list of {items}. Received: {values!r}"
    if isinstance(values, (str, bytes)):
        raise ValueError(error)
    try:
        return list(values)
    except TypeError as e:
        raise ValueError(error) from e


def as_positive_ints(name: str, values: Any) -> list[int]:
    """`values` as a list of ints >= 1, also of one number; or ValueError."""
    values = as_list(name, values, single=numbers.Real)
    return [check_positive_int(name, value) for value in values]


def as_ids(name: str, values: Any) -> np.ndarray:
    """Integer ids as an array; raises ValueError for others, such as names."""
    try:
        ids = np.asarray(values)
        received = f"{ids.dtype.name} values"
    except ValueError:
        ids, received = None, "rows of different lengths"
    if ids is None or (ids.size and ids.dtype.kind not in "iu"):
        raise ValueError(
            f"`{name}` must be integer class ids, all rows of one length and "
            f"padded with -1. Received: {received}"
        )
    return ids


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Raises ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(
            f"`{name}` must be one of {choices}. Received: {value!r}"
        )


@contextlib.contextmanager
def suggesting_arguments(kind: type, given: Iterable[str]) -> Iterator[None]:
    """Adds the argument that was meant to a ValueError about a misspelt one.

    Args:
        kind: class whose constructor is called within the block.
        given: names of the arguments that Keras' constructor gets.
    """
    try:
        yield
    except ValueError as e:
        known = {
            name
            for base in kind.__mro__
            for name in inspect.signature(base.__init__).parameters
        }
        meant = [
            f"`{name}`"
            for wrong in sorted(set(given) - known)
            for name in difflib.get_close_matches(wrong, known, n=1)
        ]
        if not meant:
            raise
        raise ValueError(f"{e}. Did you mean {' and '.join(meant)}?") from None


def check_k(k: int, num_classes: int, name: str = "k") -> int:
    """`k` as an int; raises ValueError unless so many can be returned."""
    k = check_positive_int(name, k)
    if k > num_classes:
        raise ValueError(
            f"`{name}` must be at most the number of classes. Received: "
            f"{name}={k} with num_classes={num_classes}."
        )
    return k


def check_pair(data: Any) -> int:
    """The rows of `(x, y)`, structures of arrays; ValueError for others."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise ValueError(
            "`data` must be (x, y) or a tf.data.Dataset of such batches. "
            f"Received: {type(data).__name__}"
        )
    shapes = [np.shape(each) for each in keras.tree.flatten(tuple(data))]
    sizes = {shape[0] for shape in shapes if len(shape)}
    if len(sizes) != 1 or sizes == {0}:
        raise ValueError(
            "`data` must have the same number of rows in x and y, at least "
            f"one. Received: {sorted(sizes)}"
        )
    return sizes.pop()


def check_batch(batch: Any) -> tuple[Any, Any]:
    """A batch of a dataset; ValueError unless it is `(x, y)`."""
    if not isinstance(batch, tuple) or len(batch) != 2:
        raise ValueError(
            "`data` must give batches (x, y). Received: "
            f"{type(batch).__name__} of {len(batch)}"
        )
    return batch
