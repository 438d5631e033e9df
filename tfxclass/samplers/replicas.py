"""Sampling for several replicas, and for the shards of a head."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.ops import placement
from tfxclass.rows.class_matrix import ClassMatrix
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import finite
from tfxclass.shards.exchange import gather
from tfxclass.shards.exchange import needs_collectives
from tfxclass.types import Scalar
from tfxclass.types import Variable


def sample_for_replicas(
    sampler: Any,
    queries: tf.Tensor,
    target_ids: tf.Tensor,
    matrix: ClassMatrix,
) -> Sample:
    """`sampler.sample` and `update`, once a step for several replicas.

    The replicas' parts of the batch are brought together, and sampled once a
    worker. So a step on several devices or workers is that on one, and an index
    is refreshed alike in all workers.

    Between the averages of `LocalSGD` each replica samples for its part of the
    batch, by its own rows. A sampler with an index has one in each worker, of
    the rows of its first replica, and samples for the replicas of a worker.
    """
    context = tf.distribute.get_replica_context()
    is_apart = matrix.differs_between_replicas
    if is_apart and sampler.is_stateless:
        return sampler.sample(queries, target_ids, matrix.kernel)
    is_gathered = needs_collectives(context) and not is_apart
    # TensorFlow makes one of what is the same object in all replicas.
    target_ids = tf.identity(target_ids)
    shapes = tf.shape(target_ids)[tf.newaxis]
    if is_gathered:
        shapes = gather(context, shapes)
        target_ids = _padded(target_ids, tf.reduce_max(shapes[:, 1]))
        queries = gather(context, queries)
        target_ids = gather(context, target_ids)

    def sample_all(strategy, *batch):
        queries, ids, shapes = map(strategy.experimental_local_results, batch)
        if is_gathered:
            # Each replica of this worker has been given the whole batch.
            queries, ids, shapes = queries[:1], ids[:1], shapes[:1]
        shapes = tf.concat(shapes, axis=0)
        width = tf.reduce_max(shapes[:, 1])
        ids = tf.concat([_padded(part, width) for part in ids], axis=0)
        queries = tf.concat(queries, axis=0)
        return sample_and_update(sampler, queries, ids, matrix.kernel), shapes

    sample, shapes = context.merge_call(
        sample_all, args=(queries, target_ids, shapes)
    )
    number = context.replica_id_in_sync_group % tf.shape(shapes)[0]
    return _part(sample, shapes, number)


def sample_and_update(
    sampler: Any, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
) -> Sample:
    """`sampler.sample` and `update`, for all that is given."""
    sample = sampler.sample(queries, target_ids, kernel)
    sampler.update(kernel, sample.ids)
    return sample


def _padded(ids, width):
    missing = width - tf.shape(ids)[1]
    return tf.pad(ids, [[0, 0], [0, missing]], constant_values=-1)


def _part(sample, shapes, number):
    """The part of the whole sample that a replica needs."""
    start = tf.reduce_sum(shapes[:number, 0])
    rows = slice(start, start + shapes[number, 0])
    columns = slice(shapes[number, 1])
    mask, log_count = sample.mask, sample.log_expected_count
    of_targets = sample.target_log_expected_count
    return sample._replace(
        log_expected_count=(
            log_count[rows] if log_count.shape.rank == 2 else log_count
        ),
        positions=sample.positions[rows, columns],
        target_log_expected_count=(
            None if of_targets is None else of_targets[rows, columns]
        ),
        mask=None if mask is None else mask[rows],
    )


class ShardSamplers:
    """A copy of a sampler for each shard of this worker, on its device.

    Each copy takes its part of `num_sampled`. `head` is a built head in shards.
    """

    def __init__(self, sampler: Any, head: keras.layers.Layer) -> None:
        sampler.check_for(head.num_classes)
        self._shards = head.shards
        rows_by_shard = head.class_matrix.rows_by_shard()
        self._kernels = {n: rows.kernel for n, rows in rows_by_shard.items()}
        self._samplers = {
            number: self._copy(sampler, head, number, rows)
            for number, rows in rows_by_shard.items()
        }

    def _copy(self, sampler, head, number, rows):
        part = -(-sampler.num_sampled // self._shards.count)
        copy = sampler.for_rows(
            self._shards.starts[number],
            # Padding is a class of a shard that is never computed.
            rows.capacity,
            num_sampled=None if sampler.follows_batch else part,
            seed=_seed_of(sampler.seed, number),
        )
        copy.num_shards = self._shards.count
        copy.build_for(head.name, rows, head.num_negatives)
        return copy

    @property
    def measured(self) -> dict[str, tf.Tensor]:
        """Means over this worker's shards, float32 by name."""
        found = [sampler.gauges for sampler in self._samplers.values()]
        return {
            name: tf.reduce_mean([tf.convert_to_tensor(x[name]) for x in found])
            for name in found[0]
        }

    def sample(
        self,
        batch: Any,
        queries: tf.Tensor,
        local_ids: tf.Tensor,
        number: Scalar,
    ) -> Sample:
        """A `Sample` of the shard `number`, for queries of all replicas.

        `batch` is of `tfxclass.shards`. Targets are rows of the shard, or -1.
        """
        if batch.shard is None:
            return self._sample(number, queries, local_ids)
        context = tf.distribute.get_replica_context()
        # Outside of the replicas: a sampler's state is of one of them.
        samples = context.merge_call(
            self._sample_all, args=(queries, local_ids)
        )
        return samples[list(self._samplers).index(number)]

    def _sample_all(self, strategy, queries, local_ids):
        given = zip(
            self._kernels.items(),
            strategy.experimental_local_results(queries),
            strategy.experimental_local_results(local_ids),
            strict=True,
        )
        samples = []
        for (number, kernel), of_queries, of_ids in given:
            with placement.colocate_with(kernel):
                samples.append(self._sample(number, of_queries, of_ids))
        return samples

    def _sample(self, number, queries, local_ids):
        sampler, kernel = self._samplers[number], self._kernels[number]
        sample = sample_and_update(sampler, finite(queries), local_ids, kernel)
        if sample.mask is not None or sample.log_expected_count.shape.rank != 1:
            raise ValueError(
                "`sampler` must choose the same classes for all rows of a "
                f"batch. Received: {type(sampler).__name__}"
            )
        return sample

    def state(self) -> dict[str, np.ndarray]:
        """Arrays by name."""
        found: dict[str, np.ndarray] = {}
        for number, sampler in self._samplers.items():
            store: dict[str, np.ndarray] = {}
            sampler.save_own_variables(store)
            found |= {f"{number}_{k}": np.asarray(v) for k, v in store.items()}
        return found

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Takes what `state` gave; of other numbers of shards, nothing."""
        for number, sampler in self._samplers.items():
            prefix = f"{number}_"
            own = [name for name in state if name.startswith(prefix)]
            sampler.load_own_variables(
                {name.removeprefix(prefix): state[name] for name in own}
            )


def _seed_of(seed, number):
    """Another one for each shard, int or None; the first one's is `seed`."""
    if seed is None or not number:
        return seed
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
