"""In place of the cache of neighbors: one that never knows any.

So `sampler="auto"` samples uniformly where the compiled ops are missing. It
takes its neighbors from nothing else.
"""

from typing import Any

import tensorflow as tf

from tfxclass.ops.fallback.registry import ops
from tfxclass.types import Scalar


def recall_neighbors(
    memory: Any,
    recent: Any,
    centres: Any,
    products: tf.Tensor,
    labels: tf.Tensor,
    num_asked: Scalar,
    step: Scalar,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The first op of `samplers.neighbor_cache`."""
    none = tf.fill([tf.size(labels), 1], tf.constant(-1, tf.int64))
    return tf.range(tf.cast(num_asked, tf.int64)), none


def rank_neighbors(
    memory: Any,
    kernel: Any,
    queries: tf.Tensor,
    target_ids: tf.Tensor,
    labels: tf.Tensor,
    known: tf.Tensor,
    asked: tf.Tensor,
    found: tf.Tensor,
    count: Scalar,
    step: Scalar,
    normalize: bool = False,
    name: str | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The second op of `samplers.neighbor_cache`."""
    shape = [tf.size(labels), tf.cast(count, tf.int32)]
    return tf.fill(shape, tf.constant(-1, tf.int64)), tf.zeros(shape)


ops.tfxclass_recall_neighbors = recall_neighbors
ops.tfxclass_rank_neighbors = rank_neighbors
