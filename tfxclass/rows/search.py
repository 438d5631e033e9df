"""The best classes of parts, exactly, in blocks.

`tfxclass.rows.stock` does the same with TensorFlow's own ops.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfxclass.losses.softmax import empty_stats
from tfxclass.losses.softmax import logsumexp_of
from tfxclass.ops import library
from tfxclass.rows import placement
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.class_rows import ClassRows
from tfxclass.rows.read import whole
from tfxclass.types import Scalar


class Best(NamedTuple):
    """The best classes of some rows.

    Attributes:
        ids: int64 `[batch, k]`, best first, equal logits by rising id; NaN
            logits are never among them, and ids are -1 where fewer are left.
        logits: float32 `[batch, k]`.
        logsumexp: float64 `[batch, 1]`, of all classes.
    """

    ids: Any
    logits: Any
    logsumexp: Any


def best(
    queries: tf.Tensor, rows: ClassRows, k: int, with_logsumexp: bool = True
) -> Best:
    """`Best` of `ClassRows`, whose rows are read as they are.

    Args:
        queries: float32 `[batch, dim]`.
        rows: `ClassRows`.
        k: int; at most as many as `rows` has room for are returned.
        with_logsumexp: whether it is needed.
    """
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


def merge(found: Sequence[Best], k: int) -> Best:
    """One `Best` of those of consecutive parts, a list."""
    if len(found) == 1:
        return found[0]
    ids, logits, sums = (tf.concat(x, axis=1) for x in zip(*found))
    # Of equals top_k puts the first one first: the one of the lower id.
    logits, places = tf.math.top_k(logits, k)
    ids = tf.gather(ids, places, axis=1, batch_dims=1)
    return Best(ids, logits, tf.reduce_logsumexp(sums, axis=1, keepdims=True))


def top_k(
    queries: tf.Tensor, kernel: tf.Tensor, k: Scalar, normalize: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
    """`(ids, logits)` of the best rows of a matrix; `k` may be a tensor."""
    blocks = Blocks(queries, ClassRows(kernel, normalize=normalize))
    return best_of_blocks(blocks, k, with_logsumexp=False)[:2]
