"""The best classes of parts, exactly, in blocks.

`tfxclass.rows.servable_ops` does the same with TensorFlow's own ops.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfxclass.core.softmax import empty_stats
from tfxclass.core.softmax import logsumexp_of
from tfxclass.ops import library
from tfxclass.ops import placement
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
        logsumexp: `[batch, 1]`, of all classes; float64, in exports float32.
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
    """Merges the `Best` of consecutive parts, a list, into one."""
    if len(found) == 1:
        return found[0]
    ids, logits, sums = (tf.concat(x, axis=1) for x in zip(*found))
    # Among equal scores top_k takes the first one, with the lower id.
    _, places = tf.math.top_k(nan_last(logits), k)
    ids, logits = (
        tf.gather(x, places, axis=1, batch_dims=1) for x in (ids, logits)
    )
    return Best(ids, logits, tf.reduce_logsumexp(sums, axis=1, keepdims=True))


def nan_last(logits: tf.Tensor) -> tf.Tensor:
    """Logits to rank by: `tf.math.top_k` has no order for NaN."""
    lowest = tf.constant(float("-inf"), logits.dtype)
    return tf.where(tf.math.is_nan(logits), lowest, logits)


def mask_missing(
    ids: tf.Tensor, scores: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """`(ids, scores)` with id -1 and score 0 where there is no answer.

    There is none where no class was found, or where its score is NaN.
    """
    is_answer = (ids >= 0) & ~tf.math.is_nan(scores)
    return tf.where(is_answer, ids, -1), tf.where(is_answer, scores, 0.0)


def top_k(
    queries: tf.Tensor, kernel: tf.Tensor, k: Scalar, normalize: bool = False
) -> tuple[tf.Tensor, tf.Tensor]:
    """`(ids, logits)` of the best rows of a matrix; `k` may be a tensor."""
    blocks = Blocks(queries, ClassRows(kernel, normalize=normalize))
    return best_of_blocks(blocks, k, with_logsumexp=False)[:2]
