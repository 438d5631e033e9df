"""A tree of classes, and the steps on the way to labels.

`nodes` are int64 [num_nodes, 5]: parent, first child, number of children, first
row and class (custom_ops/core/class_tree.h).
"""

from typing import NamedTuple

import tensorflow as tf

from tfxclass.ops.fallback.registry import check_ids


class Nodes:
    """The columns of `nodes`, and who has which rows.

    Args:
        nodes: int64 [num_nodes, 5].
        independent: whether each child is there or not by itself.
    """

    def __init__(self, nodes: tf.Tensor, independent: bool) -> None:
        self.count = tf.shape(nodes, tf.int64)[0]
        columns = tf.unstack(nodes, num=5, axis=1)
        self.parent, self.first_child, self.num_children = columns[:3]
        self.first_row, self.class_id = columns[3:]
        is_binary = self.num_children == 2
        #: Whether a node has one row for two children.
        self.is_binary = is_binary & (not independent)
        one = tf.ones_like(self.num_children)
        self.num_rows = tf.where(self.is_binary, one, self.num_children)


class Steps(NamedTuple):
    """The nodes above labels, "groups", sample by sample, and their edges."""

    samples: tf.Tensor  # int64 [groups]
    parents: tf.Tensor  # int64 [groups]
    children: tf.Tensor  # int64 [edges], nodes
    groups: tf.Tensor  # int64 [edges]
    masses: tf.Tensor  # float32 [edges]


def _paths(tree, leaves, labels):
    """int64 [depth, labels]: the nodes above each label, then 0."""
    check_ids("labels", labels, tf.shape(leaves)[0], -1)
    flat = tf.reshape(labels, [-1])
    start = tf.where(flat >= 0, tf.gather(leaves, tf.maximum(flat, 0)), 0)
    levels = tf.TensorArray(
        tf.int64, 0, dynamic_size=True, element_shape=[None]
    )

    def up(nodes, levels):
        above = tf.maximum(tf.gather(tree.parent, nodes), 0)
        return above, levels.write(levels.size(), nodes)

    shapes = (tf.TensorShape([None]), tf.TensorShape(None))
    _, levels = tf.while_loop(
        lambda nodes, _: tf.reduce_any(nodes > 0),
        up,
        (start, levels.write(0, start)),
        shape_invariants=shapes,
        maximum_iterations=tf.cast(tree.count, tf.int32),
    )
    # The first level is there twice: where no label is, too, there is one.
    return levels.stack()[1:]


def steps_of(
    tree: Nodes, leaves: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor
) -> Steps:
    """The steps to labels int64 [batch, p] with weights; -1 is padding."""
    paths = _paths(tree, leaves, labels)
    batch, width = tf.unstack(tf.shape(labels, tf.int64))
    samples = tf.repeat(tf.range(batch), width)
    at = tf.where(paths > 0)
    nodes = tf.gather_nd(paths, at)
    keys = tf.gather(samples, at[:, 1]) * tree.count + nodes
    masses = tf.gather(tf.reshape(weights, [-1]), at[:, 1])
    order = tf.argsort(keys, stable=True)
    keys, place = tf.unique(tf.gather(keys, order))
    masses = tf.math.segment_sum(tf.gather(masses, order), place)
    children = keys % tree.count
    parents = tf.gather(tree.parent, children)
    groups, of_group = tf.unique(
        keys // tree.count * tree.count + parents, tf.int64
    )
    return Steps(
        groups // tree.count, groups % tree.count, children, of_group, masses
    )


def ragged(
    first: tf.Tensor, sizes: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Ranges [first, first + size), one after the other; whose they are;
    where each begins."""
    owner = tf.repeat(tf.range(tf.size(first, tf.int64)), sizes)
    starts = tf.cumsum(sizes, exclusive=True)
    place = tf.range(tf.size(owner, tf.int64)) - tf.gather(starts, owner)
    return tf.gather(first, owner) + place, owner, starts


def group_rows(
    tree: Nodes, steps: Steps
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The rows of the groups, as `ragged` returns them."""
    first = tf.gather(tree.first_row, steps.parents)
    return ragged(first, tf.gather(tree.num_rows, steps.parents))
