"""Fallbacks of the softmax over all classes, a block of classes at a time."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfxclass.ops.fallback import softmax_blocks
from tfxclass.ops.fallback.registry import Floats
from tfxclass.ops.fallback.registry import Ids
from tfxclass.ops.fallback.registry import InvalidInput
from tfxclass.ops.fallback.registry import check_number
from tfxclass.ops.fallback.registry import check_shape
from tfxclass.ops.fallback.registry import fallback
from tfxclass.ops.fallback.registry import require

# Logits of a block.
_BLOCK_NUMBERS = 1 << 21


@fallback
def exact_softmax(
    queries: Floats,
    kernel: Any,
    bias: Sequence[tf.Tensor],
    targets: Ids,
    deltas: Floats,
    wants_rows: bool,
    epsilon: float = 0.0,
    bfloat16_products: bool = False,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Max, sum of exponentials, and sum of the rows that these weigh."""
    bias = [tf.convert_to_tensor(each) for each in bias]
    kernel = tf.convert_to_tensor(kernel)
    _check(queries, kernel, bias, targets, deltas, epsilon)
    batch, dim = tf.unstack(tf.shape(queries), num=2)
    blocks = _Blocks(queries, kernel, bias, epsilon)

    def step(start, top, total, rows):
        block, logits = blocks.read(start)
        above, total = softmax_blocks.softmax_block_stats(
            logits, targets, deltas, start, top, total
        )
        if wants_rows:
            shift = tf.maximum(above, tf.float32.min)
            weights = tf.exp(logits - shift[:, tf.newaxis])
            places, zeros = softmax_blocks.target_places(
                logits, targets, tf.zeros_like(deltas), start
            )
            weights = tf.tensor_scatter_nd_update(weights, places, zeros)
            fade = tf.exp(tf.maximum(top, tf.float32.min) - shift)
            rows = rows * fade[:, tf.newaxis] + weights @ block
        return above, total, rows

    empty = (
        tf.fill([batch], float("-inf")),
        tf.zeros([batch], tf.float64),
        tf.zeros([batch if wants_rows else 0, dim]),
    )
    return blocks.fold(step, empty)


@fallback
def exact_softmax_grad(
    queries: Floats,
    kernel: Any,
    bias: Sequence[tf.Tensor],
    targets: Ids,
    target_grads: Floats,
    logsumexp: Floats,
    factor: Floats,
    epsilon: float = 0.0,
    uniform: float = 0.0,
    bfloat16_products: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Gradients of kernel and bias."""
    bias = [tf.convert_to_tensor(each) for each in bias]
    kernel = tf.convert_to_tensor(kernel)
    _check(queries, kernel, bias, targets, target_grads, epsilon)
    for name, given in (("logsumexp", logsumexp), ("factor", factor)):
        check_shape(name, given, [tf.shape(queries)[0]])
    blocks = _Blocks(queries, kernel, bias, epsilon)
    lift = uniform * factor

    def step(start, of_kernel, of_bias):
        rows, logits = blocks.read(start)
        softmax = tf.exp(logits - logsumexp[:, tf.newaxis])
        grads = factor[:, tf.newaxis] * (softmax - uniform)
        places, values = softmax_blocks.target_places(
            logits, targets, target_grads - lift[:, tf.newaxis], start
        )
        grads = tf.tensor_scatter_nd_update(grads, places, values)
        of_rows = tf.matmul(grads, queries, transpose_a=True)
        of_rows = blocks.through_norms(start, rows, of_rows)
        of_kernel = softmax_blocks.write_rows(of_kernel, of_rows, start)
        if bias:
            summed = tf.reduce_sum(grads, axis=0)
            of_bias = softmax_blocks.write_rows(of_bias, summed, start)
        return of_kernel, of_bias

    empty_bias = tf.zeros([tf.shape(kernel)[0] if bias else 0])
    return blocks.fold(step, (tf.zeros(tf.shape(kernel)), empty_bias))


class _Blocks:
    """Class rows, divided by their norms where `epsilon` > 0, and logits."""

    def __init__(self, queries, kernel, bias, epsilon):
        self.queries, self.kernel = queries, tf.stop_gradient(kernel)
        self.bias, self.epsilon = bias, epsilon
        self.num_classes = tf.shape(kernel, tf.int64)[0]
        batch = tf.maximum(tf.shape(queries, tf.int64)[0], 1)
        self.size = tf.maximum(_BLOCK_NUMBERS // batch, 1)

    def _rows(self, start):
        rows = self.kernel[start : start + self.size]
        return tf.cast(rows, tf.float32)

    def _norms(self, rows):
        squares = tf.reduce_sum(rows * rows, axis=1, keepdims=True)
        return tf.sqrt(tf.maximum(squares, self.epsilon))

    def read(self, start):
        """Rows from `start` on, and the logits of these."""
        rows = self._rows(start)
        if self.epsilon > 0:
            rows = rows / self._norms(rows)
        logits = tf.matmul(self.queries, rows, transpose_b=True)
        if self.bias:
            logits += self.bias[0][start : start + self.size]
        return rows, logits

    def through_norms(self, start, normalized, grads):
        """The gradient of the rows from the one of the normalized rows."""
        if not self.epsilon > 0:
            return grads
        rows = self._rows(start)
        squares = tf.reduce_sum(rows * rows, axis=1, keepdims=True)
        along = tf.reduce_sum(grads * normalized, axis=1, keepdims=True)
        is_long = tf.cast(squares > self.epsilon, tf.float32)
        return (grads - is_long * along * normalized) / self._norms(rows)

    def fold(self, step, state):
        """The last state; `step` of the first class and the state before."""
        shapes = tuple(x.shape for x in state)
        return tf.while_loop(
            lambda start, *_: start < self.num_classes,
            lambda start, *x: (start + self.size, *step(start, *x)),
            (tf.zeros([], tf.int64), *state),
            shape_invariants=(tf.TensorShape([]), *shapes),
            parallel_iterations=1,
        )[1:]


def _check(queries, kernel, bias, targets, values, epsilon):
    check_number("epsilon", epsilon, 0)
    check_shape("queries", queries, [None, None])
    batch, dim = tf.unstack(tf.shape(queries), num=2)
    require(dim > 0, "`queries` must have 1 dimension or more. Received: 0")
    check_shape("kernel", kernel, [None, dim])
    check_shape("targets", targets, [batch, None])
    check_shape("values of the targets", values, tf.unstack(tf.shape(targets)))
    if len(bias) > 1:
        raise InvalidInput(
            f"`bias` must be one tensor or none. Received: {len(bias)}"
        )
    if bias:
        check_shape("bias", bias[0], [tf.shape(kernel)[0]])
