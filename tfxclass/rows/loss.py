"""Losses over class rows, streamed in blocks, as in cut cross-entropy.

No more than [batch, block] logits are held (Wijmans et al., Cut Your Losses in
Large-Vocabulary Language Models, 2024): the backward pass computes them again.
"""

import functools
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfxclass.core.softmax import first_order_gradients
from tfxclass.core.targets import Targets
from tfxclass.keras_internals import custom_gradient
from tfxclass.keras_internals import is_recorded
from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.rows import class_gradients
from tfxclass.rows.exact import ExactPart
from tfxclass.rows.loss_parts import OneVsRestPart
from tfxclass.rows.search import Parts
from tfxclass.shards.exchange import NO_EXCHANGE
from tfxclass.shards.exchange import ReplicaGroup
from tfxclass.types import Margin


def cross_entropy(parts: Parts, targets: Targets, **options: Any) -> tf.Tensor:
    """Cross-entropy over the classes of all parts; float32 `[batch]`.

    `options` are for `streamed_loss` and `ExactPart`. If the classes are a
    sample, their log expected counts are subtracted from logits.
    """
    corrected = []
    for queries, rows in parts:
        if rows.log_counts is not None:
            bias = (0.0 if rows.bias is None else rows.bias) - rows.log_counts
            rows = rows._replace(bias=bias, log_counts=None)
        corrected.append((queries, rows))
    return streamed_loss(
        ExactPart, corrected, targets, is_recorded=is_recorded(), **options
    )


def streamed_loss(
    kind: type[ExactPart | OneVsRestPart],
    parts: Parts,
    targets: Targets,
    columns: Sequence[tf.Tensor] | None = None,
    exchange: ReplicaGroup = NO_EXCHANGE,
    margin: Margin | None = None,
    **options: Any,
) -> tf.Tensor:
    """A loss over the classes of all parts; float32 `[batch]`.

    In a replica, queries and parts are its own: each part's numbers, some bytes
    a row and shard, are computed for the batch of all and cross, and the
    gradients of the queries are summed; the gradients of the rows stay where
    the rows are.

    Args:
        kind: what computes a part, with `options`.
        parts: all have biases or none has. Rows are read as they are.
        targets: `Targets` of the batch of all.
        columns: list of int64 `[batch of all, p]`: the row of each target in
            each part, -1 where none is; by default the row of its id.
        exchange: a batch of `tfxclass.shards`.
    """
    queries = [x for x, _ in parts]
    given = [rows.whole() for _, rows in parts]
    if columns is None:
        columns = [rows.local_ids(targets.ids) for rows in given]
    kernels = [rows.kernel for rows in given]
    biases = [rows.bias for rows in given if rows.bias is not None]

    make_part: Callable[..., Any] = functools.partial(kind, **options)
    is_by_class = kind is ExactPart and library.has_op("exact_softmax")
    # Of parts with all their rows.
    guards = [
        class_gradients.guard(rows.kernel)
        if is_by_class and rows.size is None
        else None
        for _, rows in parts
    ]
    of_rows = [rows.device for rows in given]
    # Of queries, kernels and, if there are, biases.
    devices = [None] * len(parts) + of_rows + of_rows
    losses_of_all: list[tf.Tensor] = []
    deferred: list[Any] = []

    @custom_gradient
    def loss_of(*inputs):
        # Out of sight of an eager tape, which would keep every block.
        unseen = [
            _computed_on(device, tf.stop_gradient, x)
            for device, x in zip(devices, inputs)
        ]
        queries, kernels, biases = _split_inputs(unseen, len(parts))
        queries = [exchange.gather(x) for x in queries]
        rows = [
            part._replace(kernel=kernel, bias=bias)
            for part, kernel, bias in zip(given, kernels, biases)
        ]
        # Most rows may have their targets in other parts.
        own_targets = [
            Targets(own, tf.where(own >= 0, targets.weights, 0.0))
            for own in columns
        ]
        found = [
            _computed_on(x.device, make_part, query, x, own, margin)
            for query, x, own in zip(queries, rows, own_targets)
        ]
        stats = [_computed_on(x.rows.device, x.stats) for x in found]
        losses, state = kind.merged(tf.stack(exchange.all_gather(stats)))
        is_labelled = targets.is_labelled
        # Not a product: a row without labels may have an infinite loss.
        losses = tf.where(is_labelled > 0, losses, 0.0)

        def grad(upstream):
            upstream = exchange.gather(upstream) * is_labelled
            of_each = [
                _computed_on(x.rows.device, x.grad, state, upstream)
                for x in found
            ]
            of_queries, of_kernels, of_biases = zip(*of_each)
            of_queries = [exchange.reduce_scatter(x) for x in of_queries]
            of_biases = [x for x in of_biases if x is not None]
            grads = [*of_queries, *of_kernels, *of_biases]
            first_rows = [
                _computed_on(device, lambda x: x[:1], x)
                for device, x in zip(devices, inputs)
            ]
            grads = first_order_gradients(
                "The streamed loss", grads, first_rows
            )
            # Kept by this function, which lives as long as its graph.
            deferred[:] = _deferred(found, guards, grads, losses_of_all)
            return grads

        return exchange.own(losses), grad

    device = of_rows[0] if len(set(of_rows)) == 1 else None
    losses = _computed_on(device, loss_of, *queries, *kernels, *biases)
    losses_of_all.append(losses)
    return losses


def _deferred(parts, guards, grads, losses):
    """The gradients of kernels that optimizers can have class by class."""
    count = len(parts)
    _, of_kernels, of_biases = _split_inputs(grads, count)
    # Losses and queries' gradients read the kernels: writers wait for both.
    after = [*losses, *grads[:count]]
    given = zip(of_kernels, parts, guards, of_biases)
    return [
        class_gradients.DeferredGradient(
            tensor, part.gradient, guard, of_bias, after
        )
        for tensor, part, guard, of_bias in given
        if guard is not None
    ]


def _computed_on(device, function, *arguments):
    """`function(*arguments)`, computed where rows lie."""
    with placement.on(device):
        return function(*arguments)


def _split_inputs(inputs, count):
    """Queries, kernels and biases, or as many None, of `count` parts."""
    biases = inputs[2 * count :] or [None] * count
    return inputs[:count], inputs[count : 2 * count], biases
