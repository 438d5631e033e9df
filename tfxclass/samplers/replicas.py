"""Sampling once for all replicas of a `tf.distribute` strategy."""

import tensorflow as tf


def sample_for_replicas(sampler, queries, target_ids, kernel):
    """`sampler.sample` and `update`, once a step for the whole batch.

    Under `MirroredStrategy` the replicas' parts of the batch are brought
    together (features and labels: small beside the rows), sampled once, and
    each replica gets the same classes. So a step on several devices is that
    on one, an index is refreshed once, and the replicas touch the same rows.
    With several workers, each worker samples for its own part.

    Args and returns are those of `Sampler.sample`, in a replica.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return _sample(sampler, queries, target_ids, kernel)

    def sample_all(strategy, queries, target_ids):
        parts = strategy.experimental_local_results(target_ids)
        sample = _sample(
            sampler,
            tf.concat(strategy.experimental_local_results(queries), axis=0),
            tf.concat(_same_width(parts), axis=0),
            kernel,
        )
        return sample, tf.stack([tf.shape(part) for part in parts])

    sample, shapes = context.merge_call(sample_all, args=(queries, target_ids))
    # Replicas of this worker only: the parts that were brought together.
    number = context.replica_id_in_sync_group % shapes.shape[0]
    return _part(sample, shapes, number)


def _sample(sampler, queries, target_ids, kernel):
    sample = sampler.sample(queries, target_ids, kernel)
    sampler.update(kernel, sample.ids)
    return sample


def _same_width(parts):
    """Target ids padded with -1 to those of the widest part."""
    width = tf.reduce_max([tf.shape(part)[1] for part in parts])
    return [
        tf.pad(
            part, [[0, 0], [0, width - tf.shape(part)[1]]], constant_values=-1
        )
        for part in parts
    ]


def _part(sample, shapes, number):
    """What a replica needs of the sample of all."""
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
