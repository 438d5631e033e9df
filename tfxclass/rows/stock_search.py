"""The best classes with TensorFlow's own ops alone, for exported graphs.

`tfxclass.rows.search` takes these functions for `ClassRows` with `is_stock`.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfxclass.ops import bfloat16_rows
from tfxclass.ops.stored_rows import StoredRows
from tfxclass.rows.best import Best
from tfxclass.rows.best import nan_last
from tfxclass.rows.blocks import LEAST_BLOCK
from tfxclass.rows.blocks import block_size
from tfxclass.rows.blocks import copied_width
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.types import Scalar

# Up to here one product and one top_k: 256 KiB of logits a query.
ONE_BLOCK_CLASSES = 65_536
# Slices of the matrix that begin and end at a multiple of 16 floats are views;
# others are copied.
_ROW_MULTIPLE = 16
# Neighbours of which the greatest is compared first.
_GROUP = 128
# Columns of a block whose size is not known beforehand.
_LEAST_OF_MANY = 8 * LEAST_BLOCK


def stored(weights: Any, store: Callable[[tf.Tensor], StoredRows]) -> Any:
    """`ClassRows` to serve, or several of them, in another form.

    `store` makes it of rows without padding: `quantize` or `in_columns`.
    """
    if isinstance(weights, ClassRows):
        kernel = tf.convert_to_tensor(weights.kernel)[: weights.num_classes]
        bias = weights.bias
        if bias is not None and weights.num_classes < weights.capacity:
            bias = tf.Variable(bias[: weights.num_classes], trainable=False)
        return weights._replace(kernel=store(kernel), bias=bias)
    if isinstance(weights, list):
        return [stored(x, store) for x in weights]
    # Trees have none.
    return weights


def block_logits(
    queries: tf.Tensor, rows: ClassRows, start: Scalar, size: Scalar
) -> tf.Tensor:
    """Logits of some classes of `ClassRows`; float32 `[batch, size]`."""
    if isinstance(rows.kernel, StoredRows):
        logits = rows.kernel.products(queries, start, size)
    else:
        part = bfloat16_rows.widen(rows.kernel[start : start + size])
        # This way round the product is up to 2.5 times faster for 4 to 16
        # queries, and about as fast for others (AVX2, with oneDNN or not).
        logits = tf.transpose(tf.matmul(part, queries, transpose_b=True))
    if rows.bias is None:
        return logits
    return logits + rows.bias[start : start + size]


def all_logits(queries: tf.Tensor, rows: ClassRows) -> tf.Tensor:
    """Logits of all classes of `ClassRows`, float32 `[batch, classes]`."""
    rows = rows.whole()
    return block_logits(queries, rows, 0, rows.num_classes)


def best(
    queries: tf.Tensor, rows: ClassRows, k: int, with_logsumexp: bool = True
) -> Best:
    """`search.best_of_rows`, of `ClassRows` that are not to be normalized."""
    rows = rows.whole()
    found = best_of_blocks(
        functools.partial(block_logits, queries, rows),
        tf.maximum(tf.shape(queries)[0], copied_width(rows)),
        rows.num_classes,
        min(k, rows.num_classes),
        with_logsumexp,
        block_of(rows),
    )
    return found._replace(ids=found.ids + rows.first) if rows.first else found


def block_of(rows: ClassRows) -> int | None:
    """Classes of a block where that does not go by the batch, else None."""
    kernel = rows.kernel
    return kernel.block if isinstance(kernel, StoredRows) else None


def best_of_blocks(
    logits_of: Callable[[Scalar, Scalar], tf.Tensor],
    batch: tf.Tensor,
    num_classes: int,
    k: int,
    with_logsumexp: bool = True,
    block: int | None = None,
) -> Best:
    """`Best` of any logits, for `k` up to `num_classes`.

    `logits_of` takes the first class of a block and how many (the last one may
    have fewer), and gives float32 `[batch, size]`. The classes of a block go by
    the batch, an int32 scalar, unless `block` tells them.
    """

    def best_of(start, size):
        return _best(logits_of(start, size), start, k, with_logsumexp)

    if num_classes <= (block or ONE_BLOCK_CLASSES):
        found = best_of(tf.zeros([], tf.int32), num_classes)
    else:
        if block:
            size = -(-k // block) * block
        else:
            size = tf.maximum(block_size(batch), k) + _ROW_MULTIPLE - 1
            size = size // _ROW_MULTIPLE * _ROW_MULTIPLE
        found = _fold(best_of, size, num_classes, k)
    ids, scores, top, total, lost = found
    logsumexp = top + tf.math.log(total + lost)
    return _without_nan(Best(ids, scores, logsumexp))


def best_of_logits(logits: tf.Tensor, k: int) -> Best:
    """`Best` of logits `[batch, num_classes]`, without the logsumexp."""
    scores, columns = top_k(logits, k)
    return _without_nan(Best(tf.cast(columns, tf.int64), scores, None))


def _without_nan(best):
    """`Best` in which a NaN logit is no class: id -1 and logit -inf."""
    is_nan = tf.math.is_nan(best.logits)
    ids = tf.where(is_nan, tf.constant(-1, tf.int64), best.ids)
    return best._replace(ids=ids, logits=nan_last(best.logits))


def _fold(best_of, size, num_classes, k):
    """`_best` of all classes, one block of `size` after the other."""
    first = best_of(tf.zeros([], tf.int32), size)
    # The batch and k, not the number of classes of a block.
    shapes = [tf.TensorShape([None, width]) for width in (k, k, 1, 1, 1)]
    first = [tf.ensure_shape(x, s) for x, s in zip(first, shapes)]

    def step(start, *best):
        return start + size, *_merge(best, best_of(start, size), k)

    return tf.while_loop(
        lambda start, *_: start < num_classes,
        step,
        (tf.convert_to_tensor(size), *first),
        shape_invariants=(tf.TensorShape([]), *shapes),
        parallel_iterations=1,
    )[1:]


def _best(logits, start, k, with_logsumexp):
    """The best of a block `[batch, n]` whose first class is `start`.

    Returns `(ids, scores, top, total, lost)`: `[batch, min(k, n)]`; max, sum of
    exp(logit - max) and what it lost by rounding, float32 `[batch, 1]`.
    """
    scores, columns = top_k(logits, k)
    top = tf.expand_dims(scores[:, 0], 1)
    total = tf.zeros_like(top)
    if with_logsumexp:
        exp = tf.exp(logits - _finite(top))
        # In pairs, says TensorFlow's source: exact to some 1e-7.
        total = tf.reduce_sum(exp, axis=1, keepdims=True)
    ids = tf.cast(start + columns, tf.int64)
    return ids, scores, top, total, tf.zeros_like(total)


def top_k(logits: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The k best columns, or all of fewer, as `tf.nn.top_k` has them; NaN last.

    Where there are many, only those groups of columns are sorted whose greatest
    are among the k best of all groups: the k best columns are in them.

    Returns `(logits, columns)`, float32 and int32 `[batch, min(k, n)]`.
    """
    columns = _best_columns(nan_last(logits), k)
    return tf.gather(logits, columns, axis=1, batch_dims=1), columns


def _best_columns(logits, k):
    """`top_k` of logits without NaN: the columns."""
    count, size = logits.shape[1], tf.shape(logits)[1]
    width = tf.minimum(k, size) if count is None else min(k, count)
    # The groups would hold nearly all columns.
    if 4 * k * _GROUP > (count or _LEAST_OF_MANY):
        return tf.nn.top_k(logits, width).indices
    groups = (size + _GROUP - 1) // _GROUP
    padding = [[0, 0], [0, groups * _GROUP - size]]
    logits = tf.pad(logits, padding, constant_values=float("-inf"))
    logits = tf.reshape(logits, [-1, groups, _GROUP])
    most = tf.reduce_max(logits, axis=2)
    kept = tf.nn.top_k(most, tf.minimum(k, groups)).indices
    # In their order: of equals the first comes first.
    kept = tf.sort(kept, axis=1)
    logits = tf.gather(logits, kept, axis=1, batch_dims=1)
    logits = tf.reshape(logits, [-1, tf.shape(kept)[1] * _GROUP])
    places = tf.nn.top_k(logits, width).indices
    columns = tf.gather(kept, places // _GROUP, axis=1, batch_dims=1)
    return columns * _GROUP + places % _GROUP


def _merge(best, block, k):
    """Merges the `Best` of lower classes with a block of higher ones."""
    # top_k puts the first of equals first, and here that is the lower id.
    scores = tf.concat([best[1], block[1]], axis=1)
    ids = tf.concat([best[0], block[0]], axis=1)
    columns = tf.nn.top_k(nan_last(scores), k).indices
    ids, scores = (
        tf.gather(x, columns, axis=1, batch_dims=1) for x in (ids, scores)
    )
    top = tf.expand_dims(scores[:, 0], 1)
    (one, lost), (other, _) = _moved(best, top), _moved(block, top)
    total = one + other
    # Thousands of float32 sums would be off by 1e-4; with this they are not
    # (Knuth's sum of two). LiteRT and ONNX have no float64 here.
    rest = total - one
    lost += (one - (total - rest)) + (other - rest)
    return ids, scores, top, total, lost


def _moved(best, top):
    """Total of `best` as one of exp(logit - top), and what it has lost."""
    factor = tf.exp(best[2] - _finite(top))
    return best[3] * factor, best[4] * factor


def _finite(top):
    """-inf - -inf would be NaN where every class so far is masked."""
    return tf.maximum(top, tf.float32.min)
