"""In place of the cache of neighbors: one that never knows any.

So `sampler="auto"` samples uniformly where the compiled ops are missing. It
takes its neighbors from nothing else.
"""

from typing import Any

import tensorflow as tf

from tfxclass.types import Scalar


def recall_neighbors(
    memory: Any,
    recent: Any,
    centres: Any,
    products: tf.Tensor,
    labels: tf.Tensor,
    num_asked: Scalar,
    step: Scalar,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The first op of `samplers.neighbor_cache`."""
    none = tf.fill([tf.size(labels), 1], tf.constant(-1, tf.int64))
    return tf.range(tf.cast(num_asked, tf.int64)), none


def rank_neighbors(
    memory: Any,
    kernel: Any,
    queries: Any,
    target_ids: Any,
    labels: tf.Tensor,
    known: Any,
    asked: Any,
    found: Any,
    count: Scalar,
    step: Scalar,
    normalize: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The second op of `samplers.neighbor_cache`."""
    shape = [tf.size(labels), tf.cast(count, tf.int32)]
    return tf.fill(shape, tf.constant(-1, tf.int64)), tf.zeros(shape)
