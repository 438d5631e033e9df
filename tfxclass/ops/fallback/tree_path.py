"""Fallbacks of the loss along the paths to labels."""

from typing import NamedTuple

import tensorflow as tf

from tfxclass.keras_internals import custom_gradient
from tfxclass.ops.fallback import class_tree
from tfxclass.ops.fallback.registry import Floats
from tfxclass.ops.fallback.registry import Ids
from tfxclass.ops.fallback.registry import check_ids
from tfxclass.ops.fallback.registry import check_number
from tfxclass.ops.fallback.registry import check_shape
from tfxclass.ops.fallback.registry import fallback
from tfxclass.ops.fallback.registry import require
from tfxclass.ops.fallback.registry import reshaped


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


@fallback(has_gradient=True)
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
    check_number("max_depth", max_depth, 1)
    _check_products(queries, kernel)
    check_shape("leaves", leaves, [None])
    check_shape("labels", labels, [tf.shape(queries)[0], None])
    check_shape("weights", weights, tf.unstack(tf.shape(labels), num=2))
    tree = class_tree.Nodes(nodes, independent)
    tree.check(tf.size(leaves, tf.int64), tf.shape(kernel, tf.int64)[0])
    weights = tf.stop_gradient(weights)
    steps = class_tree.steps_of(tree, leaves, labels, weights)

    # The op's gradient has each touched row once.
    @custom_gradient
    def loss(queries, kernel):
        found = _loss(tree, steps, queries, kernel, independent)

        def grad(upstream, *_):
            of = tree_path_grad(queries, kernel, *found[1:], upstream)
            return of.queries_grad, tf.IndexedSlices(
                of.touched_grads, of.touched, tf.shape(kernel, tf.int64)
            )

        return found, grad

    return PathLoss(*loss(queries, kernel))


def _check_products(queries, kernel):
    check_shape("queries", queries, [None, None])
    check_shape("kernel", kernel, [None, tf.shape(queries)[1]])


def _loss(tree, steps, queries, kernel, independent):
    batch = tf.shape(queries, tf.int64)[0]
    rows, owner, starts = class_tree.group_rows(tree, steps)
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
    return tf.cast(losses, tf.float32), rows, slopes, splits


def _edge_places(tree, steps, starts):
    """Positions of the edges' children among all children."""
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
    nodes, owner, first = class_tree.ragged(
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
    top = tf.math.segment_max(logits, owner)
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


@fallback
def tree_path_grad(
    queries: Floats,
    kernel: Floats,
    rows: Ids,
    slopes: Floats,
    splits: Ids,
    upstream: Floats,
) -> PathGrad:
    """The gradient of `tree_path_loss`, given what it left."""
    _check_products(queries, kernel)
    batch = tf.shape(queries, tf.int64)[0]
    check_shape("rows", rows, [None])
    check_shape("slopes", slopes, [tf.size(rows)])
    check_shape("upstream", upstream, [batch])
    check_ids("rows", rows, tf.shape(kernel)[0])
    splits = reshaped("splits", splits, [batch + 1])
    require(
        (splits[0] == 0)
        & (splits[-1] == tf.size(rows, tf.int64))
        & tf.reduce_all(splits[1:] >= splits[:-1]),
        "`splits` must rise from 0 to {}. Received: {}",
        tf.size(rows),
        splits,
    )
    samples = tf.repeat(tf.range(batch), splits[1:] - splits[:-1])
    scale = (tf.gather(upstream, samples) * slopes)[:, tf.newaxis]
    of_queries = tf.math.unsorted_segment_sum(
        scale * tf.gather(kernel, rows), samples, batch
    )
    order = tf.argsort(rows, stable=True)
    touched, place = tf.unique(tf.gather(rows, order))
    of_rows = tf.gather(scale * tf.gather(queries, samples), order)
    return PathGrad(of_queries, touched, tf.math.segment_sum(of_rows, place))
