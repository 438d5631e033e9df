"""Log-probabilities of all leaves of a tree, for exported graphs, too."""

import tensorflow as tf


def tree_log_probabilities(
    logits: tf.Tensor, nodes: tf.Tensor, num_classes: int, independent: bool
) -> tf.Tensor:
    """See `tfxclass.ops.class_tree.log_probabilities`."""
    parent, _, num_children, _, class_id = tf.unstack(nodes, num=5, axis=1)
    # Doubles, in each round, the number of nodes above that are summed.
    _, sums = tf.while_loop(
        lambda above, _: tf.reduce_any(above > 0),
        lambda above, sums: (
            tf.gather(above, above),
            sums + tf.gather(sums, above),
        ),
        (tf.maximum(parent, 0), _own_logs(logits, nodes, independent)),
        maximum_iterations=64,
    )
    leaves = tf.where(num_children == 0)[:, 0]
    of_classes = tf.gather(leaves, tf.argsort(tf.gather(class_id, leaves)))
    logs = tf.transpose(tf.gather(sums, of_classes))
    return tf.ensure_shape(logs, [None, num_classes])


def _own_logs(logits, nodes, independent):
    """log p(node | parent), [num_nodes, batch], 0 of the root."""
    parent, first_child, num_children, first_row, _ = tf.unstack(
        nodes, num=5, axis=1
    )
    count = tf.size(parent, tf.int64)
    parents = parent[1:]
    place = tf.range(1, count) - tf.gather(first_child, parents)
    # A node has one row for two children, unless they are independent.
    has_one = (tf.gather(num_children, parents) == 2) & (not independent)
    is_second = (has_one & (place > 0))[:, tf.newaxis]
    at = tf.where(has_one, tf.zeros_like(place), place)
    at += tf.gather(first_row, parents)
    of_nodes = tf.gather(tf.transpose(logits), at)
    if independent:
        own = -tf.math.softplus(-of_nodes)
    else:
        of_nodes = tf.where(is_second, tf.zeros_like(of_nodes), of_nodes)
        top = tf.math.unsorted_segment_max(of_nodes, parents, count)
        shifted = of_nodes - tf.gather(top, parents)
        sums = tf.math.unsorted_segment_sum(tf.exp(shifted), parents, count)
        own = shifted - tf.math.log(tf.gather(sums, parents))
    return tf.concat([tf.zeros([1, tf.shape(logits)[0]]), own], axis=0)
