"""Twins of what all indexes have: handle, mark, times, save and restore.

An index is a dict of arrays. It is built at the step at which the ops begin to
build theirs in the background, and takes the old one's place at the step at
which theirs does (custom_ops/core/refreshing.h); a step waits for it.

The handle is that of a variable with a number, by which the index is found in
this process; each op changes the variable, so that they run in their order.
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

from tfxclass import keras_internals
from tfxclass.ops.stock.twin import TWINS
from tfxclass.ops.stock.twin import InvalidInput
from tfxclass.ops.stock.twin import check_finite
from tfxclass.ops.stock.twin import on_host

Index = dict[str, np.ndarray]

# Behind the bytes of an index: NumPy takes zeros off the end of bytes.
_END = b"."

# As the ops' int64: a step so late never comes.
_LAST_STEP = 2**63 - 1

_ALL = weakref.WeakValueDictionary()
_NUMBERS = itertools.count()


class Times(NamedTuple):
    """The outputs of the op."""

    count: tf.Tensor
    seconds: tf.Tensor


class Refreshing:
    """An index that follows the class rows.

    Args:
        name: str, what messages call it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = self.pending = None
        self.swap_at = self.next_start = self.begun = 0
        self.touched, self.taken = set(), set()
        self.num_built, self.seconds = 0, 0.0

    def mark(self, ids: np.ndarray) -> None:
        """Notes rows that change."""
        if np.any(ids < 0):
            raise InvalidInput(f"`ids` must be >= 0. Received: {ids}")
        self.touched.update(ids.ravel().tolist())

    def build(self, rows: np.ndarray, build: Callable[..., Index]) -> None:
        """Builds from all of these rows now."""
        self._drop()
        self._build_now(rows, build)

    def advance(
        self,
        rows: np.ndarray,
        steps: tuple[int, int, int, bool],
        build: Callable[..., Index],
    ) -> None:
        """Swaps and builds what is due.

        Args:
            steps: step, interval, lag, and whether the index has drifted.
            build: of rows, the index before or None, and touched rows.
        """
        step, interval, lag, drifted = steps
        if interval < 1 or lag < 1 or lag > interval:
            raise InvalidInput(
                "`lag` must be at most `interval`, both at least 1. Received: "
                f"{lag} and {interval}"
            )
        is_first = self.ready is None and self.pending is None
        is_free = self.pending is None or step >= self.swap_at
        begins = is_first or step >= self.next_start or (drifted and is_free)
        self._swap(step)
        if not begins:
            return
        self.next_start = min(step + interval, _LAST_STEP)
        if is_first:
            return self._build_now(rows, build)
        self.begun, self.swap_at = step, min(step + lag, _LAST_STEP)
        if np.all(np.isfinite(np.asarray(rows, np.float32))):
            self.pending = self._timed(build, rows, self.ready)

    def index(self, step: int | None = None) -> Index | None:
        """What queries use; None before the first is ready."""
        return self.ready

    def times(self) -> tuple[np.int64, np.float64]:
        """How many were built, and the seconds that the last one took."""
        return np.int64(self.num_built), np.float64(self.seconds)

    def save(self) -> tuple[bytes, bytes, np.ndarray, np.ndarray]:
        """The state; bytes are empty where there is no such index."""
        steps = [self.swap_at, self.next_start, self.begun]
        touched = np.array(sorted(self.touched), np.int64)
        found = [_bytes(self.ready), _bytes(self.pending)]
        return *found, np.array(steps, np.int64), touched

    def restore(
        self,
        ready: bytes,
        pending: bytes,
        steps: np.ndarray,
        touched: np.ndarray,
    ) -> None:
        """From `save`; an index of the compiled ops is built anew."""
        if np.size(steps) != 3 or np.any(touched < 0):
            raise InvalidInput(
                "`ready` and `pending` must be scalars, `steps` of length 3"
            )
        found = [_index(x, self.name) for x in (ready, pending)]
        self._drop()
        self.ready, self.pending = found
        self.swap_at, self.next_start, self.begun = map(int, steps)
        self.touched = set(touched.ravel().tolist())

    def _take(self):
        touched, self.touched = self.touched, set()
        self.taken |= touched
        return np.array(sorted(touched), np.int64)

    def _build_now(self, rows, build):
        self._check(rows)
        self.ready = self._timed(build, rows, None)
        self.taken = set()

    def _timed(self, build, rows, latest):
        begin = time.monotonic()
        index = build(rows, latest, self._take())
        self.num_built += 1
        self.seconds = time.monotonic() - begin
        return index

    def _check(self, rows):
        try:
            check_finite("kernel", np.asarray(rows, np.float32))
        except InvalidInput as e:
            raise InvalidInput(
                f"`kernel` must be finite to build a {self.name}. Received: a "
                "row with NaN or infinity. A smaller learning rate or "
                "gradient clipping helps where training diverged"
            ) from e

    def _swap(self, step):
        if self.pending is None:
            return
        share = 1.0
        if step < self.swap_at:
            share = (step - self.begun) / (self.swap_at - self.begun)
        if share >= 1:
            self.ready, self.pending, self.taken = self.pending, None, set()
        elif self.ready is not None:
            self.ready = _replaced(self.ready, self.pending, share)

    def _drop(self):
        self.pending = None
        self.touched |= self.taken
        self.taken = set()


def _replaced(latest, following, share):
    """`latest` with the first parts (trees of a forest) of `following`."""
    count = following.get("num_parts", 1)
    due = min(int(count * share), int(count) - 1)
    if due < 1 or np.any(latest["shape"] != following["shape"]):
        return latest
    taken = {
        name: values
        for name, values in following.items()
        if "." in name and int(name.partition(".")[0]) < due
    }
    most = np.maximum(latest["num_parts"], due)
    return {**latest, **taken, "num_parts": most}


def _bytes(index):
    if index is None:
        return b""
    to = io.BytesIO()
    np.savez(to, **index)
    return to.getvalue() + _END


def _index(data, name):
    data = np.asarray(data).item().removesuffix(_END)
    if not data or not zipfile.is_zipfile(io.BytesIO(data)):
        return None
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            return dict(file)
    except (ValueError, OSError, zipfile.BadZipFile, KeyError) as e:
        raise InvalidInput(
            f"The bytes are no {name}. Received: {len(data)} bytes"
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
        handle: that of a `Refreshing`.
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


def rows_of(kernel: tf.Tensor) -> tf.Tensor:
    """The rows behind the handle of a variable, not copied on a CPU."""
    dtype = keras_internals.dtype_of_handle(kernel) or tf.float32
    return tf.raw_ops.ReadVariableOp(resource=kernel, dtype=dtype)


def register_index(prefix: str, name: str) -> None:
    """Twins of handle, mark, times, save, restore of an index `prefix`."""

    def handle(container: str = "", shared_name: str = "") -> tf.Tensor:
        index, number = Refreshing(name), next(_NUMBERS)
        found = tf.raw_ops.VarHandleOp(
            dtype=tf.int64,
            shape=[],
            container=container,
            shared_name=shared_name,
        )
        tf.raw_ops.AssignVariableOp(
            resource=found, value=tf.constant(number, tf.int64)
        )
        _ALL[number] = index
        # It lives as long as the handle does.
        found.tfxclass_index = index
        return found

    def mark(index: tf.Tensor, ids: tf.Tensor) -> Any:
        ids = tf.convert_to_tensor(ids, tf.int64)
        found = call(index, lambda of, ids: of.mark(ids), [ids])
        return tf.group(*found)

    def times(index: tf.Tensor) -> Times:
        types = (tf.int64, tf.float64)
        return Times(*call(index, Refreshing.times, [], types, ([], [])))

    def save(index: tf.Tensor) -> list[tf.Tensor]:
        types = (tf.string, tf.string, tf.int64, tf.int64)
        return call(
            index, lambda of: of.save(), [], types, ([], [], [3], [None])
        )

    def restore(
        index: tf.Tensor, ready: Any, pending: Any, steps: Any, touched: Any
    ) -> Any:
        inputs = [tf.convert_to_tensor(x) for x in (ready, pending)]
        inputs += [tf.convert_to_tensor(x, tf.int64) for x in (steps, touched)]
        return tf.group(*call(index, Refreshing.restore, inputs))

    for twin in (handle, mark, times, save, restore):
        TWINS[f"tfxclass_{prefix}_{twin.__name__}"] = twin
