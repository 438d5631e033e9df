"""Fallbacks of the log-probabilities and of the search in a tree of classes.

A search computes the products with all rows, where the op opens the likeliest
nodes alone.
"""

import tensorflow as tf

from tfxclass.ops.fallback import class_tree
from tfxclass.ops.fallback import slow
from tfxclass.ops.fallback.registry import Floats
from tfxclass.ops.fallback.registry import Ids
from tfxclass.ops.fallback.registry import fallback
from tfxclass.ops.fallback.registry import require

# Nodes of a tree from which on a search takes 20 times as long.
_MANY_NODES = 100_000


@fallback(has_gradient=True)
def tree_log_probabilities(
    logits: Floats, nodes: Ids, num_classes: int, independent: bool
) -> tf.Tensor:
    """See `tfxclass.ops.class_tree.log_probabilities`."""
    logs = _logs_of_classes(logits, nodes, num_classes, independent)
    return tf.ensure_shape(logs, [None, num_classes])


def _logs_of_classes(logits, nodes, num_classes, independent):
    tree = class_tree.Nodes(nodes, independent)
    own = _own_logs(tree, tf.transpose(logits), independent)
    # Doubles, in each round, the number of nodes above that are summed.
    _, sums = tf.while_loop(
        lambda above, _: tf.reduce_any(above > 0),
        lambda above, sums: (
            tf.gather(above, above),
            sums + tf.gather(sums, above),
        ),
        (tf.maximum(tree.parent, 0), own),
        maximum_iterations=64,
    )
    leaves = tf.where(tree.num_children == 0)[:, 0]
    classes = tf.gather(tree.class_id, leaves)
    require(
        tf.size(leaves, tf.int64) == num_classes,
        "`nodes` must be a tree with a leaf for each class. Received: {} "
        "leaves",
        tf.size(leaves),
    )
    of_classes = tf.gather(leaves, tf.argsort(classes))
    return tf.transpose(tf.gather(sums, of_classes))


def _own_logs(tree, logits, independent):
    """log p(node | parent), [num_nodes, batch], 0 of the root."""
    parents = tree.parent[1:]
    place = tf.range(1, tree.count) - tf.gather(tree.first_child, parents)
    is_binary = tf.gather(tree.is_binary, parents)
    is_second = (is_binary & (place > 0))[:, tf.newaxis]
    at = tf.where(is_binary, tf.zeros_like(place), place)
    of_nodes = tf.gather(logits, at + tf.gather(tree.first_row, parents))
    if independent:
        own = -tf.math.softplus(-of_nodes)
    else:
        of_nodes = tf.where(is_second, tf.zeros_like(of_nodes), of_nodes)
        top = tf.math.unsorted_segment_max(of_nodes, parents, tree.count)
        top = tf.gather(tf.stop_gradient(top), parents)
        shifted = of_nodes - top
        sums = tf.math.unsorted_segment_sum(
            tf.exp(shifted), parents, tree.count
        )
        own = shifted - tf.math.log(tf.gather(sums, parents))
    return tf.concat([tf.zeros([1, tf.shape(logits)[1]]), own], axis=0)


@fallback
def tree_log_probabilities_grad(
    logits: Floats, nodes: Ids, upstream: Floats, independent: bool
) -> tf.Tensor:
    """The gradient of `tree_log_probabilities`."""
    with tf.GradientTape() as tape:
        tape.watch(logits)
        num_classes = tf.shape(upstream, tf.int64)[1]
        logs = _logs_of_classes(logits, nodes, num_classes, independent)
    return tape.gradient(logs, logits, upstream)


@fallback
def tree_top_k(
    queries: Floats,
    kernel: Floats,
    nodes: Ids,
    least: Floats,
    k: int,
    independent: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    """See `tfxclass.ops.class_tree.top_k`."""
    if (kernel.shape[0] or 0) >= _MANY_NODES:
        slow.warn_once("tree_top_k")
    num_classes = tf.math.count_nonzero(nodes[:, 2] == 0)
    logits = tf.matmul(queries, kernel, transpose_b=True)
    logs = _logs_of_classes(logits, nodes, num_classes, independent)
    fits = ~tf.math.is_nan(logs) & (logs >= least)
    missing = tf.maximum(tf.cast(k - num_classes, tf.int32), 0)
    padding = [[0, 0], [0, missing]]
    keys = tf.where(fits, tf.maximum(logs, tf.float32.min), float("-inf"))
    keys = tf.pad(keys, padding, constant_values=float("-inf"))
    keys, ids = tf.nn.top_k(keys, k)
    there = keys > float("-inf")
    scores = tf.gather(
        tf.pad(logs, padding, constant_values=float("-inf")),
        ids,
        axis=1,
        batch_dims=1,
    )
    ids = tf.where(there, tf.cast(ids, tf.int64), -1)
    return ids, tf.where(there, scores, float("-inf"))
