"""Fallbacks of passes over blocks of logits, and of sparsemax thresholds."""

import tensorflow as tf

from tfxclass.types import Scalar


def softmax_block_stats(
    logits: tf.Tensor,
    targets: tf.Tensor,
    delta: tf.Tensor,
    offset: Scalar,
    running_max: tf.Tensor,
    running_sum: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Max, and sum of exp(logit - max), of the rows so far."""
    places, raised_by = _target_places(logits, targets, delta, offset)
    logits = tf.tensor_scatter_nd_add(logits, places, raised_by)
    top = tf.maximum(tf.reduce_max(logits, axis=1), running_max)
    # A row of nothing but -inf must not become NaN.
    shift = tf.where(tf.math.is_inf(top) & (top < 0), 0.0, top)
    exp = tf.cast(tf.exp(logits - shift[:, tf.newaxis]), tf.float64)
    fade = tf.exp(tf.cast(running_max, tf.float64) - tf.cast(top, tf.float64))
    fade = tf.where(running_max == top, tf.ones_like(fade), fade)
    total = running_sum * fade + tf.reduce_sum(exp, axis=1)
    return tf.stop_gradient(top), tf.stop_gradient(total)


def softmax_block_grad(
    logits: tf.Tensor,
    targets: tf.Tensor,
    target_grad: tf.Tensor,
    offset: Scalar,
    logsumexp: tf.Tensor,
    upstream: tf.Tensor,
    Out: tf.DType = tf.float32,
) -> tf.Tensor:
    """upstream * softmax; `target_grad` at the targets."""
    shifted = tf.minimum(logits - logsumexp[:, tf.newaxis], 0.0)
    grad = upstream[:, tf.newaxis] * tf.exp(shifted)
    places, values = _target_places(logits, targets, target_grad, offset)
    grad = tf.tensor_scatter_nd_update(grad, places, values)
    return tf.stop_gradient(tf.cast(grad, Out))


def _target_places(logits, targets, values, offset):
    """Rows and columns, int64 `[n, 2]`, and values of targets in the block."""
    columns = targets - tf.cast(offset, tf.int64)
    width = tf.shape(logits, tf.int64)[1]
    inside = tf.where((targets >= 0) & (columns >= 0) & (columns < width))
    columns = tf.gather_nd(columns, inside)
    return tf.stack([inside[:, 0], columns], 1), tf.gather_nd(values, inside)


def top_k_block(
    logits: tf.Tensor, offset: Scalar, scores: tf.Tensor, ids: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The best so far merged with a block; NaN never enters."""
    columns = tf.range(tf.shape(logits, tf.int64)[1])
    columns += tf.cast(offset, tf.int64)
    is_nan = tf.math.is_nan(logits)
    all_ids = tf.where(is_nan, tf.constant(-1, tf.int64), columns)
    all_ids = tf.concat([ids, all_ids], axis=1)
    all_scores = tf.where(is_nan, float("-inf"), logits)
    all_scores = tf.concat([scores, all_scores], axis=1)
    # Padding comes after classes whose score is -inf.
    lifted = tf.maximum(all_scores, tf.float32.min)
    keys = tf.where(all_ids < 0, float("-inf"), lifted)
    _, best = tf.nn.top_k(keys, tf.shape(scores)[1])
    found = [
        tf.gather(x, best, axis=1, batch_dims=1) for x in (all_scores, all_ids)
    ]
    found_scores, found_ids = (tf.ensure_shape(x, scores.shape) for x in found)
    return tf.stop_gradient(found_scores), found_ids


def write_rows(
    buffer: tf.Tensor, rows: tf.Tensor, start: tf.Tensor
) -> tf.Tensor:
    """`buffer` with `rows` from row `start` on."""
    end = start + tf.shape(rows, tf.as_dtype(start.dtype))[0]
    written = tf.concat([buffer[:start], rows, buffer[end:]], axis=0)
    return tf.ensure_shape(written, buffer.shape)


def empty_like(like: tf.Tensor) -> tf.Tensor:
    """A tensor of that shape."""
    return tf.zeros_like(like)


def sparsemax_threshold(
    logits: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Greatest logit, threshold less that, and sum of squares of each row."""
    logits = tf.stop_gradient(logits)
    top = tf.reduce_max(logits, axis=1)
    z = tf.cast(logits, tf.float64) - tf.cast(top, tf.float64)[:, tf.newaxis]
    tau = _simplex_threshold(z)
    inside = tf.maximum(z - tau[:, tf.newaxis], 0.0)
    squares = tf.reduce_sum(inside * inside, axis=1)
    is_number = tf.math.is_finite(top) & ~tf.reduce_any(
        tf.math.is_nan(logits), axis=1
    )
    found = [tf.cast(x, tf.float32) for x in (tau, squares)]
    return top, *[tf.where(is_number, x, float("nan")) for x in found]


def _simplex_threshold(z):
    """The tau of each row whose max(z - tau, 0) sum to 1 (Michelot, 1986)."""
    z = tf.where(tf.math.is_nan(z), tf.constant(float("-inf"), z.dtype), z)

    def step(tau, before, _):
        inside = z > tau[:, tf.newaxis]
        total = tf.reduce_sum(tf.where(inside, z, 0.0), axis=1)
        count = tf.reduce_sum(tf.cast(inside, tf.float64), axis=1)
        return (total - 1) / count, count, tf.reduce_any(count < before)

    # Each pass that changes a count lowers it: this ends.
    least = tf.fill(tf.shape(z)[:1], tf.constant(-1.0, tf.float64))
    counts = tf.fill(tf.shape(z)[:1], tf.constant(float("inf"), tf.float64))
    state = least, counts, tf.constant(True)
    return tf.while_loop(lambda *x: x[2], step, state)[0]
