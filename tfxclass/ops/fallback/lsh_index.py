"""The state of LSH tables: built, swapped, saved and restored, in NumPy.

Tables are a dict of arrays. They are built at the step at which the compiled op
begins to build its tables in the background, while the step waits. They are
used from the step on at which the compiled op uses its new tables
(custom_ops/core/refreshing.h).

The handle of the tables is the handle of a variable with a number, by which
they are found in this process. Each op changes the variable, so that they run
in their order.
"""

import io
import itertools
import time
import weakref
import zipfile
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxclass.ops.fallback.registry import FALLBACKS
from tfxclass.ops.fallback.registry import InvalidInput
from tfxclass.ops.fallback.registry import check_finite
from tfxclass.ops.fallback.registry import on_host

Tables = dict[str, np.ndarray]

# Behind the bytes of tables: NumPy takes zeros off the end of bytes.
_END = b"."
# The last int64, as for the ops: such a step never comes.
_LAST_STEP = 2**63 - 1

#: The tables of this process by number, until their handle is deleted.
_ALL = {}
_NUMBERS = itertools.count()


class Times(NamedTuple):
    """The outputs of the op."""

    count: tf.Tensor
    seconds: tf.Tensor


class LSHIndex:
    """LSH tables that follow the class rows.

    Attributes:
        ready: `Tables` that queries use; None before the first are built.
    """

    def __init__(self) -> None:
        self.ready = self._pending = None
        self._swap_at = self._next_start = self._begun = 0
        self._num_built, self._seconds = 0, 0.0

    def build(self, rows: np.ndarray, build: Callable[..., Tables]) -> None:
        """Builds tables of these rows now.

        Args:
            build: function of rows and the tables before, or None.
        """
        self._pending = None
        self._build_now(rows, build)

    def advance(
        self,
        rows: np.ndarray,
        steps: tuple[int, int, int, bool],
        build: Callable[..., Tables],
    ) -> None:
        """Swaps and builds what is due.

        Args:
            steps: step, interval, lag, and whether the tables have drifted.
            build: as for `build`.
        """
        step, interval, lag, drifted = steps
        if interval < 1 or lag < 1 or lag > interval:
            raise InvalidInput(
                "`lag` must be at most `interval`, both at least 1. Received: "
                f"{lag} and {interval}"
            )
        is_first = self.ready is None and self._pending is None
        is_free = self._pending is None or step >= self._swap_at
        begins = is_first or step >= self._next_start or (drifted and is_free)
        if self._pending is not None and step >= self._swap_at:
            self.ready, self._pending = self._pending, None
        if not begins:
            return
        self._next_start = min(step + interval, _LAST_STEP)
        if is_first:
            return self._build_now(rows, build)
        self._begun, self._swap_at = step, min(step + lag, _LAST_STEP)
        if np.all(np.isfinite(np.asarray(rows, np.float32))):
            self._pending = self._timed(build, rows, self.ready)

    def times(self) -> tuple[np.int64, np.float64]:
        """How many were built, and the seconds that the last one took."""
        return np.int64(self._num_built), np.float64(self._seconds)

    def save(self) -> tuple[bytes, bytes, np.ndarray, np.ndarray]:
        """The state; bytes are empty where there are no such tables."""
        steps = [self._swap_at, self._next_start, self._begun]
        found = [_bytes(self.ready), _bytes(self._pending)]
        return *found, np.array(steps, np.int64), np.zeros(0, np.int64)

    def restore(
        self,
        ready: bytes,
        pending: bytes,
        steps: np.ndarray,
        touched: np.ndarray,
    ) -> None:
        """From `save`; tables of the compiled ops are built anew."""
        if np.size(steps) != 3 or np.any(touched < 0):
            raise InvalidInput(
                "`ready` and `pending` must be scalars, `steps` of length 3"
            )
        self.ready, self._pending = map(_tables, (ready, pending))
        self._swap_at, self._next_start, self._begun = map(int, steps)

    def _build_now(self, rows, build):
        try:
            check_finite("kernel", np.asarray(rows, np.float32))
        except InvalidInput as e:
            raise InvalidInput(
                "`kernel` must be finite to build a set of LSH tables. "
                "Received: a row with NaN or infinity. A smaller learning rate "
                "or gradient clipping helps where training diverged"
            ) from e
        self.ready = self._timed(build, rows, None)

    def _timed(self, build, rows, latest):
        begin = time.monotonic()
        tables = build(rows, latest)
        self._num_built += 1
        self._seconds = time.monotonic() - begin
        return tables


def _bytes(tables):
    if tables is None:
        return b""
    to = io.BytesIO()
    np.savez(to, **tables)
    return to.getvalue() + _END


def _tables(data):
    data = np.asarray(data).item().removesuffix(_END)
    if not data or not zipfile.is_zipfile(io.BytesIO(data)):
        return None
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return dict(file)
    except (ValueError, OSError, zipfile.BadZipFile, KeyError) as e:
        raise InvalidInput(
            f"The bytes are no set of LSH tables. Received: {len(data)} bytes"
        ) from e


def call(
    handle: tf.Tensor,
    function: Callable[..., Any],
    inputs: Sequence[Any],
    types: Sequence[tf.DType] = (),
    shapes: Sequence[Any] = (),
) -> list[tf.Tensor]:
    """Runs `function(index, *arrays)` in this process, in order.

    Args:
        handle: of an `LSHIndex`.
        function: returns a tuple of arrays, or None where there are no types.
    """
    number = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64)

    def run(number, *arrays):
        found = function(_ALL[int(number)], *arrays)
        return (np.int64(0),) if found is None else found

    types, shapes = (types, shapes) if types else ([tf.int64], [[]])
    found = on_host(run, types, [number, *inputs], shapes)
    with tf.control_dependencies(found):
        tf.raw_ops.AssignAddVariableOp(
            resource=handle, value=tf.zeros([], tf.int64)
        )
    return found


def _handle(container: str = "", shared_name: str = "") -> tf.Tensor:
    index, number = LSHIndex(), next(_NUMBERS)
    found = tf.raw_ops.VarHandleOp(
        dtype=tf.int64, shape=[], container=container, shared_name=shared_name
    )
    tf.raw_ops.AssignVariableOp(
        resource=found, value=tf.constant(number, tf.int64)
    )
    _ALL[number] = index
    weakref.finalize(found, _ALL.pop, number)
    return found


def _mark(index: tf.Tensor, ids: tf.Tensor) -> Any:
    """Checks the ids of rows that change; a build hashes all rows anyway."""

    def check(_, ids):
        if np.any(ids < 0):
            raise InvalidInput(f"`ids` must be >= 0. Received: {ids}")

    ids = tf.convert_to_tensor(ids, tf.int64)
    return tf.group(*call(index, check, [ids]))


def _times(index: tf.Tensor) -> Times:
    types = (tf.int64, tf.float64)
    return Times(*call(index, LSHIndex.times, [], types, ([], [])))


def _save(index: tf.Tensor) -> list[tf.Tensor]:
    types = (tf.string, tf.string, tf.int64, tf.int64)
    return call(index, LSHIndex.save, [], types, ([], [], [3], [None]))


def _restore(
    index: tf.Tensor, ready: Any, pending: Any, steps: Any, touched: Any
) -> Any:
    inputs = [tf.convert_to_tensor(x) for x in (ready, pending)]
    inputs += [tf.convert_to_tensor(x, tf.int64) for x in (steps, touched)]
    return tf.group(*call(index, LSHIndex.restore, inputs))


for _function in (_handle, _mark, _times, _save, _restore):
    FALLBACKS[f"tfxclass_lsh{_function.__name__}"] = _function
