"""The softmax over all classes in blocks of classes, by TensorFlow's products.

For GPUs, and where there are no compiled ops. `exact_softmax.py` describes the
functions; here `bfloat16_products` leave the logits out. A step has four
products of batch x classes x dim, as each pass computes a block of logits.

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
    block: Scalar,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """What `exact_softmax.sums` returns; `block` is how many classes."""
    batch = tf.shape(queries)[0]
    narrow = tf.bfloat16 if bfloat16_products else tf.float32
    ones, zeros = tf.ones([batch]), tf.zeros_like(deltas)

    def step(start, top, total, of_rows):
        _, rows = read_rows(kernel, start, block, epsilon > 0)
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

    return fold(
        step,
        (
            tf.fill([batch], float("-inf")),
            tf.zeros([batch], tf.float64),
            tf.zeros([batch if wants_rows else 0, kernel.shape[1]]),
        ),
        count_rows(kernel),
        block,
    )


def dense_gradients(
    kernel: tf.Tensor, gradient: ClassGradient
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """What `exact_softmax.dense_gradients` returns."""

    def step(start, of_kernel, of_bias):
        of_rows, of_biases = _block_gradients(kernel, gradient, start)
        of_kernel = ops.tfxclass_write_rows(of_kernel, of_rows, start)
        return of_kernel, _written(of_bias, of_biases, start)

    state = tf.zeros(tf.shape(kernel)), _no_bias_grad(gradient)
    of_kernel, of_bias = fold(step, state, count_rows(kernel), gradient.block)
    return of_kernel, None if gradient.bias is None else of_bias


def update(
    variable: tf.Tensor,
    dtype: tf.DType,
    gradient: ClassGradient,
    update_rows: Callable[[tf.Tensor, tf.Tensor], Any],
) -> tf.Tensor:
    """Updates a matrix of class vectors; the whole gradient is never held.

    `variable` is the handle of a variable of type `dtype`. `update_rows`
    updates rows, by their ids, int64 `[n]`, and gradients, float32 `[n, dim]`.
    Returns the gradient of the bias, float32 `[classes]` or `[0]`.
    """
    num_classes = tf.raw_ops.VariableShape(input=variable)[0]
    first_ids = tf.cast(tf.range(gradient.block), tf.int64)

    def step(start, of_bias):
        kernel = tf.raw_ops.ReadVariableOp(resource=variable, dtype=dtype)
        of_rows, of_biases = _block_gradients(kernel, gradient, start)
        # An update copies a matrix that somebody still holds.
        del kernel
        ids = first_ids[: tf.shape(of_rows)[0]] + tf.cast(start, tf.int64)
        update_rows(ids, of_rows)
        return [_written(of_bias, of_biases, start)]

    # For the same reason one block comes after the other.
    state = (_no_bias_grad(gradient),)
    block = gradient.block
    return fold(step, state, num_classes, block, parallel_iterations=1)[0]


def _block_gradients(kernel, gradient, start):
    """Gradients of a block of class vectors, and of their biases or None."""
    queries = gradient.queries
    is_normalized = gradient.epsilon > 0
    stored, rows = read_rows(kernel, start, gradient.block, is_normalized)
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
    if is_normalized:
        of_rows = norms.normalize_grad(stored, rows, of_rows)
    return of_rows, of_biases


def read_rows(
    kernel: tf.Tensor, start: Scalar, block: Scalar, is_normalized: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """A block of class vectors, as stored and as multiplied; float32."""
    stored = bfloat16_rows.widen(kernel[start : start + block])
    return stored, norms.normalize(stored) if is_normalized else stored


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


def count_rows(kernel: tf.Tensor) -> Scalar:
    """Rows of a matrix: int, or an int32 scalar where that is not known."""
    return kernel.shape[0] or tf.shape(kernel)[0]


def fold(
    step: Callable[..., Any],
    state: tuple[Any, ...],
    num_classes: Scalar,
    block: Scalar,
    parallel_iterations: int = 2,
) -> tuple[Any, ...]:
    """state = step(start, *state) for each block; `start` is int32.

    By default the next product is computed while the last one is read.
    """
    # TensorFlow keeps int32 in the host's memory. A loop that counts in int64
    # waits for the GPU in each iteration.
    start = tf.zeros([], tf.int32)
    are_known = isinstance(num_classes, int) and isinstance(block, int)
    if are_known and num_classes <= block:
        return tuple(step(start, *state))
    return tf.while_loop(
        lambda start, *_: start < num_classes,
        lambda start, *state: (start + block, *step(start, *state)),
        (start, *state),
        parallel_iterations=parallel_iterations,
    )[1:]
