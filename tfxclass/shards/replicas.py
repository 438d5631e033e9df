"""What the replicas of a step tell each other."""

import tensorflow as tf


def needs_collectives(context: tf.distribute.ReplicaContext) -> bool:
    """Whether the replicas are in several processes."""
    workers = tf.distribute.MultiWorkerMirroredStrategy
    return isinstance(context.strategy, workers)


def parts(
    context: tf.distribute.ReplicaContext, x: tf.Tensor
) -> list[tf.Tensor]:
    """`x` of each replica, a list; for replicas of one process.

    Plain tensors, copied between devices where they are used: what nobody
    reads is pruned, with all that led to it.
    """
    found = context.merge_call(_local_results, args=(x,))
    # TensorFlow makes one of what is the same object in all replicas.
    count = context.num_replicas_in_sync if len(found) == 1 else 1
    return list(found) * count


def gather(context: tf.distribute.ReplicaContext, x: tf.Tensor) -> tf.Tensor:
    """The rows of all replicas, in their order; `[batch of all, ...]`."""
    if not needs_collectives(context):
        return tf.concat(parts(context, x), axis=0)
    gathered = context.all_gather(x, axis=0)
    return tf.ensure_shape(gathered, [None, *x.shape[1:]])


def _local_results(strategy, x):
    return strategy.experimental_local_results(x)
