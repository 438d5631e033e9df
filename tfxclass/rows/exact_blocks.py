"""`ops/exact_softmax.py` for GPUs, by TensorFlow's products of blocks.

It also serves where there are no compiled ops. `bfloat16_products` leave the
logits out. A step has four products of batch x classes x dim. References: see
`rows/loss.py`; Milakov and Gimelshein, Online normalizer calculation for
softmax, 2018.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfxclass.core.softmax import empty_stats
from tfxclass.ops import norms
from tfxclass.ops.exact_softmax import ClassGradient
from tfxclass.ops.library import ops
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.blocks import fold
from tfxclass.rows.class_matrix import ClassRows


def sums(
    blocks: Blocks,
    ids: tf.Tensor,
    deltas: tf.Tensor,
    wants_rows: bool,
    bfloat16_products: bool,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """What `exact_softmax.sums` returns."""
    batch = blocks.batch
    narrow = tf.bfloat16 if bfloat16_products else tf.float32
    ones, zeros = tf.ones([batch]), tf.zeros_like(deltas)

    def step(start, top, total, of_rows):
        _, rows = blocks.read(start)
        logits = blocks.logits(start, rows)
        new_top, total = ops.tfxclass_softmax_block_stats(
            logits, ids, deltas, start, top, total
        )
        if not wants_rows:
            return new_top, total, of_rows
        # exp(-inf - -inf) is NaN, where all logits so far are -inf.
        shift = tf.where(new_top > float("-inf"), new_top, 0.0)
        weights = ops.tfxclass_softmax_block_grad(
            logits, ids, zeros, start, shift, ones, Out=narrow
        )
        faded = of_rows * tf.exp(top - shift)[:, tf.newaxis]
        return new_top, total, faded + _product(weights, rows)

    dim = blocks.class_rows.kernel.shape[1]
    of_rows = tf.zeros([batch if wants_rows else 0, dim])
    return blocks.fold(step, (*empty_stats(batch), of_rows))


class BlockGradient(ClassGradient):
    """A `ClassGradient` that is computed a block of classes at a time."""

    def dense(self, kernel: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """As `ClassGradient.dense`."""
        blocks = _blocks_of(kernel, self)

        def step(start, of_kernel, of_bias):
            of_rows, of_biases = _block_gradients(blocks, self, start)
            of_kernel = ops.tfxclass_write_rows(of_kernel, of_rows, start)
            return of_kernel, _written(of_bias, of_biases, start)

        state = tf.zeros(tf.shape(kernel)), _no_bias_grad(self)
        of_kernel, of_bias = blocks.fold(step, state)
        return of_kernel, None if self.bias is None else of_bias

    def update(
        self,
        variable: tf.Tensor,
        dtype: tf.DType,
        update_rows: Callable[[tf.Tensor, tf.Tensor], Any],
    ) -> tf.Tensor:
        """Updates class vectors; the whole gradient is never held.

        `variable` is the handle of a variable of type `dtype`. `update_rows`
        updates rows, by their ids, int64 `[n]`, and gradients, float32
        `[n, dim]`. Returns the gradient of the bias, float32 `[classes]` or
        `[0]`.
        """
        num_classes = tf.raw_ops.VariableShape(input=variable)[0]
        first_ids = tf.cast(tf.range(self.block), tf.int64)

        def step(start, of_bias):
            kernel = tf.raw_ops.ReadVariableOp(resource=variable, dtype=dtype)
            blocks = _blocks_of(kernel, self)
            of_rows, of_biases = _block_gradients(blocks, self, start)
            # An update copies a matrix that somebody still holds.
            del kernel, blocks
            ids = first_ids[: tf.shape(of_rows)[0]] + tf.cast(start, tf.int64)
            update_rows(ids, of_rows)
            return [_written(of_bias, of_biases, start)]

        # For the same reason one block comes after the other.
        state = (_no_bias_grad(self),)
        return fold(step, state, num_classes, self.block, 1)[0]


def _blocks_of(kernel, gradient):
    rows = ClassRows(kernel, gradient.bias, gradient.epsilon > 0)
    return Blocks(gradient.queries, rows, size=gradient.block)


def _block_gradients(blocks, gradient, start):
    """Gradients of a block of class vectors, and of their biases or None."""
    queries = gradient.queries
    stored, rows = blocks.read(start)
    by_logits = ops.tfxclass_softmax_block_grad(
        blocks.logits(start, rows),
        gradient.ids,
        gradient.target_grads,
        start,
        gradient.logsumexp,
        gradient.factor,
        Out=tf.bfloat16 if gradient.bfloat16_products else tf.float32,
    )
    of_rows = _product(by_logits, queries, transpose_a=True)
    of_biases = None
    if gradient.bias is not None:
        of_biases = tf.reduce_sum(tf.cast(by_logits, tf.float32), axis=0)
    if gradient.uniform:
        # All classes have the same share of the uniform mass.
        factor = gradient.uniform * gradient.factor
        of_rows -= tf.linalg.matvec(queries, factor, transpose_a=True)
        if of_biases is not None:
            of_biases -= tf.reduce_sum(factor)
    if blocks.class_rows.normalize:
        of_rows = norms.normalize_grad(stored, rows, of_rows)
    return of_rows, of_biases


def _product(weights, factor, transpose_a=False):
    """The product in the type of `weights`, as float32."""
    found = tf.matmul(
        weights, tf.cast(factor, weights.dtype), transpose_a=transpose_a
    )
    return tf.cast(found, tf.float32)


def _no_bias_grad(gradient):
    bias = gradient.bias
    return tf.zeros([0] if bias is None else tf.shape(bias))


def _written(of_bias, of_biases, start):
    if of_biases is None:
        return of_bias
    return ops.tfxclass_write_rows(of_bias, of_biases, start)
