"""The probability that hash tables find a class, and its weight."""

import math
from typing import Any

import tensorflow as tf

from tfxclass.samplers.sampler import Sample
from tfxclass.types import Scalar


def collision_probability(cosine: tf.Tensor) -> tf.Tensor:
    """Collision probability of a SimHash function: 1 - angle / pi."""
    return 1.0 - tf.acos(tf.clip_by_value(cosine, -1.0, 1.0)) / math.pi


def cosines(queries: tf.Tensor, rows: tf.Tensor, norm: tf.Tensor) -> tf.Tensor:
    """Cosines by which functions collide, float32 `[batch, p, n]`.

    They are of `queries` `[batch, p, dim]` and `rows` `[n, dim]`. `norm` is a
    scalar: the norm of the rows with their extra coordinate, or 0 without one.
    """
    queries = tf.math.l2_normalize(queries, axis=-1)
    rows = tf.cond(
        norm > 0,
        lambda: rows / norm,
        lambda: tf.math.l2_normalize(rows, axis=-1),
    )
    return tf.einsum("bpd,nd->bpn", queries, rows)


def log_not_found(
    cosine: tf.Tensor,
    num_hashes: int,
    num_tables: Scalar,
    least_votes: Scalar = 1,
    last_fraction: float | tf.Tensor = 1.0,
) -> tf.Tensor:
    """log P(a query does not keep a class), votes ~ Binomial(t, p^K).

    A class is kept with more than `least_votes`, and with as many in the
    fraction f of the cases (`last_fraction`). For one vote and f = 1 that is
    t log(1 - p^K). `num_tables` is the number t of tables that were read, and
    may be 0; `cosine` is between query and class.
    """
    in_table = collision_probability(cosine) ** num_hashes
    tables = tf.cast(num_tables, tf.float32)
    least = tf.cast(least_votes, tf.float32)
    found = last_fraction * _at_least(least, tables, in_table)
    found += (1.0 - last_fraction) * _at_least(least + 1.0, tables, in_table)
    # Exact for one vote, even where float32 rounds P to 1.
    whole = tf.math.multiply_no_nan(tf.math.log1p(-in_table), tables)
    return tf.where(
        tf.logical_and(least <= 1.0, last_fraction >= 1.0),
        whole,
        tf.math.log1p(-tf.minimum(found, 1.0)),
    )


def _at_least(votes, tables, in_table):
    """P(Binomial(tables, in_table) >= votes), votes >= 1."""
    rest = tables - votes + 1.0
    tail = tf.math.betainc(
        tf.fill(tf.shape(in_table), votes),
        tf.fill(tf.shape(in_table), tf.maximum(rest, 1.0)),
        in_table,
    )
    return tf.where(rest > 0.0, tail, 0.0)


def log_found(
    log_none: tf.Tensor, num_classes: int, filled: float | tf.Tensor = 0.0
) -> tf.Tensor:
    """log(1 - (1 - P)(1 - r)): found, or else filled with probability r.

    `log_none` is log(1 - P). The result is at least log(1 / num_classes), which
    bounds the weight of a class.
    """
    found = tf.math.log(-tf.math.expm1(log_none + tf.math.log1p(-filled)))
    return tf.maximum(found, -math.log(num_classes))


def batch_sample(
    chosen: Any,
    correction: str,
    log_none: tf.Tensor | None,
    num_classes: int,
) -> Sample:
    """A `Sample` whose classes count for all rows alike.

    `chosen` are the `ActiveClasses`, whose candidates the tables gave. For the
    correction `"sampling"`, `log_none` is the `log_not_found` of each row,
    float32 `[batch, num_sampled]`; rows are taken as independent.
    """
    count = chosen.log_expected_count
    if correction == "none":
        count = tf.zeros_like(count)
    if correction == "sampling":
        num_sampled = tf.size(chosen.ids, tf.int64)
        taken = chosen.num_targets + chosen.num_candidates
        filled = tf.math.divide_no_nan(
            tf.cast(num_sampled - taken, tf.float32),
            tf.cast(num_classes - taken, tf.float32),
        )
        none = tf.reduce_sum(log_none, axis=0)
        found = log_found(none, num_classes, filled)
        count = tf.where(tf.range(num_sampled) < chosen.num_targets, 0.0, found)
    return Sample(chosen.ids, count, chosen.positions)


def per_sample(
    chosen: Any,
    members: tf.Tensor,
    correction: str,
    log_none: tf.Tensor | None,
    num_classes: int,
) -> Sample:
    """A `Sample` of which each row sees its own classes.

    `members` says what is in a row's own buckets, bool `[batch, num_sampled]`.
    """
    columns = tf.range(tf.size(chosen.ids, tf.int64))
    is_fill = columns >= chosen.num_targets + chosen.num_candidates
    is_target = _own_targets(chosen.positions, tf.shape(members))
    own = members & ~is_fill & ~is_target
    # A row whose buckets gave nothing takes what the batch has.
    is_empty = ~tf.reduce_any(own, axis=1, keepdims=True)
    count = chosen.log_expected_count
    if correction == "none":
        count = tf.zeros_like(count)
    if correction == "sampling":
        found = tf.where(is_target, 0.0, log_found(log_none, num_classes))
        count = tf.where(is_empty, count, found)
    mask = own | is_target | is_empty
    return Sample(chosen.ids, count, chosen.positions, mask=mask)


def _own_targets(positions, shape):
    """A mask of the labels of each example, bool."""
    rows = tf.where(positions >= 0)
    columns = tf.gather_nd(positions, rows)
    return tf.tensor_scatter_nd_update(
        tf.zeros(shape, tf.bool),
        tf.stack([rows[:, 0], columns], axis=1),
        tf.ones_like(columns, tf.bool),
    )
