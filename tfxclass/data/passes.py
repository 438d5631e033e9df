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

# Passes that were given up are kept too: an open file and a block each.
_MOST_WAITING = 4


class Passes:
    """The i-th element of what `make()` yields, i rising in each pass.

    Passes need no names, since they all yield the same: whoever asks for
    element i gets the next one of a generator that stands there. If there is
    none, because many passes were given up in between, a new one is wound on
    to i.
    """

    def __init__(
        self, make: Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]
    ) -> None:
        self._make = make
        self._waiting: list[Any] = []
        self._lock = threading.Lock()

    def element(self, i: int) -> tuple[np.ndarray, np.ndarray] | None:
        """The i-th element, or None past the last one."""
        generator = self._take(i)
        element = next(generator, None)
        if element is not None:
            with self._lock:
                self._waiting.append((i + 1, generator))
                del self._waiting[:-_MOST_WAITING]
        return element

    def _take(self, i):
        with self._lock:
            for at, (position, generator) in enumerate(self._waiting):
                if position == i:
                    del self._waiting[at]
                    return generator
        generator = self._make()
        next(itertools.islice(generator, i, i), None)
        return generator


def dataset_of(
    make: Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]],
) -> tf.data.Dataset:
    """Dataset of the pairs that `make()` yields, the same ones each time.

    Args:
        make: function that returns a generator of `(int64 array [n], object
            array [n] of bytes)`. A ValueError in it becomes an
            `InvalidArgumentError`.
    """
    passes = Passes(make)

    def element(i):
        found = passes.element(int(i))
        if found is None:
            return False, np.zeros(0, np.int64), np.zeros(0, object)
        return True, *found

    def read(i):
        is_there, numbers, lines = tf.numpy_function(
            element, [i], (tf.bool, tf.int64, tf.string)
        )
        return (
            tf.ensure_shape(is_there, []),
            tf.ensure_shape(numbers, [None]),
            tf.ensure_shape(lines, [None]),
        )

    return (
        tf.data.Dataset.counter()
        .map(read)
        .take_while(lambda is_there, numbers, lines: is_there)
        .map(lambda is_there, numbers, lines: (numbers, lines))
    )
