"""A generator as a `tf.data` pipeline that leaves the process as it was.

`Dataset.from_generator` does not: to contain a leak (tensorflow #65675),
TensorFlow 2.21 then sets M_TRIM_THRESHOLD of the C library, which also ends the
adaptation of its mmap threshold. From there on each large tensor of a training
step is mapped, faulted in and unmapped again: half of the CPU time of a step
(measured).
"""

import itertools
import threading
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

Make = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]

# Passes that were given up are kept too: an open file and a block each.
_MOST_WAITING = 4


class Passes:
    """The i-th element of what `make()` yields, i rising in each pass.

    All passes yield the same, so element i is the next one of any generator
    that stands there. If there is none, because many passes were given up in
    between, a new one is wound on to i.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._waiting: list[Any] = []
        self._lock = threading.Lock()

    def element(self, i: int) -> tuple[np.ndarray, np.ndarray] | None:
        """The i-th element, or None past the last one."""
        with self._lock:
            positions = [position for position, _ in self._waiting]
            if i in positions:
                _, generator = self._waiting.pop(positions.index(i))
            else:
                generator = itertools.islice(self._make(), i, None)
        element = next(generator, None)
        if element is not None:
            with self._lock:
                self._waiting.append((i + 1, generator))
                del self._waiting[:-_MOST_WAITING]
        return element


def dataset_of(make: Make) -> tf.data.Dataset:
    """Dataset of the pairs that `make()` yields, the same ones each time.

    They are `(int64 array [n], object array [n] of bytes)`. A ValueError of the
    generator becomes an `InvalidArgumentError`.
    """
    passes = Passes(make)

    def element(i):
        found = passes.element(int(i))
        if found is None:
            return False, np.zeros(0, np.int64), np.zeros(0, object)
        return True, *found

    def read(i):
        found = tf.numpy_function(element, [i], (tf.bool, tf.int64, tf.string))
        shapes = ([], [None], [None])
        return tuple(tf.ensure_shape(*pair) for pair in zip(found, shapes))

    dataset = tf.data.Dataset.counter().map(read)
    dataset = dataset.take_while(lambda is_there, numbers, lines: is_there)
    return dataset.map(lambda is_there, numbers, lines: (numbers, lines))
