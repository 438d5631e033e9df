"""Sampling for the replicas of a `tf.distribute` strategy."""

from typing import Any

import tensorflow as tf

from tfxclass.rows.class_matrix import ClassMatrix
from tfxclass.samplers.sampler import Sample
from tfxclass.shards.exchange import gather

# Products of greater numbers are infinite.
_MAX_QUERY = 1e15


def finite(queries: tf.Tensor) -> tf.Tensor:
    """`queries` `[batch, dim]`, zeros in rows with NaN or infinity.

    One odd row must not end a training: nothing is near zeros, and the other
    rows are searched as ever.
    """
    is_finite = tf.reduce_all(tf.math.is_finite(queries), 1, keepdims=True)
    queries = tf.where(is_finite, queries, 0.0)
    return tf.clip_by_value(queries, -_MAX_QUERY, _MAX_QUERY)


def sample_for_replicas(
    sampler: Any,
    queries: tf.Tensor,
    target_ids: tf.Tensor,
    matrix: ClassMatrix,
) -> Sample:
    """`sampler.sample` and `update`, once a step.

    The replicas' parts of the batch are brought together (features and labels:
    small compared with the rows), sampled once a worker, and each replica gets
    the same classes. So a step on several devices or workers is that on one, an
    index is refreshed once a worker, and alike in all of them, and the replicas
    touch the same rows.

    Between the averages of `LocalSGD` the replicas are no one model: each
    draws by itself, for its part of the batch and by its own rows. A sampler
    that keeps an index has one in each worker, from the rows of its first
    replica: there a worker's replicas are sampled for at once, and no features
    cross to other workers.

    Args and returns as `Sampler.sample`, in a replica, with the `ClassMatrix`
    in place of its kernel.
    """
    kernel = matrix.kernel
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return _sample(sampler, queries, target_ids, kernel)
    if matrix.differs_between_replicas:
        if sampler.is_stateless:
            return sampler.sample(finite(queries), target_ids, kernel)
        return _sample_in_worker(context, sampler, queries, target_ids, kernel)
    shapes = gather(context, tf.shape(target_ids)[tf.newaxis])
    padded = _padded(target_ids, tf.reduce_max(shapes[:, 1]))

    def sample_all(strategy, queries, target_ids):
        # Each replica of this worker has been given the whole batch.
        queries, target_ids = (
            strategy.experimental_local_results(values)[0]
            for values in (queries, target_ids)
        )
        return _sample(sampler, queries, target_ids, kernel)

    sample = context.merge_call(
        sample_all, args=(gather(context, queries), gather(context, padded))
    )
    return _part(sample, shapes, context.replica_id_in_sync_group)


def _sample(sampler, queries, target_ids, kernel):
    sample = sampler.sample(finite(queries), target_ids, kernel)
    sampler.update(kernel, sample.ids)
    return sample


def _sample_in_worker(context, sampler, queries, target_ids, kernel):
    def sample_all(strategy, queries, target_ids):
        queries = strategy.experimental_local_results(queries)
        target_ids = strategy.experimental_local_results(target_ids)
        shapes = tf.stack([tf.shape(ids) for ids in target_ids])
        width = tf.reduce_max(shapes[:, 1])
        padded = [_padded(ids, width) for ids in target_ids]
        sample = _sample(
            sampler,
            tf.concat(queries, axis=0),
            tf.concat(padded, axis=0),
            kernel,
        )
        return sample, shapes

    sample, shapes = context.merge_call(sample_all, args=(queries, target_ids))
    number = context.replica_id_in_sync_group % tf.shape(shapes)[0]
    return _part(sample, shapes, number)


def _padded(ids, width):
    missing = width - tf.shape(ids)[1]
    return tf.pad(ids, [[0, 0], [0, missing]], constant_values=-1)


def _part(sample, shapes, number):
    """The part of the whole sample that a replica needs."""
    start = tf.reduce_sum(shapes[:number, 0])
    end = start + shapes[number, 0]
    width = shapes[number, 1]

    def of_rows(values):
        return values if values is None else values[start:end]

    def of_targets(values):
        return values if values is None else values[start:end, :width]

    log_count = sample.log_expected_count
    if log_count.shape.rank == 2:
        log_count = of_rows(log_count)
    return sample._replace(
        log_expected_count=log_count,
        positions=of_targets(sample.positions),
        target_log_expected_count=of_targets(sample.target_log_expected_count),
        mask=of_rows(sample.mask),
    )
