"""Which replica owns which rows, and the variables that hold them."""

import contextlib
import itertools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.types import Initializer
from tfxclass.types import Variable


class Shards:
    """Contiguous ranges of rows, one for each replica of the current strategy.

    The first `num_rows mod count` ranges have one more row, as in Partial FC. A
    sharded variable has one component on each replica, all with `capacity`
    rows. In shorter ranges the last row is padding. Without a strategy, or with
    one replica, there is one shard, and variables are ordinary ones.

    Args:
        num_rows: int, number of rows.

    Attributes:
        strategy: `tf.distribute.Strategy`.
        count: int, number of shards.
        sizes, starts: lists of int, the range of each shard.
        capacity: int, number of rows of a component.

    Raises:
        ValueError: if there are fewer rows than replicas, or it is made within
            a replica.
    """

    #: Whether each replica owns a shard.
    is_of_replicas = True

    def __init__(self, num_rows: int) -> None:
        if tf.distribute.in_cross_replica_context():
            self.strategy = tf.distribute.get_strategy()
        else:
            self.strategy = tf.distribute.get_replica_context().strategy
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
        initializer: Initializer,
    ) -> Variable:
        """Makes a Keras variable whose rows are sharded.

        All initial values are drawn once on the host, so they do not depend on
        the number of replicas.

        Args:
            add_weight: function of `(shape, initializer, suffix="")`, where
                `suffix` is appended to the name.
            shape: tuple of ints, `(num_rows, ...)`.
            initializer: Keras initializer of the whole matrix, or its name.
        """
        if self.count == 1:
            return add_weight(shape, initializer)
        with self.creator():
            variable = add_weight((self.capacity, *shape[1:]), "zeros")
        if isinstance(variable, keras.Variable):
            self._initialize(variable, shape, initializer)
        return variable

    def _initialize(self, variable, shape, initializer):
        with tf.init_scope(), tf.device("CPU:0"):
            values = keras.initializers.get(initializer)(shape, "float32")
            self.write(variable, values.numpy())

    def creator(self) -> contextlib.AbstractContextManager[Any]:
        """Scope in which variables get components of their own."""

        def create(next_creator, **options):
            # Reading such a variable outside of a replica is an error: a
            # mirrored one would pass off its first component as the whole.
            options["synchronization"] = tf.VariableSynchronization.ON_READ
            return next_creator(**options)

        return tf.variable_creator_scope(create)

    def components(self, variable: Variable) -> list[tuple[int, Variable]]:
        """Lists `(shard, tf.Variable)` for this worker's devices."""
        parts = self.strategy.experimental_local_results(variable.value)
        return list(zip(self.local_numbers(len(parts)), parts, strict=True))

    def local_numbers(self, num_local: int) -> list[int]:
        """The shards of this worker, a list of int."""
        if num_local == self.count:
            return list(range(self.count))
        if self._numbers is None:
            numbers = self._run(_replica_number)
            self._numbers = [int(number) for number in numbers]
        return self._numbers

    def read(self, variable: Variable) -> np.ndarray:
        """Reads all rows in their order, as a NumPy array.

        With several workers, all of them have to call it.
        """
        parts = [part for _, part in self.components(variable)]
        if len(parts) < self.count:
            gathered = self._run(_gather_components, variable.value)
            parts = np.split(gathered[0].numpy(), self.count)
        return np.concatenate(
            [np.asarray(x)[:size] for x, size in zip(parts, self.sizes)]
        )

    def _run(self, function, *args):
        """The results of `function` in the replicas of this worker."""
        run = tf.function(
            lambda: self.strategy.run(function, args), autograph=False
        )
        with tf.init_scope():
            return self.strategy.experimental_local_results(run())

    def write(self, variable: Variable, rows: np.ndarray) -> None:
        """Gives each shard its rows of an array `[num_rows, ...]`."""
        self._check_rows(variable, rows)
        for number, part in self.components(variable):
            start, size = self.starts[number], self.sizes[number]
            padded = np.zeros(part.shape, part.dtype.as_numpy_dtype)
            padded[:size] = rows[start : start + size]
            part.assign(padded)

    def _check_rows(self, variable, rows):
        expected = (self.num_rows, *variable.shape[1:])
        if tuple(rows.shape) != expected:
            raise ValueError(
                f"The rows of all shards of {variable.path!r} must have shape "
                f"{expected}. Received: {tuple(rows.shape)}"
            )


class SplitRows:
    """A matrix in parts, with one Keras variable on each server.

    Attributes:
        parts: list of Keras variables `[size, ...]`.
        shape: tuple, shape of the whole matrix.
        shards: its `ServerShards`.
        path: str.
    """

    def __init__(
        self,
        parts: Sequence[Variable],
        shape: tuple[int, ...],
        shards: Shards,
    ) -> None:
        self.parts = parts
        self.shape = tuple(shape)
        self.shards = shards
        self.path = parts[0].path


class ServerShards(Shards):
    """A contiguous range of rows on each parameter server.

    Workers have all shards at hand and none of their own, so the parts are
    plain variables, with slots like any others'.
    """

    is_of_replicas = False

    def _count(self):
        devices = tf.config.list_logical_devices("CPU")
        return max(sum("/job:ps/" in device.name for device in devices), 1)

    def add(
        self,
        add_weight: Callable[..., Variable],
        shape: tuple[int, ...],
        initializer: Initializer,
    ) -> Variable | SplitRows:
        if self.count == 1:
            return add_weight(shape, initializer)
        parts = [
            # The strategy puts each on the next server.
            add_weight((size, *shape[1:]), "zeros", f"_{number}")
            for number, size in enumerate(self.sizes)
        ]
        split = SplitRows(parts, shape, self)
        if all(isinstance(part, keras.Variable) for part in parts):
            self._initialize(split, shape, initializer)
        return split

    def components(
        self, variable: Variable | SplitRows
    ) -> list[tuple[int, Variable]]:
        return list(enumerate(parts_of(variable)))

    def read(self, variable: Variable | SplitRows) -> np.ndarray:
        return np.concatenate([x.numpy() for x in parts_of(variable)])

    def write(self, variable: Variable | SplitRows, rows: np.ndarray) -> None:
        self._check_rows(variable, rows)
        for part, start in zip(parts_of(variable), self.starts):
            part.assign(rows[start : start + part.shape[0]])


def parts_of(variable: Variable | SplitRows) -> list[Variable]:
    """Lists the variables of a `SplitRows`, or a single variable."""
    return getattr(variable, "parts", [variable])


def make_shards(num_rows: int) -> Shards:
    """`Shards` for the strategy in scope."""
    strategy = tf.distribute.get_strategy()
    servers = tf.distribute.ParameterServerStrategy
    kind = ServerShards if isinstance(strategy, servers) else Shards
    return kind(num_rows)


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
    return bytes_per_replica(variables)


def bytes_per_replica(variables: Sequence[Variable]) -> list[int]:
    """As `memory_per_replica`, for a list of Keras variables."""
    values = [variable.value for variable in variables]
    parts = [getattr(value, "values", None) or (value,) for value in values]
    count = max(map(len, parts), default=1)
    # What has one component only is wherever it is: on the first.
    return [
        sum(_bytes(x[number]) for x in parts if number < len(x))
        for number in range(count)
    ]


def _bytes(variable):
    return variable.shape.num_elements() * variable.dtype.size


def _replica_number():
    return tf.distribute.get_replica_context().replica_id_in_sync_group


def _gather_components(variable):
    context = tf.distribute.get_replica_context()
    # The identity has a device, which a read need not have.
    rows = tf.identity(tf.convert_to_tensor(variable))
    return context.all_gather(rows, axis=0)
