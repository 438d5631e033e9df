"""All classes of a head, as pairs of queries and class vectors.

A list of `(queries, ClassRows)` in the order of classes: float32 `[rows, dim]`
and the class vectors that they are multiplied with.
"""

from collections.abc import Sequence

import tensorflow as tf

from tfxclass.ops import placement
from tfxclass.rows import search
from tfxclass.rows.best import Best
from tfxclass.rows.blocks import logits_at
from tfxclass.rows.class_rows import ClassRows
from tfxclass.shards.exchange import NO_EXCHANGE
from tfxclass.shards.exchange import ReplicaGroup
from tfxclass.types import Scalar

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
    found = [search.all_logits(exchange.gather(x), rows) for x, rows in parts]
    return exchange.own_from_all(found)


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
        search.best(exchange.gather(queries), rows, k, with_logsumexp)
        for queries, rows in parts
    ]
    fields = [exchange.own_from_all(list(field)) for field in zip(*found)]
    return list(map(Best, *fields))
