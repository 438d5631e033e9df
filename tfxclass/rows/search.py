"""Logits and the best classes of parts, exactly, in blocks."""

from collections.abc import Sequence

import tensorflow as tf

from tfxclass.core.softmax import empty_stats
from tfxclass.core.softmax import logsumexp_of
from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.rows import stock_search
from tfxclass.rows.best import Best
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.blocks import logits_at
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.shards.exchange import NO_EXCHANGE
from tfxclass.shards.exchange import ReplicaGroup
from tfxclass.types import Scalar

#: All classes of a head in order: queries, float32 `[rows, dim]`, and the class
#: vectors that they are multiplied with.
Parts = Sequence[tuple[tf.Tensor, ClassRows]]


def scaled(parts: Parts, factor: Scalar) -> Parts:
    """Parts whose logits are the logits of `parts` times a number."""
    found = []
    for queries, rows in parts:
        if rows.bias is not None:
            bias = factor * tf.convert_to_tensor(rows.bias)
            rows = rows._replace(bias=bias)
        found.append((factor * queries, rows))
    return found


def logits(
    parts: Parts, exchange: ReplicaGroup = NO_EXCHANGE
) -> list[tf.Tensor]:
    """Logits of all classes of each part, float32 `[rows, classes]`."""
    found = [_all_logits(exchange.gather(x), rows) for x, rows in parts]
    return exchange.own_from_all(found)


def _all_logits(queries, rows):
    if rows.is_stock:
        return stock_search.all_logits(queries, rows)
    with placement.on(rows.device):
        return rows.products(queries)


def logits_of(parts: Parts, ids: tf.Tensor) -> tf.Tensor:
    """Logits of classes `ids`, `[rows, q]`: any number where an id is -1."""
    found = tf.zeros(tf.shape(ids))
    for queries, rows in parts:
        local = rows.local_ids(ids)
        with placement.on(rows.device):
            here = logits_at(queries, rows, local)
        found = tf.where(local >= 0, here, found)
    return found


def best(
    parts: Parts,
    k: int,
    with_logsumexp: bool = True,
    exchange: ReplicaGroup = NO_EXCHANGE,
) -> list[Best]:
    """`Best` of each part."""
    found = [
        best_of_rows(exchange.gather(queries), rows, k, with_logsumexp)
        for queries, rows in parts
    ]
    fields = [exchange.own_from_all(list(field)) for field in zip(*found)]
    return list(map(Best, *fields))


def best_of_rows(
    queries: tf.Tensor, rows: ClassRows, k: int, with_logsumexp: bool = True
) -> Best:
    """`Best` of one part, of as many classes at most as it has room for."""
    if rows.is_stock:
        return stock_search.best(queries, rows, k, with_logsumexp)
    with placement.on(rows.device):
        return best_of_blocks(
            Blocks(queries, rows.whole()),
            min(k, rows.capacity),
            with_logsumexp,
            rows.first,
        )


def best_of_blocks(
    blocks: Blocks, k: Scalar, with_logsumexp: bool = True, first: int = 0
) -> Best:
    """`Best` of `Blocks`, whose first row is the class `first`."""
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
        tf.zeros([], tf.int32),
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
