"""Softmax cross-entropy over class rows, streamed in blocks.

No more than [batch, block] logits are held, as in cut cross-entropy (Wijmans
et al., Cut Your Losses in Large-Vocabulary Language Models, 2024): the forward
pass keeps the log-sum-exp alone, the backward pass computes each block of
logits again. Costs one product of [batch, dim] by [dim, num_classes] forward
and three backward.
"""

from collections.abc import Sequence

import tensorflow as tf

from tfxclass.keras_internals import custom_gradient
from tfxclass.keras_internals import is_recorded
from tfxclass.losses import first_order
from tfxclass.losses.softmax import TargetTerms
from tfxclass.losses.softmax import empty_stats
from tfxclass.losses.softmax import log_ratio
from tfxclass.losses.softmax import logsumexp_of
from tfxclass.losses.targets import Targets
from tfxclass.ops import library
from tfxclass.optimizers import class_gradients
from tfxclass.rows import half_rows
from tfxclass.rows import placement
from tfxclass.rows import products
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.blocks import logits_at
from tfxclass.rows.class_rows import ClassRows
from tfxclass.rows.exact import ExactPart
from tfxclass.rows.read import whole
from tfxclass.shards.exchange import ALONE
from tfxclass.shards.exchange import Batch
from tfxclass.types import Margin


def cross_entropy(
    parts: Sequence[tuple[tf.Tensor, ClassRows]],
    targets: Targets,
    columns: Sequence[tf.Tensor] | None = None,
    exchange: Batch = ALONE,
    margin: Margin | None = None,
    uniform: float = 0.0,
) -> tf.Tensor:
    """Cross-entropy over the classes of all parts; float32 `[batch]`.

    In a replica, queries and parts are its own: each part's max and sum of
    exponentials are computed for the batch of all, 12 bytes a row and shard
    cross, and the gradients of the queries are summed; those of the rows stay
    where the rows are.

    Args:
        parts: list of `(queries, ClassRows)`, float32 `[batch, width_i]`; all
            have biases or none has. Rows are read as they are.
        targets: `Targets` of the batch of all.
        columns: list of int64 `[batch of all, p]`: which row of each part is
            that of each target, -1 where none is; by default that of its id.
        exchange: a batch of `tfxclass.shards`.
        margin: function of the target logits, or None.
        uniform: float, mass of each class beside that of the targets.
    """
    queries = [x for x, _ in parts]
    given = [whole(rows) for _, rows in parts]
    if columns is None:
        columns = [rows.local_ids(targets.ids) for rows in given]
    kernels = [rows.kernel for rows in given]
    biases = [rows.bias for rows in given if rows.bias is not None]

    part_of, has_tape = _part_of(), is_recorded()
    watches = [
        class_gradients.watch(rows.kernel)
        if part_of is ExactPart and rows.size is None
        else None
        for _, rows in parts
    ]

    @custom_gradient
    def loss_of(*inputs):
        # Out of sight of an eager tape, which would keep every block.
        unseen = _there(tf.stop_gradient, inputs, given)
        queries, kernels, biases = _cut(unseen, len(parts))
        found = [
            part_of(
                exchange.gather(x),
                rows._replace(kernel=kernel, bias=bias),
                uniform,
                has_tape,
            )
            for x, rows, kernel, bias in zip(queries, given, kernels, biases)
        ]
        for part, own in zip(found, columns):
            part.find_targets(targets, own, margin)
        stats = exchange.from_all([part.stats() for part in found])
        logsumexp, target = _merged(tf.stack(stats))
        # Not a product: a row without labels may have an infinite logsumexp.
        losses = log_ratio(logsumexp, target)
        losses = tf.where(targets.is_labelled > 0, losses, 0.0)

        def grad(upstream):
            upstream = exchange.gather(upstream)
            of_queries, of_kernels, of_biases = zip(
                *[part.grad(logsumexp, upstream) for part in found]
            )
            of_queries = [exchange.sum_own(x) for x in of_queries]
            of_biases = [x for x in of_biases if x is not None]
            grads = [*of_queries, *of_kernels, *of_biases]
            first_rows = _there(lambda x: x[:1], inputs, given)
            grads = first_order.gradients(
                "The streamed loss", grads, first_rows
            )
            _promise(found, watches, grads, losses_of_all)
            return grads

        return exchange.own(losses), grad

    losses_of_all = []
    with placement.on(_common_device(given)):
        losses_of_all.append(loss_of(*queries, *kernels, *biases))
    return losses_of_all[0]


def _part_of():
    """The class of the parts: on a CPU there is a shorter way."""
    return _BlocksPart if placement.has_gpu() else ExactPart


def _promise(parts, watches, grads, losses):
    """Tells optimizers that gradients of kernels can be had class by class."""
    count = len(parts)
    _, of_kernels, of_biases = _cut(grads, count)
    # Losses and queries' gradients read the kernels: writers wait for both.
    after = [*losses, *grads[:count]]
    for part, watch, kernel, bias in zip(parts, watches, of_kernels, of_biases):
        if watch is not None:
            promise = class_gradients.Promise(part.gradient, watch, bias, after)
            class_gradients.attach(kernel, promise)


def _common_device(parts):
    """That of all parts, str; None where they have several."""
    devices = {rows.device for rows in parts}
    return devices.pop() if len(devices) == 1 else None


def _there(function, inputs, parts):
    """`function` of each input, computed where its part's rows lie."""
    devices = [rows.device for rows in parts]
    # Queries, kernels and, if there are, biases.
    devices = [None] * len(parts) + 2 * devices
    found = []
    for x, device in zip(inputs, devices):
        with placement.on(device):
            found.append(function(x))
    return found


def _cut(inputs, count):
    """Queries, kernels and biases, or as many None, of `count` parts."""
    biases = inputs[2 * count :] or [None] * count
    return inputs[:count], inputs[count : 2 * count], biases


class _BlocksPart:
    """As `ExactPart`, with TensorFlow's products of blocks of classes."""

    def __init__(self, queries, rows, uniform, is_recorded):
        self.queries, self.rows, self.uniform = queries, rows, uniform
        with self._there():
            self.blocks = Blocks(queries, rows)

    def _there(self):
        return placement.on(self.rows.device)

    def find_targets(self, targets, columns, margin):
        with self._there():
            logits = logits_at(self.queries, self.rows, columns)
        # Most rows may have their targets in other parts.
        weights = tf.where(columns >= 0, targets.weights, 0.0)
        self.is_labelled = targets.is_labelled
        self.terms = TargetTerms(logits, Targets(columns, weights), margin)

    def stats(self):
        """Max, sum of exponentials and target; float32 `[batch of all, 3]`."""
        with self._there():
            top, total = add_stats(
                empty_stats(self.blocks.batch), self.blocks, self.terms
            )
        # Of a finished sum float32 loses nothing that shows.
        total = tf.cast(total, tf.float32)
        target = self.terms.weighted() + self._uniform_logits()
        return tf.stack([top, total, target], axis=1)

    def _uniform_logits(self):
        """The sum of all logits times their mass, `[batch of all]`."""
        if not self.uniform:
            return 0.0
        with self._there():
            kernel, bias = self.blocks.sum_of_rows()
            return self.uniform * (
                tf.linalg.matvec(self.queries, kernel) + bias
            )

    def grad(self, logsumexp, upstream):
        """Gradients of the queries, the rows and, or None, the bias."""
        with self._there():
            at_targets = self.terms.grad(logsumexp, upstream)
            factor = upstream * self.is_labelled
            logsumexp = tf.cast(logsumexp, tf.float32)
            lift = factor * self.uniform if self.uniform else None
            return _grad(
                self.blocks, self.terms, at_targets, logsumexp, factor, lift
            )


def add_stats(
    stats: tuple[tf.Tensor, tf.Tensor], blocks: Blocks, terms: TargetTerms
) -> tuple[tf.Tensor, tf.Tensor]:
    """`stats` with the classes of `blocks` folded in."""

    def step(start, top, total):
        return library.ops.tfxclass_softmax_block_stats(
            blocks.logits(start),
            terms.targets.ids,
            terms.delta,
            start,
            top,
            total,
        )

    return blocks.fold(step, stats)


def _grad(blocks, terms, at_targets, logsumexp, factor, lift):
    """Gradients of the loss by queries, kernel and bias of `blocks`.

    `lift` is what the uniform mass takes off the gradient of each logit of a
    row, or None.
    """
    rows = blocks.class_rows
    has_bias = rows.bias is not None
    empty = library.ops.tfxclass_empty_like

    def step(start, queries_grad, kernel_grad, bias_grad):
        part = blocks.rows(start)
        logits_grad = library.ops.tfxclass_softmax_block_grad(
            blocks.logits(start, part),
            terms.targets.ids,
            at_targets,
            start,
            logsumexp,
            factor,
        )
        if lift is not None:
            logits_grad -= lift[:, tf.newaxis]
        rows_grad = products.rows_grad(logits_grad, blocks.queries)
        kernel_grad = library.ops.tfxclass_write_rows(
            kernel_grad, blocks.kernel_grad(start, part, rows_grad), start
        )
        if has_bias:
            bias_grad = library.ops.tfxclass_write_rows(
                bias_grad, tf.reduce_sum(logits_grad, axis=0), start
            )
        return queries_grad + logits_grad @ part, kernel_grad, bias_grad

    found = blocks.fold(
        step,
        (
            tf.zeros_like(blocks.queries),
            _empty_rows(rows.kernel),
            empty(rows.bias) if has_bias else tf.zeros([0]),
        ),
    )
    return found if has_bias else (*found[:2], None)


def _merged(stats):
    """`(logsumexp, target)`, `[batch]`, of stats `[parts, batch, 3]`."""
    tops, totals, targets = tf.unstack(stats, num=3, axis=2)
    sums = logsumexp_of(tops, totals)
    return tf.reduce_logsumexp(sums, axis=0), tf.reduce_sum(targets, axis=0)


def _empty_rows(kernel):
    """float32 of its shape, to be written."""
    if half_rows.is_half(kernel):
        return tf.zeros(tf.shape(kernel))
    return library.ops.tfxclass_empty_like(kernel)
