"""Fallbacks of passes over blocks of logits, and of sparsemax thresholds."""

import tensorflow as tf

from tfxclass.ops.fallback.registry import Doubles
from tfxclass.ops.fallback.registry import Floats
from tfxclass.ops.fallback.registry import Ids
from tfxclass.ops.fallback.registry import check_shape
from tfxclass.ops.fallback.registry import fallback
from tfxclass.ops.fallback.registry import require

# The greatest logits of a row, which a sparsemax looks at first.
_SUPPORT = 64


def target_places(
    logits: tf.Tensor, targets: tf.Tensor, values: tf.Tensor, offset: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """`(places, values)` of the targets that are in the block.

    Returns:
        int64 `[n, 2]`, row and column of `logits`; float32 `[n]`.
    """
    columns = targets - offset
    width = tf.shape(logits, tf.int64)[1]
    inside = tf.where((targets >= 0) & (columns >= 0) & (columns < width))
    columns = tf.gather_nd(columns, inside)
    return tf.stack([inside[:, 0], columns], 1), tf.gather_nd(values, inside)


def _check_block(logits, offset, targets, values, **of_rows):
    _check_offset(logits, offset)
    batch = tf.shape(logits)[0]
    check_shape("targets", targets, [batch, None])
    check_shape("values of the targets", values, [batch, tf.shape(targets)[1]])
    for name, x in of_rows.items():
        check_shape(name, x, [batch])


def _check_offset(logits, offset):
    check_shape("logits", logits, [None, None])
    check_shape("offset", offset, [])
    block = tf.shape(logits, tf.int64)[1]
    require(
        (offset >= 0) & (offset <= tf.int64.max - block),
        "`offset` must be in [0, 2^63 - 1 - block]. Received: {} with a block "
        "of {} classes",
        offset,
        block,
    )


@fallback
def softmax_block_stats(
    logits: Floats,
    targets: Ids,
    delta: Floats,
    offset: Ids,
    running_max: Floats,
    running_sum: Doubles,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Max, and sum of exp(logit - max), of the rows so far."""
    _check_block(
        logits,
        offset,
        targets,
        delta,
        running_max=running_max,
        running_sum=running_sum,
    )
    places, raised_by = target_places(logits, targets, delta, offset)
    logits = tf.tensor_scatter_nd_add(logits, places, raised_by)
    top = tf.maximum(tf.reduce_max(logits, axis=1), running_max)
    # A row of nothing but -inf must not become NaN.
    shift = tf.where(tf.math.is_inf(top) & (top < 0), 0.0, top)
    exp = tf.cast(tf.exp(logits - shift[:, tf.newaxis]), tf.float64)
    fade = tf.exp(tf.cast(running_max, tf.float64) - tf.cast(top, tf.float64))
    fade = tf.where(running_max == top, tf.ones_like(fade), fade)
    return top, running_sum * fade + tf.reduce_sum(exp, axis=1)


@fallback
def softmax_block_grad(
    logits: Floats,
    targets: Ids,
    target_grad: Floats,
    offset: Ids,
    logsumexp: Floats,
    upstream: Floats,
) -> tf.Tensor:
    """upstream * softmax; `target_grad` at the targets."""
    _check_block(
        logits,
        offset,
        targets,
        target_grad,
        logsumexp=logsumexp,
        upstream=upstream,
    )
    shifted = tf.minimum(logits - logsumexp[:, tf.newaxis], 0.0)
    grad = upstream[:, tf.newaxis] * tf.exp(shifted)
    places, values = target_places(logits, targets, target_grad, offset)
    return tf.tensor_scatter_nd_update(grad, places, values)


@fallback
def top_k_block(
    logits: Floats, offset: Ids, scores: Floats, ids: Ids
) -> tuple[tf.Tensor, tf.Tensor]:
    """The best so far merged with a block; NaN never enters."""
    _check_offset(logits, offset)
    check_shape("scores", scores, [tf.shape(logits)[0], None])
    batch, k = tf.unstack(tf.shape(scores))
    check_shape("ids", ids, [batch, k])
    require(k > 0, "`scores` must have a column. Received: 0")
    columns = offset + tf.range(tf.shape(logits, tf.int64)[1])
    is_nan = tf.math.is_nan(logits)
    all_ids = tf.where(is_nan, tf.constant(-1, tf.int64), columns)
    all_ids = tf.concat([ids, all_ids], axis=1)
    all_scores = tf.where(is_nan, float("-inf"), logits)
    all_scores = tf.concat([scores, all_scores], axis=1)
    # Padding comes after classes whose score is -inf.
    lifted = tf.maximum(all_scores, tf.float32.min)
    keys = tf.where(all_ids < 0, float("-inf"), lifted)
    _, best = tf.nn.top_k(keys, k)
    found = [
        tf.gather(x, best, axis=1, batch_dims=1) for x in (all_scores, all_ids)
    ]
    return tuple(tf.ensure_shape(x, scores.shape) for x in found)


@fallback
def write_rows(buffer: Floats, rows: Floats, start: Ids) -> tf.Tensor:
    """`buffer` with `rows` from row `start` on."""
    check_shape("start", start, [])
    count = tf.shape(rows, tf.int64)[0]
    require(
        (start >= 0) & (start + count <= tf.shape(buffer, tf.int64)[0]),
        "`rows` must fit in `buffer`. Received: start={}, {} rows and a buffer "
        "of shape {}",
        start,
        count,
        tf.shape(buffer),
    )
    written = tf.concat([buffer[:start], rows, buffer[start + count :]], axis=0)
    written.set_shape(buffer.shape)
    return written


@fallback
def empty_like(like: Floats) -> tf.Tensor:
    """A tensor of that shape."""
    return tf.zeros_like(like)


@fallback
def sparsemax_threshold(
    logits: Floats,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Greatest logit, threshold less that, and sum of squares of each row.

    Source: Martins and Astudillo, 2016. The threshold is found as in Michelot,
    1986: classes below it are left out until none is.
    """
    logits.shape.assert_has_rank(2)
    width = tf.shape(logits)[1]
    # Its shape as Python writes it, where it is known.
    shape = tuple(logits.shape)
    require(width > 0, f"`logits` must have a class. Received: shape {shape}")
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
    """The tau of each row whose max(z - tau, 0) sum to 1; the greatest z is 0.

    The tau of the greatest z alone is exact if it leaves one of them out, and
    too low otherwise. Rows with a NaN have any tau.
    """
    z = tf.where(tf.math.is_nan(z), tf.constant(float("-inf"), z.dtype), z)
    most = tf.minimum(tf.shape(z)[1], _SUPPORT)
    best = tf.math.top_k(z, most).values
    least = tf.fill(tf.shape(z)[:1], tf.constant(-1.0, tf.float64))
    tau = _threshold_above(least, best, tf.constant(True))
    is_short = tf.reduce_any(best[:, -1] > tau)
    return _threshold_above(tau, z, is_short)


def _threshold_above(tau, z, goes_on):
    """`tau` raised until no more classes are left out, if it `goes_on`."""

    def step(tau, before, _):
        inside = z > tau[:, tf.newaxis]
        total = tf.reduce_sum(tf.where(inside, z, 0.0), axis=1)
        count = tf.reduce_sum(tf.cast(inside, tf.float64), axis=1)
        return (total - 1) / count, count, tf.reduce_any(count < before)

    # Each pass that changes a count lowers it: this ends.
    counts = tf.fill(tf.shape(z)[:1], tf.constant(float("inf"), tf.float64))
    return tf.while_loop(lambda *x: x[2], step, (tau, counts, goes_on))[0]
