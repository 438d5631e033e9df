"""A tree of classes, and the steps on the way to labels.

`nodes` are int64 [num_nodes, 5]: parent, first child, number of children, first
row and class (custom_ops/core/class_tree.h).
"""

from typing import NamedTuple

import tensorflow as tf

from tfxclass.ops.fallback.registry import check_ids
from tfxclass.ops.fallback.registry import check_shape
from tfxclass.ops.fallback.registry import require

#: What is said of a tree whose nodes point elsewhere.
NO_TREE = (
    "`nodes` and `leaves` must come from a Tree of num_classes classes, for as "
    "many rows as `kernel` has. Received: nodes or leaves that point elsewhere"
)


class Nodes:
    """The columns of `nodes`, and who has which rows.

    Args:
        nodes: int64 [num_nodes, 5].
        independent: whether each child is there or not by itself.
    """

    def __init__(self, nodes: tf.Tensor, independent: bool) -> None:
        check_shape("nodes", nodes, [None, 5])
        self.count = tf.shape(nodes, tf.int64)[0]
        columns = tf.unstack(nodes, num=5, axis=1)
        self.parent, self.first_child, self.num_children = columns[:3]
        self.first_row, self.class_id = columns[3:]
        is_binary = self.num_children == 2
        #: Whether a node has one row for two children.
        self.is_binary = is_binary & (not independent)
        one = tf.ones_like(self.num_children)
        self.num_rows = tf.where(self.is_binary, one, self.num_children)

    def check(
        self, num_classes: int | tf.Tensor, num_rows: int | tf.Tensor
    ) -> None:
        """`InvalidArgumentError` unless each node may be read.

        Args:
            num_classes: of the leaves' ids.
            num_rows: of the class vectors, or the columns of logits.
        """
        place = tf.range(self.count)
        is_leaf = self.num_children == 0
        is_class = (self.class_id >= 0) & (self.class_id < num_classes)
        has_children = (
            (self.num_children > 0)
            & _is_range(
                self.first_child, self.num_children, place + 1, self.count
            )
            & _is_range(self.first_row, self.num_rows, 0, num_rows)
        )
        lowest = tf.where(place == 0, tf.constant(-1, tf.int64), 0)
        has_parent = (self.parent >= lowest) & (self.parent < place)
        sound = has_parent & tf.where(is_leaf, is_class, has_children)
        require((self.count > 0) & tf.reduce_all(sound), NO_TREE)


def _is_range(begin, size, least, end):
    """Whether the ranges lie in [least, end); no sum overflows."""
    end = tf.cast(end, tf.int64)
    return (begin >= least) & (begin <= end) & (size <= end - begin)


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
    # One more, so that there is something to gather without leaves.
    start = tf.gather(tf.concat([leaves, [0]], 0), tf.maximum(flat, 0))
    start = tf.where(flat >= 0, start, 0)
    require(
        tf.reduce_all((start >= 0) & (start < tree.count)),
        NO_TREE,
    )
    ends = tf.gather(tree.num_children, tf.boolean_mask(start, flat >= 0))
    require(tf.reduce_all(ends == 0), NO_TREE)
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
    place = children - tf.gather(tree.first_child, parents)
    size = tf.gather(tree.num_children, parents)
    require(tf.reduce_all((place >= 0) & (place < size)), NO_TREE)
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
