"""Fallbacks of the log-probabilities and of the search in a tree of classes.

A search computes the products with all rows, where the op opens the likeliest
nodes alone.
"""

import tensorflow as tf

from tfxclass.ops.fallback import class_tree
from tfxclass.ops.fallback import slow
from tfxclass.ops.fallback.registry import Float
from tfxclass.ops.fallback.registry import Floats
from tfxclass.ops.fallback.registry import Ids
from tfxclass.ops.fallback.registry import check_number
from tfxclass.ops.fallback.registry import check_shape
from tfxclass.ops.fallback.registry import fallback
from tfxclass.ops.fallback.registry import require

# Nodes of a tree from which on a search takes 20 times as long.
_MANY_NODES = 100_000


@fallback(has_gradient=True)
def tree_log_probabilities(
    logits: Floats, nodes: Ids, num_classes: int, independent: bool
) -> tf.Tensor:
    """See `tfxclass.ops.class_tree.log_probabilities`."""
    check_number("num_classes", num_classes, 1)
    logs = _logs_of_classes(logits, nodes, num_classes, independent)
    return tf.ensure_shape(logs, [None, num_classes])


def _logs_of_classes(logits, nodes, num_classes, independent):
    check_shape("logits", logits, [None, None])
    tree = class_tree.Nodes(nodes, independent)
    tree.check(num_classes, tf.shape(logits, tf.int64)[1])
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
    order = tf.argsort(classes)
    children = tf.boolean_mask(tree.first_child, tree.num_children > 0)
    sizes = tf.boolean_mask(tree.num_children, tree.num_children > 0)
    next_child = tf.concat([[1], 1 + tf.cumsum(sizes)], axis=0)
    require(
        tf.equal(tf.size(leaves, tf.int64), num_classes)
        & tf.reduce_all(
            tf.sort(classes) == tf.range(tf.size(classes, tf.int64))
        )
        & tf.reduce_all(children == next_child[:-1])
        & (next_child[-1] == tree.count),
        class_tree.NO_TREE,
    )
    of_classes = tf.gather(leaves, order)
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
    check_shape("upstream", upstream, [tf.shape(logits)[0], None])
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
    least: Float,
    k: int,
    independent: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    """See `tfxclass.ops.class_tree.top_k`."""
    check_shape("queries", queries, [None, None])
    check_shape("kernel", kernel, [None, tf.shape(queries)[1]])
    check_shape("nodes", nodes, [None, 5])
    check_number("k", k, 1)
    require(
        tf.shape(nodes)[0] >= k,
        "`k` must be at most the number of nodes, {}. Received: {}",
        tf.shape(nodes)[0],
        tf.constant(k),
    )
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
