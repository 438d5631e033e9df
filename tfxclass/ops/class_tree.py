"""Loss and search in a tree of classes.

In all functions:
    queries: float32 `[batch, dim]`.
    nodes: int64 `[num_nodes, 5]`, `Tree.nodes(independent)`.
    leaves: int64 `[num_classes]`, `Tree.leaves`.
    kernel: float32 `[num_rows, dim]`, the weights of the nodes.
    independent: bool, whether each child of a node is there or not by itself,
        as in a probabilistic label tree; else one of them is.

`tf.errors.InvalidArgumentError` for shapes that do not fit, labels out of
range and arrays that are no tree.
"""

import tensorflow as tf

from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.types import Scalar

for _name in ("TreePathGrad", "TreeTopK"):
    tf.no_gradient("Tfxclass>" + _name)


def path_loss(
    queries: tf.Tensor,
    kernel: tf.Tensor,
    nodes: tf.Tensor,
    leaves: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor,
    independent: bool,
    max_depth: int = 64,
) -> tf.Tensor:
    """The loss along the paths from the root to the labels, float32 `[batch]`.

    It is `-sum of weight * log p(label)`; if independent the sum of the binary
    losses of all children of the nodes that have a label below them, whatever
    the weights. Costs O(depth) products a label, and so does the gradient, in
    which `kernel` has `tf.IndexedSlices` of the rows touched.

    `labels` are int64 `[batch, p]`, padded with -1, and `weights` float32 of
    this shape. `max_depth` is the most edges from the root to a class,
    `Tree.depths().max()`; only the GPU has to know.
    """
    return library.ops.tfxclass_tree_path_loss(
        queries,
        kernel,
        nodes,
        leaves,
        labels,
        weights,
        independent=independent,
        max_depth=max_depth,
    ).losses


@tf.RegisterGradient("Tfxclass>TreePathLoss")
def _path_loss_grad(op, upstream, *_):
    queries, kernel = op.inputs[:2]
    losses, rows, slopes, splits = op.outputs
    # Where the loss was: the rows may be on another machine.
    with placement.on(losses.device or None):
        grads = library.ops.tfxclass_tree_path_grad(
            queries, kernel, rows, slopes, splits, upstream
        )
    of_kernel = tf.IndexedSlices(
        grads.touched_grads, grads.touched, tf.shape(kernel, tf.int64)
    )
    return grads.queries_grad, of_kernel, None, None, None, None


def top_k(
    queries: tf.Tensor,
    kernel: tf.Tensor,
    nodes: tf.Tensor,
    k: Scalar,
    independent: bool,
    threshold: float = 0.0,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The likeliest classes, exactly, by a best-first search of the tree.

    Returns `(ids, log_probabilities)`, int64 and float32 `[batch, k]`, best
    first, equals by rising id; -1 and -inf past the classes found. No class is
    less likely than `threshold`.
    """
    return library.ops.tfxclass_tree_top_k(
        queries,
        kernel,
        nodes,
        tf.math.log(tf.constant(threshold, tf.float32)),
        k=k,
        independent=independent,
    )


def log_probabilities(
    logits: tf.Tensor, nodes: tf.Tensor, num_classes: int, independent: bool
) -> tf.Tensor:
    """Log-probabilities, float32 `[batch, num_classes]`.

    They come of `logits`, products with all rows, float32 `[batch, num_rows]`.
    """
    ops = placement.ops_for(logits, library.inference_ops())
    return ops.tfxclass_tree_log_probabilities(
        logits, nodes, num_classes=num_classes, independent=independent
    )


@tf.RegisterGradient("Tfxclass>TreeLogProbabilities")
def _log_probabilities_grad(op, upstream):
    logits, nodes = op.inputs
    grad = library.ops.tfxclass_tree_log_probabilities_grad(
        logits, nodes, upstream, independent=op.get_attr("independent")
    )
    return grad, None
