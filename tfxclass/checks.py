"""Checks of arguments that several classes share.

`name` is the argument that an error names, everywhere.
"""

import contextlib
import difflib
import inspect
import math
import numbers
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
from typing import Any

import keras
import numpy as np


def check_positive_int(name: str, value: Any) -> int:
    """`value` as an int, also of 3.0; raises ValueError unless it is >= 1."""
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    is_valid = is_number and float(value).is_integer() and value >= 1
    check_value(name, value, is_valid, "a positive integer")
    return int(value)


def check_optional_int(name: str, value: Any) -> int | None:
    """A positive integer as an int, or None; ValueError for others."""
    return value if value is None else check_positive_int(name, value)


def check_value(name: str, value: Any, is_valid: bool, wanted: str) -> None:
    """Raises ValueError, which says what is `wanted`, unless `is_valid`."""
    if not is_valid:
        raise ValueError(f"`{name}` must be {wanted}. Received: {value!r}")


def check_number(
    name: str, value: Any, is_valid: Callable[[Any], bool], wanted: str
) -> None:
    """Raises ValueError unless the value is a number for which `is_valid`."""
    is_number = isinstance(value, numbers.Real) and bool(is_valid(value))
    check_value(name, value, is_number, wanted)


def check_positive(name: str, value: Any) -> None:
    """Raises ValueError unless the value is a finite number above 0."""
    check_number(name, value, lambda x: 0 < x < math.inf, "finite and > 0")


def check_nonnegative(name: str, value: Any) -> None:
    """Raises ValueError unless the value is a finite number of 0 or more."""
    check_number(name, value, lambda x: 0 <= x < math.inf, "finite and >= 0")


def check_fraction(name: str, value: Any) -> float:
    """`value`; ValueError unless it is a number in (0, 1]."""
    check_number(name, value, lambda x: 0 < x <= 1, "in (0, 1]")
    return value


def as_list(
    name: str, values: Any, items: str = "integers", single: Any = ()
) -> list[Any]:
    """`values`, or one value of a type in `single`, as a list; or ValueError.

    `items` says what the list must hold.
    """
    if isinstance(values, single) and not isinstance(values, bool):
        return [values]
    error = f"`{name}` must be a list of {items}. Received: {values!r:.200}"
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


def as_array(name: str, values: Any) -> np.ndarray:
    """An array, list, tensor or Series in its order, or ValueError.

    The labels of a pandas Series are left out. Objects that are all integers,
    floats or bools become an array of them, as nullable columns do.
    """
    if isinstance(values, (Mapping, Set, Iterator)):
        raise ValueError(
            f"`{name}` must be an array, a list or a Series. Received: a "
            f"{type(values).__name__}"
        )
    try:
        array = np.asarray(values)
        if array.dtype == object:
            numbers_only = np.asarray(array.tolist())
            is_number = numbers_only.dtype.kind in "iufb"
            array = numbers_only if is_number else array
    except ValueError as e:
        raise ValueError(
            f"`{name}` must have rows of one length, padded with -1 where "
            "they are ids. Received: rows of different lengths"
        ) from e
    return array


def as_ids(name: str, values: Any) -> np.ndarray:
    """Integer ids as an array; raises ValueError for others, such as names.

    Floats are ids where all are whole numbers that a float64 holds exactly.
    """
    ids = as_array(name, values)
    received = f"{ids.dtype.name} values"
    if ids.dtype.kind == "f":
        # The integer after the last exact one is rounded to that one.
        most = 2.0 ** (np.finfo(ids.dtype).nmant + 1)
        bad = ids[~((ids == np.floor(ids)) & (abs(ids) < most))]
        if not bad.size:
            return ids.astype(np.int64)
        received += (
            f", among them {bad[0]}. Fix: probabilities and one-hot rows "
            "become ids by argmax, and missing ids are -1"
        )
    if ids.size and ids.dtype.kind not in "iu":
        raise ValueError(
            f"`{name}` must be integer class ids, all rows of one length and "
            f"padded with -1. Received: {received}"
        )
    return ids


def as_distinct_classes(ids: Any, num_classes: int) -> np.ndarray:
    """The argument `ids` as int64 `[n]`; ValueError unless they are classes."""
    ids = as_ids("ids", ids)
    is_class = np.all((ids >= 0) & (ids < num_classes))
    if ids.ndim != 1 or not is_class or len(np.unique(ids)) != len(ids):
        raise ValueError(
            "`ids` must be distinct classes in [0, num_classes), of shape [n]. "
            f"Received: {ids.ravel()[:5].tolist()}... of shape {ids.shape} "
            f"with num_classes={num_classes}"
        )
    return ids.astype(np.int64)


def as_finite_floats(name: str, values: Any) -> np.ndarray:
    """Numbers as float32, also of a tensor of PyTorch; or ValueError."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().float().numpy()
    values = as_array(name, values)
    if values.dtype.kind not in "fiub":
        raise ValueError(
            f"`{name}` must be an array of numbers. Received: dtype "
            f"{values.dtype}"
        )
    values = values.astype(np.float32)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise ValueError(
            f"`{name}` must be finite. Received: NaN or infinity in {len(bad)} "
            f"places, the first at {bad[0].tolist()}"
        )
    return values


def as_numbers(name: str, values: Any) -> np.ndarray:
    """Values in their order as float64, NaN for missing; or ValueError."""
    array = as_array(name, values)
    try:
        # Text that looks like numbers is text.
        if array.dtype.kind in "USMm":
            raise ValueError
        return array.astype(np.float64)
    except (TypeError, ValueError) as e:
        raise ValueError(
            f"`{name}` must be numbers. Received: {array.dtype.name} values, "
            f"among them {array.ravel()[:3].tolist()}"
        ) from e


def as_numbers_of_classes(
    name: str,
    values: Any,
    is_valid: Callable[[np.ndarray], np.ndarray] = lambda x: x >= 0,
    wanted: str = "finite and >= 0",
) -> np.ndarray:
    """A number for each class, float64 `[num_classes]`; or ValueError.

    All are finite and `is_valid`, as `wanted` says. A pandas Series that is not
    in the order of class ids, such as `value_counts()`, is refused.
    """
    if isinstance(values, dict):
        values = keras.saving.deserialize_keras_object(values)
    check_class_order(name, values)
    found = as_numbers(name, values)
    if found.ndim != 1:
        raise ValueError(
            f"`{name}` must have shape [num_classes]. Received: {found.shape}"
        )
    bad = np.flatnonzero(~(np.isfinite(found) & is_valid(found)))
    if len(bad):
        raise ValueError(
            f"`{name}` must be {wanted}. Received: {found[bad[0]]} for class "
            f"{bad[0]}"
        )
    return found


def check_one_per_class(name: str, values: Any, num_classes: int) -> None:
    """Raises ValueError unless there is a number for each class."""
    if len(values) != num_classes:
        raise ValueError(
            f"`{name}` must have a number for each class. Received: "
            f"{len(values)} numbers with num_classes={num_classes}"
        )


def check_class_order(name: str, values: Any) -> None:
    """Raises ValueError for a pandas object not in the order of class ids."""
    index = getattr(values, "index", None)
    # A list has a method of this name.
    if index is None or callable(index):
        return
    if not np.array_equal(np.asarray(index), np.arange(len(index))):
        raise ValueError(
            f"`{name}` must be in the order of the class ids, and the index "
            "of the Series is not 0, 1, 2 and so on. Fix: if the index has "
            f"class ids, {name}.reindex(range(num_classes), fill_value=0); if "
            f"the order is right, {name}.to_numpy(). Received: an index that "
            f"begins with {list(index[:5])}"
        )


def check_distinct_names(
    name: str, names: Sequence[str], removed: Iterable[int] = ()
) -> None:
    """Raises ValueError for the first name that an earlier class has.

    Other classes may have the names of the class ids in `removed`.
    """
    if len(set(names)) == len(names):
        return
    first: dict[str, int] = {}
    gone = set(removed)
    for number, each in enumerate(names):
        if number not in gone and first.setdefault(each, number) != number:
            raise ValueError(
                f"`{name}` must be distinct. Received: {each!r} for the "
                f"classes {first[each]} and {number}. Fix: make them differ, "
                "for example by their ids"
            )


def as_names(name: str, values: Any) -> list[Any]:
    """`values` as a list; raises ValueError where they have no order."""
    if isinstance(values, (Mapping, Set)):
        raise ValueError(
            f"`{name}` must be a list of names, in the order of the class ids. "
            f"Received: a {type(values).__name__}"
        )
    return as_list(name, values, "names")


def check_choice(name: str, value: Any, choices: Sequence[Any]) -> None:
    """Raises ValueError unless `value` is one of `choices`."""
    check_value(name, value, value in choices, f"one of {choices}")


def check_options(
    head: str,
    argument: str,
    names: Sequence[str],
    options: Mapping[str, Any] | None,
    others: Iterable[str],
) -> Mapping[str, Any]:
    """`options`, a dict or None, as a dict; or ValueError.

    `argument` of the class `head` may have the options `names`, which must not
    be among `others`, the names of the head's other arguments.
    """
    options = {} if options is None else options
    if not isinstance(options, Mapping):
        raise ValueError(
            f"`{argument}` of {head} must be a dict from the name of an option "
            f"to its value, or None. Received: {options!r}"
        )
    outside = sorted(set(names) & set(others))
    if outside:
        raise ValueError(
            f"`{outside[0]}` of {head} belongs in `{argument}`. Fix: {head}("
            f"num_classes, {argument}={{{outside[0]!r}: ...}}). Received: "
            f"{', '.join(outside)} as arguments of the head"
        )
    unknown = sorted(set(options) - set(names))
    if unknown:
        raise ValueError(
            f"`{argument}` of {head} may have {', '.join(names)}. Received: "
            f"{', '.join(unknown)}"
        )
    return options


@contextlib.contextmanager
def suggesting_arguments(kind: type, given: Iterable[str]) -> Iterator[None]:
    """Adds the argument that was meant to a ValueError about a misspelt one.

    The block calls the constructor of `kind`, which hands Keras those `given`.
    """
    try:
        yield
    except ValueError as e:
        known: set[str] = set()
        for base in kind.__mro__:
            make = vars(base).get("__init__", object)
            known.update(inspect.signature(make).parameters)
        meant = []
        for wrong in sorted(set(given) - known):
            # Keras' name before version 2.3.
            name = "learning_rate" if wrong == "lr" else wrong
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
            meant += [f"`{name}`" for name in close]
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


def check_batch(batch: Any) -> tuple[Any, Any]:
    """A batch of a dataset; ValueError unless it is `(x, y)`."""
    if not isinstance(batch, tuple) or len(batch) != 2:
        raise ValueError(
            "`data` must give batches (x, y). Received: "
            f"{type(batch).__name__} of {len(batch)}"
        )
    return batch
