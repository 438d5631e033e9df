"""Softmax cross-entropy over class rows that lie in several matrices."""

import itertools

import tensorflow as tf

from tfxclass.losses import softmax


def block_cross_entropy(queries, kernels, targets):
    """Cross-entropy of one softmax over the classes of all `kernels`.

    Classes are numbered through: those of the second matrix follow the first's.
    Memory is O(batch x block), as `linear_cross_entropy`'s.

    Args:
        queries: list of float32 `[batch, width_i]`: the logits of matrix i are
            `queries[i] . rows`.
        kernels: list of float32 tensors `[size_i, width_i]`, sizes known.
        targets: `Targets`.

    Returns:
        float32 `[batch]`.
    """
    count = len(kernels)
    sizes = [kernel.shape[0] for kernel in kernels]
    starts = [0, *itertools.accumulate(sizes)][:count]

    @tf.custom_gradient
    def loss_of(*inputs):
        # Out of sight of an eager tape, which would keep every block.
        inputs = [tf.stop_gradient(x) for x in inputs]
        queries, kernels = inputs[:count], inputs[count:]
        batch = tf.shape(queries[0])[0]
        blocks = [
            softmax.Blocks(kernel, None, False, batch, start)
            for kernel, start in zip(kernels, starts)
        ]
        logits = _target_logits(queries, blocks, sizes, targets.ids)
        terms = softmax.TargetTerms(logits, targets, margin=None)
        stats = softmax.empty_stats(batch)
        for part, x in zip(blocks, queries):
            stats = softmax.add_stats(stats, part, x, terms)
        logsumexp = stats[0] + tf.math.log(stats[1])

        def grad(upstream):
            grads = [
                softmax.linear_grad(part, x, terms, logsumexp, upstream, False)
                for part, x in zip(blocks, queries)
            ]
            return [g[0] for g in grads] + [g[1] for g in grads]

        return terms.loss(logsumexp), grad

    return loss_of(*queries, *kernels)


def _target_logits(queries, blocks, sizes, ids):
    logits = tf.zeros(tf.shape(ids))
    for x, part, size in zip(queries, blocks, sizes):
        row = ids - part.first_class
        is_here = (row >= 0) & (row < size)
        of_part = softmax.target_logits(
            x, part.kernel, None, False, tf.where(is_here, row, 0)
        )
        logits = tf.where(is_here, of_part, logits)
    return logits
