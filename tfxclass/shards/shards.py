"""Which replica owns which rows, and the variables that hold them."""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.initializers import InBlocks
from tfxclass.keras_internals import tf_variable
from tfxclass.keras_internals import without_broadcast
from tfxclass.ops import row_update
from tfxclass.types import Variable

#: Numbers of a block of a file, at least. All workers exchange a block, which
#: takes about ten times its memory.
BLOCK_NUMBERS = 1 << 19
_BLOCKS_OF_SHARD = 128


class Shards:
    """Contiguous ranges of rows, one for each replica of the current strategy.

    The first `num_rows mod count` ranges have one more row, as in Partial FC. A
    sharded variable has one component on each replica, all with `capacity`
    rows. In shorter ranges the last row is padding. Without a strategy, or with
    one replica, there is one shard, and variables are ordinary ones.

    Attributes:
        count, num_rows: ints, of shards and of all rows.
        sizes, starts: lists of int, the range of each shard.

    Raises:
        ValueError: if there are fewer rows than replicas, or it is made within
            a replica.
    """

    #: Whether each replica owns a shard.
    is_of_replicas = True

    def __init__(self, num_rows: int) -> None:
        self.strategy = tf.distribute.get_strategy()
        self.count = self._count()
        self._check(num_rows)
        self.num_rows = num_rows
        least, longer = divmod(num_rows, self.count)
        self.sizes = [least + (i < longer) for i in range(self.count)]
        self.starts = [0, *itertools.accumulate(self.sizes)][:-1]
        self.capacity = self.sizes[0]
        self._numbers: list[int] | None = None

    def _count(self):
        return self.strategy.num_replicas_in_sync

    def _check(self, num_rows):
        if self.count > num_rows:
            kind = "replicas" if self.is_of_replicas else "parameter servers"
            raise ValueError(
                f"`num_classes` must be at least the number of {kind}: each "
                f"owns a range of classes. Received: num_classes={num_rows} "
                f"with {self.count} {kind}."
            )
        if not self.is_of_replicas:
            return
        if self.count > 1 and not tf.distribute.in_cross_replica_context():
            raise ValueError(
                "Shards are made once for all replicas, within "
                "`strategy.scope()`. Received: a layer that is built in "
                "`strategy.run`. Build the model before, e.g. begin it with a "
                "keras.Input."
            )

    def add(
        self,
        add_weight: Callable[..., Variable],
        shape: tuple[int, ...],
        initializer: InBlocks,
    ) -> "Variable | SplitRows":
        """Makes a Keras variable whose rows are sharded, or one on each server.

        Initial values do not depend on the number of shards, and are made a
        block at a time. `add_weight` is a function of `(shape, initializer,
        suffix="")`; `suffix` is appended to the name.
        """
        if self.count == 1:
            return add_weight(shape, initializer)
        variable = self._make(add_weight, shape)
        if all(isinstance(x, keras.Variable) for x in parts_of(variable)):
            self._initialize(variable, shape, initializer)
        return variable

    def _make(self, add_weight, shape):
        with self.creator():
            return add_weight((self.capacity, *shape[1:]), "zeros")

    def _initialize(self, variable, shape, initializer):
        step = initializer.block_rows(shape)
        with tf.init_scope():
            for first in range(0, self.num_rows, step):
                end = min(first + step, self.num_rows)
                if self._overlaps(variable, first, end):
                    with tf.device("CPU:0"):
                        block = initializer.block(shape, first // step)
                    self._write(variable, first, block, is_new=True)
                    del block  # Before the next one is made.

    def creator(self) -> contextlib.AbstractContextManager[Any]:
        """Scope in which variables get components of their own."""

        def create(next_creator, **options):
            # Reading such a variable outside of a replica is an error: a
            # mirrored one would pass off its first component as the whole.
            options["synchronization"] = tf.VariableSynchronization.ON_READ
            # Workers compare shapes: there are no numbers to send.
            next_creator(initial_value=tf.zeros([self.num_rows, 0]))
            with without_broadcast(self.strategy):
                return next_creator(**options)

        return tf.variable_creator_scope(create)

    def components(self, variable: Variable) -> list[tuple[int, Variable]]:
        """Lists `(shard, tf.Variable)` for this worker's devices."""
        local_results = self.strategy.experimental_local_results
        parts = local_results(variable.value)
        if len(parts) == self.count:
            return list(enumerate(parts))
        if self._numbers is None:
            run = tf.function(
                lambda: self.strategy.run(_replica_number), autograph=False
            )
            with tf.init_scope():
                self._numbers = list(map(int, local_results(run())))
        return list(zip(self._numbers, parts, strict=True))

    def read(self, variable: Variable) -> np.ndarray:
        """All rows in their order; see `read_blocks`."""
        return np.concatenate(list(self.read_blocks(variable)))

    def num_blocks(self, variable: Variable) -> int:
        """How many blocks `read_blocks` yields."""
        return -(-self.num_rows // self._block_rows(variable))

    def _block_rows(self, variable):
        """How many rows are read or written at a time."""
        width = max(math.prod(variable.shape[1:]), 1)
        return max(self.capacity // _BLOCKS_OF_SHARD, BLOCK_NUMBERS // width, 1)

    def read_blocks(self, variable: Variable) -> Iterator[np.ndarray]:
        """Reads all rows in their order, a block at a time.

        With several workers, all of them have to call it, to its end.
        """
        step, read = self._block_rows(variable), None
        if len(self.components(variable)) < self.count:
            read = self._reader(variable)
        for first in range(0, self.num_rows, step):
            end = min(first + step, self.num_rows)
            if read is None:
                yield self._rows(variable, first, end)
            else:
                yield read(first)[: end - first]

    def _rows(self, variable, first, end):
        """Rows from `first` to `end` of shards that are all here."""
        found = []
        for part, start, low, high in self._overlaps(variable, first, end):
            # Elsewhere, the whole shard would be sent there first.
            with tf.device(part.device):
                found.append(part[low - start : high - start].numpy())
        return np.concatenate(found)

    def _overlaps(self, variable, first, end):
        """`(tf.Variable, its first row, from, to)` of some of the rows."""
        found = []
        for number, part in self.components(variable):
            start = self.starts[number]
            low, high = max(first, start), min(end, start + self.sizes[number])
            if low < high:
                found.append((tf_variable(part), start, low, high))
        return found

    def _reader(self, variable):
        """A function of a row, which reads a block from it on, with others."""
        offsets = tf.stack([self.starts, [*self.starts[1:], self.num_rows]])
        block = tf.range(min(self._block_rows(variable), self.num_rows))

        def rows(own, first):
            context = tf.distribute.get_replica_context()
            start, end = tf.unstack(
                tf.gather(offsets, context.replica_id_in_sync_group, axis=1)
            )
            wanted = first + block
            is_here = (wanted >= start) & (wanted < end)
            places = tf.where(is_here, wanted - start, 0)
            found = tf.gather(tf.convert_to_tensor(own), places)
            mask = tf.reshape(is_here, [-1, *[1] * (found.shape.rank - 1)])
            # Each row is on one replica, and zero on the others.
            found = tf.where(mask, found, tf.zeros([], found.dtype))
            return context.all_reduce(tf.distribute.ReduceOp.SUM, found)

        def run(first):
            return self.strategy.run(rows, (variable.value, first))

        traced = tf.function(run, autograph=False)

        def read(first):
            with tf.init_scope():
                found = traced(tf.constant(first))
            return self.strategy.experimental_local_results(found)[0].numpy()

        return read

    def write_blocks(
        self,
        variable: Variable,
        keys: Sequence[Any],
        read: Callable[[Any], np.ndarray],
    ) -> None:
        """Gives each shard its rows of the blocks `read(key)`, in their order.

        All blocks but the last have as many rows as the first. A block between
        them whose rows are all elsewhere is not read.
        """
        size = end = 0
        for number, key in enumerate(keys):
            first, is_last = number * size, number == len(keys) - 1
            is_here = self._overlaps(variable, first, first + size)
            if number and not is_last and not is_here:
                continue
            block = read(key)
            size, end = size or len(block), first + len(block)
            width = tuple(variable.shape[1:])
            is_short = len(block) < size and not is_last
            if is_short or end > self.num_rows or block.shape[1:] != width:
                raise self._shape_error(variable, (end, *block.shape[1:]))
            self._write(variable, first, block)
        if end < self.num_rows:
            raise self._shape_error(variable, (end, *variable.shape[1:]))

    def _write(self, variable, first, block, is_new=False):
        """Writes a block; the first one of a shard clears it, unless new."""
        end = first + len(block)
        for part, start, low, high in self._overlaps(variable, first, end):
            rows = tf.cast(block[low - first : high - first], part.dtype)
            if not is_new and low == start:
                # New values even where the old ones are NaN. The first
                # assignment frees the memory that the second one takes.
                for shape in ([0], part.shape):
                    tf.raw_ops.AssignVariableOp(
                        resource=part.handle, value=tf.zeros(shape, part.dtype)
                    )
            # Not an assignment of a slice: after that TensorFlow copies the
            # whole shard at each read of it, in each step.
            ids = tf.range(low - start, high - start, dtype=tf.int64)
            row_update.add_rows(part.handle, ids, rows)

    def _shape_error(self, variable, shape):
        expected = (self.num_rows, *variable.shape[1:])
        return ValueError(
            f"The rows of all shards of {variable.path!r} must have shape "
            f"{expected}. Received: {tuple(shape)}"
        )


@dataclasses.dataclass(eq=False)
class SplitRows:
    """A matrix `shape` in parts, one Keras variable on each server."""

    parts: Sequence[Variable]
    shape: tuple[int, ...]
    shards: Shards

    @property
    def path(self) -> str:
        return self.parts[0].path


class ServerShards(Shards):
    """A contiguous range of rows on each parameter server.

    Workers have all shards at hand and none of their own: the parts are plain
    variables.
    """

    is_of_replicas = False

    def _count(self):
        devices = tf.config.list_logical_devices("CPU")
        return max(sum("/job:ps/" in device.name for device in devices), 1)

    def _make(self, add_weight, shape):
        # The strategy puts each on the next server.
        parts = [
            add_weight((size, *shape[1:]), "zeros", f"_{number}")
            for number, size in enumerate(self.sizes)
        ]
        return SplitRows(parts, shape, self)

    def components(
        self, variable: Variable | SplitRows
    ) -> list[tuple[int, Variable]]:
        return list(enumerate(parts_of(variable)))


def parts_of(variable: Variable | SplitRows) -> list[Variable]:
    """Lists the variables of a `SplitRows`, or a single variable."""
    return getattr(variable, "parts", [variable])


def make_shards(num_rows: int) -> Shards:
    """`Shards` for the strategy in scope."""
    servers = tf.distribute.ParameterServerStrategy
    is_of_servers = isinstance(tf.distribute.get_strategy(), servers)
    return ServerShards(num_rows) if is_of_servers else Shards(num_rows)


def memory_per_replica(model: keras.Model) -> list[int]:
    """Memory of the variables on each replica of this worker, in bytes.

    It counts the variables of the model and, once it is built, of its
    optimizer. A sharded head has about 1 / replicas of its bytes on each.

    Args:
        model: a built `keras.Model`.

    Returns:
        List of int.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(100)
    model = keras.Sequential([keras.Input([20]), head])
    print(tfxclass.memory_per_replica(model))
    ```
    """
    variables = list(model.variables)
    if getattr(model, "optimizer", None) is not None:
        variables += model.optimizer.variables
    values = [variable.value for variable in variables]
    parts = [getattr(value, "values", None) or (value,) for value in values]
    totals = [0] * max(map(len, parts), default=1)
    # What has one component only is wherever it is: on the first.
    for components in parts:
        for number, part in enumerate(components):
            totals[number] += part.shape.num_elements() * part.dtype.size
    return totals


def _replica_number():
    return tf.distribute.get_replica_context().replica_id_in_sync_group
