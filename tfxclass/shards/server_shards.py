"""Rows that are shared out among parameter servers."""

from collections.abc import Callable
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfxclass.shards.shards import Shards
from tfxclass.types import Initializer
from tfxclass.types import Variable


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
            with tf.init_scope(), tf.device("CPU:0"):
                values = keras.initializers.get(initializer)(shape, "float32")
                self.write(split, values.numpy())
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
