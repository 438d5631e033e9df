"""Softmax cross-entropy that reads the logits once, and in blocks.

`softmax_cross_entropy` takes logits that fit in memory (an active set);
`linear_cross_entropy` takes features and the class matrix and never holds more
than [batch, block] logits, as cut cross-entropy (Wijmans et al., 2024) does:
the forward pass keeps the log-sum-exp alone, the backward pass computes each
block of logits again.
"""

import tensorflow as tf

from tfxclass.losses import targets as targets_lib
from tfxclass.ops import library
from tfxclass.ops import products

# Logits of a block: 8 MiB of float32, about what stays in a last-level cache.
BLOCK_LOGITS = 1 << 21
# Classes of a block at least.
LEAST_BLOCK = 1024


def block_size(batch):
    """Classes a block for a batch, int64 scalar tensor."""
    batch = tf.maximum(tf.cast(batch, tf.int64), 1)
    return tf.maximum(tf.constant(BLOCK_LOGITS, tf.int64) // batch, LEAST_BLOCK)


class TargetTerms:
    """Loss and gradient at the targets, given their logits `[batch, p]`."""

    def __init__(self, logits, targets, margin):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            adjusted = logits if margin is None else margin(logits)
        self.slope = (
            tf.ones_like(logits)
            if margin is None
            else tape.gradient(adjusted, logits)
        )
        self.targets = targets
        self.adjusted = adjusted
        self.delta = tf.where(targets.ids >= 0, adjusted - logits, 0.0)

    def loss(self, logsumexp):
        # Padding has the logit of class 0, which may be infinite.
        target = tf.reduce_sum(
            tf.math.multiply_no_nan(self.adjusted, self.targets.weights), axis=1
        )
        labelled = self.targets.is_labelled
        # Not a product: a row without labels may have an infinite logsumexp.
        return tf.where(labelled > 0, logsumexp - target, 0.0)

    def grad(self, logsumexp, upstream):
        """d loss / d logit at the targets, and the factor elsewhere."""
        softmax = tf.exp(self.adjusted - logsumexp[:, tf.newaxis])
        at_targets = (softmax - self.targets.weights) * self.slope
        factor = upstream * self.targets.is_labelled
        return at_targets * upstream[:, tf.newaxis], factor


def softmax_cross_entropy(logits, targets, margin=None):
    """Cross-entropy of each row against the mean of its targets.

    Args:
        logits: float32 `[batch, n]`.
        targets: `Targets` whose ids are columns of `logits`.
        margin: function of the target logits, or None.

    Returns:
        float32 `[batch]`.
    """
    offset = tf.zeros([], tf.int64)

    @tf.custom_gradient
    def loss_of(logits):
        terms = TargetTerms(
            targets_lib.take_columns(logits, targets.ids), targets, margin
        )
        empty = empty_stats(tf.shape(logits)[0])
        top, total = library.ops.tfxclass_softmax_block_stats(
            logits, targets.ids, terms.delta, offset, *empty
        )
        logsumexp = top + tf.math.log(total)

        def grad(upstream):
            at_targets, factor = terms.grad(logsumexp, upstream)
            return library.ops.tfxclass_softmax_block_grad(
                logits, targets.ids, at_targets, offset, logsumexp, factor
            )

        return terms.loss(logsumexp), grad

    return loss_of(logits)


def empty_stats(batch):
    return tf.fill([batch], float("-inf")), tf.zeros([batch])


class Blocks:
    """The class matrix, block by block, as rows of the logits' similarity.

    Its first row is that of class `first_class`.
    """

    def __init__(self, kernel, bias, normalize, batch, first_class=0):
        self.kernel, self.bias, self.normalize = kernel, bias, normalize
        self.first_class = first_class
        self.size = block_size(batch)
        self.num_classes = tf.shape(kernel, tf.int64)[0]

    def rows(self, start):
        rows = self.kernel[start : start + self.size]
        return tf.math.l2_normalize(rows, axis=1) if self.normalize else rows

    def logits(self, queries, start, rows):
        logits = tf.matmul(queries, rows, transpose_b=True)
        if self.bias is None:
            return logits
        return logits + self.bias[start : start + self.size]

    def kernel_grad(self, start, rows, rows_grad):
        if not self.normalize:
            return rows_grad
        raw = self.kernel[start : start + self.size]
        norm = tf.norm(raw, axis=1, keepdims=True)
        along = tf.reduce_sum(rows * rows_grad, axis=1, keepdims=True)
        return tf.math.divide_no_nan(rows_grad - along * rows, norm)

    def fold(self, step, state, **options):
        """state = step(start, *state) for each block."""
        return tf.while_loop(
            lambda start, *_: start < self.num_classes,
            lambda start, *state: (start + self.size, *step(start, *state)),
            (tf.zeros([], tf.int64), *state),
            parallel_iterations=1,
            **options,
        )[1:]


def target_logits(queries, kernel, bias, normalize, ids):
    """Logits `[batch, p]` of `ids`, that of class 0 for padding."""
    safe = tf.maximum(ids, 0)
    rows = tf.gather(kernel, safe)
    rows = tf.math.l2_normalize(rows, axis=2) if normalize else rows
    logits = tf.einsum("bd,bpd->bp", queries, rows)
    return logits if bias is None else logits + tf.gather(bias, safe)


def linear_cross_entropy(
    queries, kernel, targets, bias=None, normalize=False, margin=None
):
    """Cross-entropy over all classes in O(batch x block) memory.

    Costs one product of [batch, dim] by [dim, num_classes] forward and three
    backward (the logits are computed again).

    Args:
        queries: float32 `[batch, dim]`.
        kernel: float32 tensor `[num_classes, dim]`.
        targets: `Targets`.
        bias: float32 `[num_classes]` or None.
        normalize: whether rows of `kernel` are normalised (cosine).
        margin: function of the target logits, or None.

    Returns:
        float32 `[batch]`.
    """
    has_bias = bias is not None

    @tf.custom_gradient
    def loss_of(queries, kernel, bias):
        # Out of sight of an eager tape, which would keep every block.
        queries, kernel = tf.stop_gradient(queries), tf.stop_gradient(kernel)
        bias = tf.stop_gradient(bias) if has_bias else None
        blocks = Blocks(kernel, bias, normalize, tf.shape(queries)[0])
        terms = TargetTerms(
            target_logits(queries, kernel, bias, normalize, targets.ids),
            targets,
            margin,
        )

        stats = empty_stats(tf.shape(queries)[0])
        top, total = add_stats(stats, blocks, queries, terms)
        logsumexp = top + tf.math.log(total)

        def grad(upstream):
            return linear_grad(
                blocks, queries, terms, logsumexp, upstream, has_bias
            )

        return terms.loss(logsumexp), grad

    return loss_of(queries, kernel, bias if has_bias else tf.zeros([0]))


def add_stats(stats, blocks, queries, terms):
    """`stats` with the classes of `blocks` folded in."""

    def step(start, top, total):
        logits = blocks.logits(queries, start, blocks.rows(start))
        return library.ops.tfxclass_softmax_block_stats(
            logits,
            terms.targets.ids,
            terms.delta,
            start + blocks.first_class,
            top,
            total,
        )

    return blocks.fold(step, stats)


def linear_grad(blocks, queries, terms, logsumexp, upstream, has_bias):
    """Gradients of the loss by queries, kernel and bias of `blocks`."""
    at_targets, factor = terms.grad(logsumexp, upstream)

    def step(start, queries_grad, kernel_grad, bias_grad):
        rows = blocks.rows(start)
        logits_grad = library.ops.tfxclass_softmax_block_grad(
            blocks.logits(queries, start, rows),
            terms.targets.ids,
            at_targets,
            start + blocks.first_class,
            logsumexp,
            factor,
        )
        rows_grad = products.rows_grad(logits_grad, queries)
        kernel_grad = library.ops.tfxclass_write_rows(
            kernel_grad, blocks.kernel_grad(start, rows, rows_grad), start
        )
        if has_bias:
            bias_grad = library.ops.tfxclass_write_rows(
                bias_grad, tf.reduce_sum(logits_grad, axis=0), start
            )
        return queries_grad + logits_grad @ rows, kernel_grad, bias_grad

    empty = library.ops.tfxclass_empty_like
    return blocks.fold(
        step,
        (
            tf.zeros_like(queries),
            empty(blocks.kernel),
            empty(blocks.bias) if has_bias else tf.zeros([0]),
        ),
    )
