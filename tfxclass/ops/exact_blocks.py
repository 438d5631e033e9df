"""The softmax over all classes in blocks of classes, by TensorFlow's products.

For GPUs, and where there are no compiled ops. `exact_softmax.py` describes the
arguments; here `bfloat16_products` leave the logits out.

A step has four products of batch x classes x dim, whatever `dim` is. The first
pass computes a block of logits, and the sum of the class vectors weighted by
them. The second pass computes the logits again, and the gradient of the block.
No more than a block of logits and of class vectors is held.

Loops count in int32, which TensorFlow keeps in the memory of the host. A loop
that counts in int64 waits for the GPU in each iteration.

References: Wijmans et al., Cut Your Losses in Large-Vocabulary Language Models,
2024; Milakov and Gimelshein, Online normalizer calculation for softmax, 2018.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfxclass.ops import bfloat16_rows
from tfxclass.ops import norms
from tfxclass.ops.exact_softmax import ClassGradient
from tfxclass.ops.library import ops
from tfxclass.types import Scalar

#: Numbers of a block of logits, and of class vectors, on a GPU: 256 MiB.
BLOCK_NUMBERS = 1 << 26
#: Classes of a block at least.
LEAST_BLOCK = 1024


def sums(
    queries: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor | None,
    ids: tf.Tensor,
    deltas: tf.Tensor,
    *,
    epsilon: float,
    wants_rows: bool,
    bfloat16_products: bool = False,
    block_numbers: int = 0,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """What `exact_softmax.sums` returns.

    `block_numbers` is the size of a block, `BLOCK_NUMBERS` if it is 0.
    """
    size = block_size(queries, block_numbers)
    batch = tf.shape(queries)[0]
    narrow = tf.bfloat16 if bfloat16_products else tf.float32
    ones, zeros = tf.ones([batch]), tf.zeros_like(deltas)

    def step(start, top, total, of_rows):
        _, rows = _read_rows(kernel, start, size, epsilon)
        logits = _logits(queries, rows, bias, start)
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

    return _fold(
        step,
        (
            tf.fill([batch], float("-inf")),
            tf.zeros([batch], tf.float64),
            tf.zeros([batch if wants_rows else 0, kernel.shape[1]]),
        ),
        _count(kernel),
        size,
    )


def dense_gradients(
    kernel: tf.Tensor, gradient: ClassGradient
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """What `exact_softmax.dense_gradients` returns."""
    size = block_size(gradient.queries, gradient.block_numbers)

    def step(start, of_kernel, of_bias):
        of_rows, of_biases = _block_gradients(kernel, gradient, start, size)
        of_kernel = ops.tfxclass_write_rows(of_kernel, of_rows, start)
        return of_kernel, _written(of_bias, of_biases, start)

    state = tf.zeros(tf.shape(kernel)), _no_bias_grad(gradient)
    of_kernel, of_bias = _fold(step, state, _count(kernel), size)
    return of_kernel, None if gradient.bias is None else of_bias


def update(
    variable: tf.Tensor,
    dtype: tf.DType,
    gradient: ClassGradient,
    update_rows: Callable[[tf.Tensor, tf.Tensor], Any],
) -> tf.Tensor:
    """Updates a matrix of class vectors; the whole gradient is never held.

    Args:
        variable: handle of the variable, of type `dtype`.
        update_rows: function of ids, int64 `[n]`, and of their gradients,
            float32 `[n, dim]`, which updates these rows.

    Returns:
        The gradient of the bias, float32 `[classes]` or `[0]`.
    """
    size = block_size(gradient.queries, gradient.block_numbers)
    num_classes = tf.raw_ops.VariableShape(input=variable)[0]
    first_ids = tf.cast(tf.range(size), tf.int64)

    def step(start, of_bias):
        kernel = tf.raw_ops.ReadVariableOp(resource=variable, dtype=dtype)
        of_rows, of_biases = _block_gradients(kernel, gradient, start, size)
        # An update copies a matrix that somebody still holds.
        del kernel
        ids = first_ids[: tf.shape(of_rows)[0]] + tf.cast(start, tf.int64)
        update_rows(ids, of_rows)
        return [_written(of_bias, of_biases, start)]

    # For the same reason one block comes after the other.
    state = (_no_bias_grad(gradient),)
    return _fold(step, state, num_classes, size, parallel_iterations=1)[0]


def block_size(queries: tf.Tensor, block_numbers: int = 0) -> Scalar:
    """Classes of a block, int or int32 scalar tensor."""
    batch, dim = queries.shape
    block_numbers = block_numbers or BLOCK_NUMBERS
    if batch is not None:
        return max(block_numbers // max(batch, dim), LEAST_BLOCK)
    most = tf.maximum(tf.shape(queries)[0], dim)
    return tf.maximum(block_numbers // most, LEAST_BLOCK)


def _block_gradients(kernel, gradient, start, size):
    """Gradients of a block of class vectors, and of their biases or None."""
    queries = gradient.queries
    stored, rows = _read_rows(kernel, start, size, gradient.epsilon)
    by_logits = ops.tfxclass_softmax_block_grad(
        _logits(queries, rows, gradient.bias, start),
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
    if gradient.epsilon > 0:
        of_rows = norms.normalize_grad(stored, rows, of_rows)
    return of_rows, of_biases


def _read_rows(kernel, start, size, epsilon):
    """A block of class vectors, as stored and as multiplied; float32."""
    stored = bfloat16_rows.widen(kernel[start : start + size])
    return stored, norms.normalize(stored) if epsilon > 0 else stored


def _logits(queries, rows, bias, start):
    logits = tf.matmul(queries, rows, transpose_b=True)
    if bias is None:
        return logits
    return logits + bias[start : start + tf.shape(rows)[0]]


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


def _count(kernel):
    return kernel.shape[0] or tf.shape(kernel)[0]


def _fold(step, state, num_classes, size, parallel_iterations=2):
    """state = step(start, *state) for each block."""
    start = tf.zeros([], tf.int32)
    are_known = isinstance(num_classes, int) and isinstance(size, int)
    if are_known and num_classes <= size:
        return tuple(step(start, *state))
    return tf.while_loop(
        lambda start, *_: start < num_classes,
        lambda start, *state: (start + size, *step(start, *state)),
        (start, *state),
        parallel_iterations=parallel_iterations,
    )[1:]
