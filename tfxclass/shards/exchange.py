"""What the replicas tell each other in a step on shards.

Under `MirroredStrategy` these are plain tensors: an output that nobody reads is
pruned. With several workers they are collectives, which always run.
"""

from typing import Any

import tensorflow as tf

from tfxclass.shards.shards import Shards


def batch_of(shards: Shards, rows: tf.Tensor | None = None) -> "ReplicaGroup":
    """A `ReplicaGroup` for tensors of the size of `rows`, `[batch, ...]`.

    Without `rows` it only gathers.

    Raises:
        ValueError: in a replica of a strategy other than the shards' own.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return ReplicaGroup(shards)
    if context.strategy is not shards.strategy:
        raise ValueError(
            "`strategy` must be the one in whose scope the model was built: "
            "the replicas share out its classes. Received: "
            f"{context.num_replicas_in_sync} replicas of a "
            f"{type(context.strategy).__name__} for a head that was built for "
            f"{shards.count}. Build the model within `strategy.scope()`."
        )
    kind = WorkerBatch if needs_collectives(context) else MirroredBatch
    return kind(shards, context, rows)


class ReplicaGroup:
    """The batch of all replicas; here outside of one, with all shards at hand.

    Attributes:
        shard: int, the shard of this replica; None outside of one.
        needs_collectives: bool, whether what is exchanged is never pruned.
    """

    shard: int | None = None
    needs_collectives = False

    def __init__(self, shards: Shards | None) -> None:
        self.shards = shards

    def gather(self, x: tf.Tensor) -> tf.Tensor:
        """Gathers rows `[batch, ...]` from all replicas."""
        return x

    def all_gather(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        """`[batch of all, ...]` of each shard, from those computed here."""
        return values

    def own_from_all(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        """As `all_gather`, for the rows of this replica only."""
        return values

    def own(self, x: tf.Tensor) -> tf.Tensor:
        """Takes the rows of this replica out of all rows."""
        return x

    def reduce_scatter(self, x: tf.Tensor) -> tf.Tensor:
        """The sum over replicas, of the rows of this replica."""
        return x

    def check_equal_parts(self) -> None:
        """Raises unless all replicas have as many rows."""


#: For a head that is not sharded.
NO_EXCHANGE = ReplicaGroup(None)


class _ReplicaBatch(ReplicaGroup):
    def __init__(
        self,
        shards: Shards,
        context: tf.distribute.ReplicaContext,
        rows: tf.Tensor | None,
    ) -> None:
        super().__init__(shards)
        self._context = context
        self.shard = int(tf.get_static_value(context.replica_id_in_sync_group))
        self._rows = rows
        self._known_sizes: list[Any] | None = None

    @property
    def _sizes(self):
        """Rows of each replica: ints where known, or tensors."""
        # No functools.cached_property: until Python 3.12 it holds a lock that
        # replicas, which wait for each other in here, would share.
        if self._known_sizes is None:
            self._known_sizes = self._sizes_of(self._rows)
        return self._known_sizes

    def gather(self, x: tf.Tensor) -> tf.Tensor:
        return gather(self._context, x)

    def own(self, x: tf.Tensor) -> tf.Tensor:
        return tf.split(x, self._sizes)[self.shard]

    def check_equal_parts(self) -> None:
        sizes = self._sizes
        static = [tf.get_static_value(size) for size in sizes]
        message = (
            "`batch_size` must be a multiple of the number of replicas, also "
            "that of the last batch (`drop_remainder=True`): the mean over "
            "unequal parts would be another loss. Received parts of sizes"
        )
        if None in static:
            equal = tf.reduce_all(tf.stack(sizes) == sizes[0])
            tf.debugging.Assert(equal, [message, *sizes], summarize=len(sizes))
        elif len(set(map(int, static))) > 1:
            raise ValueError(f"{message} {list(map(int, static))}")


class MirroredBatch(_ReplicaBatch):
    """All replicas are in this process."""

    def _sizes_of(self, rows):
        found = parts(self._context, rows)
        return [
            tf.shape(x)[0] if x.shape[0] is None else x.shape[0] for x in found
        ]

    def _exchange(self, outgoing):
        """Sends item j to replica j, and returns what the others sent."""
        items = [parts(self._context, x) for x in outgoing]
        return items[self.shard]

    def all_gather(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        return parts(self._context, values[0])

    def own_from_all(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        # Cut where it was computed: only what is needed crosses.
        return self._exchange(tf.split(values[0], self._sizes))

    def reduce_scatter(self, x: tf.Tensor) -> tf.Tensor:
        return tf.add_n(self._exchange(tf.split(x, self._sizes)))


class WorkerBatch(_ReplicaBatch):
    """Replicas are in several processes: collectives."""

    needs_collectives = True

    def _sizes_of(self, rows):
        sizes = self._context.all_gather(tf.shape(rows)[:1], axis=0)
        return tf.unstack(sizes, num=self._context.num_replicas_in_sync)

    def all_gather(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        gathered = self.gather(values[0][tf.newaxis])
        return tf.unstack(gathered, num=self._context.num_replicas_in_sync)

    def own_from_all(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        return [self.own(x) for x in self.all_gather(values)]

    def reduce_scatter(self, x: tf.Tensor) -> tf.Tensor:
        return self.own(self._context.all_reduce(tf.distribute.ReduceOp.SUM, x))


def needs_collectives(context: tf.distribute.ReplicaContext) -> bool:
    """Whether the replicas are in several processes."""
    workers = tf.distribute.MultiWorkerMirroredStrategy
    return isinstance(context.strategy, workers)


def parts(
    context: tf.distribute.ReplicaContext, x: tf.Tensor
) -> list[tf.Tensor]:
    """`x` of each replica, a list; for replicas of one process."""
    results = tf.distribute.Strategy.experimental_local_results
    found = context.merge_call(results, args=(x,))
    # TensorFlow makes one of what is the same object in all replicas.
    count = context.num_replicas_in_sync if len(found) == 1 else 1
    return list(found) * count


def gather(context: tf.distribute.ReplicaContext, x: tf.Tensor) -> tf.Tensor:
    """The rows of all replicas, in their order; `[batch of all, ...]`."""
    if not needs_collectives(context):
        return tf.concat(parts(context, x), axis=0)
    gathered = context.all_gather(x, axis=0)
    return tf.ensure_shape(gathered, [None, *x.shape[1:]])
