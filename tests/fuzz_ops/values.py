"""Arguments of fuzzed calls: drawn, then changed."""

from typing import Any
from typing import NamedTuple

import numpy as np

INTEGERS = [
    *(0, 1, -1, 2, 3, 7, 64, 255, 256, 1000, 10**5, 10**6, 10**8),
    *(2**31 - 1, 2**31, 2**32 + 1, 2**40, 2**62, 2**63 - 1, -(2**63)),
]
FLOATS = [
    *(np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e30, -1e30),
    *(3.4e38, 1e-38, 1e-45, 1e-20, 0.5),
]
HUGE_SHAPES = [(2**58, 0), (0, 2**58), (2**40, 0), (2**31, 0), (2**40, 0, 2)]
DTYPES = ["float32", "float64", "int64", "int32", "bool", "float16"]


class Variable(NamedTuple):
    """A variable of that value; not initialised if it is None."""

    value: Any


class Typed(NamedTuple):
    """A tensor of that value and its type: TensorFlow casts arrays."""

    value: Any


class Index(NamedTuple):
    """An index of a kind ("lsh"), built from a kernel or not, with a second one
    under way or not."""

    kind: str
    kernel: Any = None
    options: dict = {}
    pending: bool = False


class Draw:
    """Valid arguments; with `wild` also such that may be refused."""

    def __init__(self, random):
        self.random = random
        self.wild = random.random() < 0.15

    def size(self, least=1, most=9):
        if self.wild and self.random.random() < 0.2:
            return int(self.random.choice([0, 0, 33, 130]))
        return int(self.random.integers(least, most + 1))

    def chance(self, probability=0.5):
        return bool(self.random.random() < probability)

    def choice(self, options):
        return options[int(self.random.integers(len(options)))]

    def floats(self, *shape):
        return self.random.normal(size=shape).astype(np.float32)

    def flags(self, *shape):
        return self.random.random(shape) < 0.8

    def ids(self, shape, bound, padded=False):
        """In [0, bound), or -1 where there is padding or no id."""
        if bound < 1:
            return np.full(shape, -1, np.int64)
        ids = self.random.integers(0, bound, shape, np.int64)
        return np.where(self.flags(*np.shape(ids)) | (not padded), ids, -1)

    def integer(self, least, most):
        return np.int64(self.random.integers(least, most + 1))

    def seed(self, *shape):
        return np.asarray(self.random.integers(0, 2**31, shape), np.int64)

    def splits(self, rows, count):
        """int64 `[rows + 1]`, rising from 0 to count."""
        inner = np.sort(self.random.integers(0, count + 1, max(rows - 1, 0)))
        return np.array([0, *inner, count][: rows + 1], np.int64)


def changed(value, random):
    """`value`, an argument of any kind, with one thing changed."""
    if isinstance(value, Variable):
        return _changed_variable(value, random)
    if isinstance(value, Typed):
        return Typed(_changed_array(np.asarray(value.value), random))
    if isinstance(value, Index):
        return _changed_index(value, random)
    if isinstance(value, list):
        return _changed_list(value, random)
    if isinstance(value, (np.ndarray, np.generic)):
        return _changed_array(np.asarray(value), random)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return int(random.choice(np.array(INTEGERS, object)))
    if isinstance(value, float):
        return float(random.choice(FLOATS))
    return value


def _changed_variable(variable, random):
    if variable.value is None or random.random() < 0.05:
        return Variable(None)
    return Variable(_changed_array(np.asarray(variable.value), random))


def _changed_index(index, random):
    kind = random.integers(4)
    if kind == 0:
        return Index(index.kind)
    if kind == 1:
        kinds = ["forest", "lsh", "cluster", "pca_hash"]
        return Index(str(random.choice(kinds)))
    return index._replace(pending=not index.pending)


def _changed_list(values, random):
    if not values or random.random() < 0.2:
        return [*values, Variable(np.zeros((2, 2), np.float32))]
    i = int(random.integers(len(values)))
    if random.random() < 0.3:
        return values[:i] + values[i + 1 :]
    return [*values[:i], changed(values[i], random), *values[i + 1 :]]


def _changed_array(array, random):
    if array.dtype == object:
        return _changed_bytes(array, random)
    kind = random.random()
    if kind < 0.04:
        return array.astype(str(random.choice(DTYPES)))
    if kind < 0.08:
        shape = HUGE_SHAPES[int(random.integers(len(HUGE_SHAPES)))]
        return np.zeros(shape, array.dtype)
    if kind < 0.45 or array.size == 0:
        return _reshaped(array, random)
    array = array.copy()
    extremes = INTEGERS if array.dtype.kind == "i" else FLOATS
    if array.dtype.kind not in "if":
        return ~array if array.dtype == bool else array
    with np.errstate(over="ignore"):
        limits = np.iinfo if array.dtype.kind == "i" else None
        picked = extremes[int(random.integers(len(extremes)))]
        if limits:
            info = limits(array.dtype)
            picked = min(max(picked, int(info.min)), int(info.max))
        if random.random() < 0.3:
            array[...] = picked
        else:
            array.flat[int(random.integers(array.size))] = picked
    return array


def _reshaped(array, random):
    kind = int(random.integers(6))
    if kind == 0:
        return array[None]
    if kind == 1:
        return array.reshape(-1)
    if array.ndim == 0:
        return np.zeros((0,), array.dtype)
    axis = int(random.integers(array.ndim))
    if kind == 2:
        return np.concatenate([array, array], axis)
    keep = 0 if kind == 3 else max(array.shape[axis] - 1, 0)
    if kind == 5:
        return array[(0,) * array.ndim] if array.size else array
    return array[(slice(None),) * axis + (slice(keep),)]


def _changed_bytes(array, random):
    """One item of an array of bytes: cut, a bit flipped, a number put in."""
    if array.size == 0 or random.random() < 0.1:
        return _reshaped(array, random)
    array = array.copy()
    at = int(random.integers(array.size))
    data = bytearray(array.flat[at])
    kind = int(random.integers(4))
    place = int(random.integers(len(data) + 1))
    if kind == 0:
        data = data[:place]
    elif kind == 1:
        data[place:place] = bytes(random.integers(0, 256, 3, np.uint8))
    elif kind == 2 and data:
        data[place % len(data)] ^= 1 << int(random.integers(8))
    else:
        number = INTEGERS[int(random.integers(len(INTEGERS)))]
        place = place // 8 * 8
        data[place : place + 8] = np.int64(number).tobytes()
    array.flat[at] = bytes(data)
    return array
