"""The logits and the best classes of `ClassRows`, exactly, in blocks."""

import tensorflow as tf

from tfxclass.core.softmax import empty_stats
from tfxclass.core.softmax import logsumexp_of
from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.rows import products
from tfxclass.rows import stock_search
from tfxclass.rows.best import Best
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.class_rows import ClassRows
from tfxclass.rows.read import whole
from tfxclass.types import Scalar


def all_logits(queries: tf.Tensor, rows: ClassRows) -> tf.Tensor:
    """Logits of all classes of `ClassRows`, float32 `[batch, classes]`."""
    if rows.is_stock:
        return stock_search.all_logits(queries, rows)
    with placement.on(rows.device):
        return products.all_products(queries, whole(rows))


def best(
    queries: tf.Tensor, rows: ClassRows, k: int, with_logsumexp: bool = True
) -> Best:
    """`Best` of `ClassRows`.

    Args:
        queries: float32 `[batch, dim]`.
        rows: `ClassRows`.
        k: int; at most as many as `rows` has room for are returned.
        with_logsumexp: whether it is needed.
    """
    if rows.is_stock:
        return stock_search.best(queries, rows, k, with_logsumexp)
    with placement.on(rows.device):
        return best_of_blocks(
            Blocks(queries, whole(rows)),
            min(k, rows.capacity),
            with_logsumexp,
            rows.first,
        )


def best_of_blocks(
    blocks: Blocks, k: Scalar, with_logsumexp: bool = True, first: int = 0
) -> Best:
    """`Best` of blocks of logits.

    Args:
        blocks: `Blocks`, or what has its `batch`, `logits` and `fold`.
        k: int.
        with_logsumexp: whether it is needed.
        first: int, class of the first row.
    """
    batch = blocks.batch
    nothing = tf.fill([batch, 1], tf.constant(-1, tf.int64))
    no_delta = tf.zeros([batch, 1])

    def step(start, scores, ids, top, total):
        logits = blocks.logits(start)
        scores, ids = library.ops.tfxclass_top_k_block(
            logits, start, scores, ids
        )
        if with_logsumexp:
            top, total = library.ops.tfxclass_softmax_block_stats(
                logits, nothing, no_delta, start, top, total
            )
        return scores, ids, top, total

    scores, ids, top, total = blocks.fold(
        step,
        (
            tf.fill([batch, k], float("-inf")),
            tf.fill([batch, k], tf.constant(-1, tf.int64)),
            *empty_stats(batch),
        ),
    )
    ids = tf.where(ids >= 0, ids + first, ids) if first else ids
    return Best(ids, scores, logsumexp_of(top, total)[:, tf.newaxis])


def best_of_logits(logits: tf.Tensor, k: int) -> Best:
    """`Best` of logits `[batch, num_classes]`, without the logsumexp."""
    batch = tf.shape(logits)[0]
    scores, ids = library.ops.tfxclass_top_k_block(
        logits,
        tf.zeros([], tf.int64),
        tf.fill([batch, k], float("-inf")),
        tf.fill([batch, k], tf.constant(-1, tf.int64)),
    )
    return Best(ids, scores, None)


def top_k(
    queries: tf.Tensor, kernel: tf.Tensor, k: Scalar, normalize: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
    """`(ids, logits)` of the best rows of a matrix; `k` may be a tensor."""
    blocks = Blocks(queries, ClassRows(kernel, normalize=normalize))
    return best_of_blocks(blocks, k, with_logsumexp=False)[:2]
