"""Twins of the loss and the search in a tree of classes.

`nodes` are int64 [num_nodes, 5]: parent, first child, number of children, first
row and class (custom_ops/core/class_tree.h). A search computes the products
with all rows, where the op opens the likeliest nodes alone.
"""

from typing import NamedTuple

import tensorflow as tf

from tfxclass.ops.stock.twin import Floats
from tfxclass.ops.stock.twin import Ids
from tfxclass.ops.stock.twin import check_ids
from tfxclass.ops.stock.twin import require
from tfxclass.ops.stock.twin import twin


class PathLoss(NamedTuple):
    """The outputs of the op."""

    losses: tf.Tensor
    rows: tf.Tensor
    slopes: tf.Tensor
    splits: tf.Tensor


class PathGrad(NamedTuple):
    """The outputs of the op."""

    queries_grad: tf.Tensor
    touched: tf.Tensor
    touched_grads: tf.Tensor


class _Nodes:
    def __init__(self, nodes, independent):
        self.count = tf.shape(nodes, tf.int64)[0]
        columns = tf.unstack(nodes, num=5, axis=1)
        self.parent, self.first_child, self.num_children = columns[:3]
        self.first_row, self.class_id = columns[3:]
        is_binary = self.num_children == 2
        #: Which have one row for two children.
        self.is_binary = is_binary & (not independent)
        one = tf.ones_like(self.num_children)
        self.num_rows = tf.where(self.is_binary, one, self.num_children)


class _Steps(NamedTuple):
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


def _steps(tree, leaves, labels, weights):
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
    return _Steps(
        groups // tree.count, groups % tree.count, children, of_group, masses
    )


def _ragged(first, sizes):
    """Ranges [first, first + size), one after the other; and whose they are."""
    owner = tf.repeat(tf.range(tf.size(first, tf.int64)), sizes)
    starts = tf.cumsum(sizes, exclusive=True)
    place = tf.range(tf.size(owner, tf.int64)) - tf.gather(starts, owner)
    return tf.gather(first, owner) + place, owner, starts


def _group_rows(tree, steps):
    first = tf.gather(tree.first_row, steps.parents)
    return _ragged(first, tf.gather(tree.num_rows, steps.parents))


@twin
def tree_path_rows(
    nodes: Ids,
    leaves: Ids,
    labels: Ids,
    num_rows: Ids,
    independent: bool,
    max_depth: int = 64,
) -> tf.Tensor:
    """Rows that the loss of `labels` reads."""
    del max_depth
    tree = _Nodes(nodes, independent)
    weights = tf.zeros(tf.shape(labels))
    rows, _, _ = _group_rows(tree, _steps(tree, leaves, labels, weights))
    check_ids("rows", rows, num_rows)
    return rows


@twin(has_gradient=True)
def tree_path_loss(
    queries: Floats,
    kernel: Floats,
    nodes: Ids,
    leaves: Ids,
    labels: Ids,
    weights: Floats,
    independent: bool,
    max_depth: int = 64,
) -> PathLoss:
    """See `tfxclass.ops.class_tree.path_loss`."""
    del max_depth
    batch = tf.shape(queries, tf.int64)[0]
    require(
        (tf.shape(labels, tf.int64)[0] == batch)
        & tf.reduce_all(tf.shape(labels) == tf.shape(weights)),
        "`labels` and `weights` must have shape (batch, p). Received:",
        tf.shape(labels),
        tf.shape(weights),
    )
    tree = _Nodes(nodes, independent)
    steps = _steps(tree, leaves, labels, tf.stop_gradient(weights))
    rows, owner, starts = _group_rows(tree, steps)
    samples = tf.gather(steps.samples, owner)
    products = tf.reduce_sum(
        tf.gather(queries, samples) * tf.gather(kernel, rows), axis=1
    )
    loss_of = _independent if independent else _softmax
    terms, slopes = loss_of(tree, steps, products, starts)
    losses = tf.math.unsorted_segment_sum(*terms, batch)
    counts = tf.math.bincount(
        tf.cast(samples, tf.int32),
        minlength=tf.cast(batch, tf.int32),
        dtype=tf.int64,
    )
    splits = tf.concat([[0], tf.cumsum(counts)], axis=0)
    losses = tf.cast(losses, tf.float32)
    return PathLoss(losses, rows, tf.stop_gradient(slopes), splits)


def _edge_places(tree, steps, starts):
    """Where the children of the edges are, of all children of the groups."""
    first = tf.gather(tree.first_child, steps.parents)
    return steps.children - tf.gather(first - starts, steps.groups)


def _independent(tree, steps, products, starts):
    at = _edge_places(tree, steps, starts)[:, tf.newaxis]
    yes = tf.ones([tf.shape(at)[0]], tf.bool)
    no = tf.zeros(tf.shape(products), tf.bool)
    is_positive = tf.tensor_scatter_nd_update(no, at, yes)
    z = tf.where(is_positive, -products, products)
    slopes = tf.where(is_positive, -tf.sigmoid(z), tf.sigmoid(z))
    num_rows = tf.gather(tree.num_rows, steps.parents)
    samples = tf.repeat(steps.samples, num_rows)
    return (tf.cast(tf.math.softplus(z), tf.float64), samples), slopes


def _softmax(tree, steps, products, starts):
    num_groups = tf.size(steps.parents)
    sizes = tf.gather(tree.num_children, steps.parents)
    nodes, owner, first = _ragged(
        tf.gather(tree.first_child, steps.parents), sizes
    )
    place = tf.range(tf.size(nodes, tf.int64)) - tf.gather(first, owner)
    is_binary = tf.gather(tf.gather(tree.is_binary, steps.parents), owner)
    is_second = is_binary & (place > 0)
    zero = tf.zeros_like(place)
    at = tf.gather(starts, owner) + tf.where(is_binary, zero, place)
    logits = tf.gather(tf.cast(products, tf.float64), at)
    # The logits of two children are the product and 0.
    logits = tf.where(is_second, tf.zeros_like(logits), logits)
    top = tf.stop_gradient(tf.math.segment_max(logits, owner))
    exp = tf.exp(logits - tf.gather(top, owner))
    sums = tf.math.segment_sum(exp, owner)
    logs = logits - tf.gather(top + tf.math.log(sums), owner)
    edges = _edge_places(tree, steps, first)
    masses = tf.cast(steps.masses, tf.float64)
    terms = tf.math.multiply_no_nan(-tf.gather(logs, edges), masses)
    totals = tf.math.unsorted_segment_sum(masses, steps.groups, num_groups)
    slopes = tf.gather(totals, owner) * tf.exp(logs)
    slopes = tf.tensor_scatter_nd_sub(slopes, edges[:, tf.newaxis], masses)
    slopes = tf.cast(tf.boolean_mask(slopes, ~is_second), tf.float32)
    return (terms, tf.gather(steps.samples, steps.groups)), slopes


@twin
def tree_path_grad(
    queries: Floats,
    kernel: Floats,
    rows: Ids,
    slopes: Floats,
    splits: Ids,
    upstream: Floats,
) -> PathGrad:
    """The gradient of `tree_path_loss`, given what it left."""
    batch = tf.shape(queries, tf.int64)[0]
    samples = tf.repeat(tf.range(batch), splits[1:] - splits[:-1])
    scale = (tf.gather(upstream, samples) * slopes)[:, tf.newaxis]
    of_queries = tf.math.unsorted_segment_sum(
        scale * tf.gather(kernel, rows), samples, batch
    )
    order = tf.argsort(rows, stable=True)
    touched, place = tf.unique(tf.gather(rows, order))
    of_rows = tf.gather(scale * tf.gather(queries, samples), order)
    return PathGrad(of_queries, touched, tf.math.segment_sum(of_rows, place))


@twin(has_gradient=True)
def tree_log_probabilities(
    logits: Floats, nodes: Ids, num_classes: int, independent: bool
) -> tf.Tensor:
    """See `tfxclass.ops.class_tree.log_probabilities`."""
    tree = _Nodes(nodes, independent)
    own = _own_logs(tree, tf.transpose(logits), independent)
    # Each node's own is added to that of twice as many nodes above it.
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
        tf.size(leaves) == num_classes,
        "`nodes` must be a tree with a leaf for each class. Received leaves:",
        tf.size(leaves),
    )
    of_classes = tf.gather(leaves, tf.argsort(classes))
    found = tf.transpose(tf.gather(sums, of_classes))
    return tf.ensure_shape(found, [None, num_classes])


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


@twin
def tree_log_probabilities_grad(
    logits: Floats, nodes: Ids, upstream: Floats, independent: bool
) -> tf.Tensor:
    """The gradient of `tree_log_probabilities`."""
    with tf.GradientTape() as tape:
        tape.watch(logits)
        logs = tree_log_probabilities(
            logits, nodes, upstream.shape[1], independent
        )
    return tape.gradient(logs, logits, upstream)


@twin
def tree_top_k(
    queries: Floats,
    kernel: Floats,
    nodes: Ids,
    least: Floats,
    k: int,
    independent: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    """See `tfxclass.ops.class_tree.top_k`."""
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


def _logs_of_classes(logits, nodes, num_classes, independent):
    known = tf.get_static_value(num_classes)
    if known is None:  # not known as a graph is made
        leaves = tf.where(nodes[:, 2] == 0)[:, 0]
        known = leaves.shape[0]
    return tree_log_probabilities(logits, nodes, known, independent)
