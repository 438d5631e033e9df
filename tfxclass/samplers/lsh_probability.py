"""With which probability hash tables find a class."""

import math

import tensorflow as tf


def collision_probability(cosine):
    """Of one SimHash function: 1 - angle / pi."""
    return 1.0 - tf.acos(tf.clip_by_value(cosine, -1.0, 1.0)) / math.pi


def cosines(queries, rows, norm):
    """Cosines by which functions collide, float32 `[n, m]`.

    Args:
        queries: float32 `[n, dim]`.
        rows: float32 `[m, dim]`.
        norm: float32 scalar: the norm of the rows once they have their extra
            coordinate, 0 where they have none.
    """
    queries = tf.math.l2_normalize(queries, axis=-1)
    rows = tf.cond(
        norm > 0,
        lambda: rows / norm,
        lambda: tf.math.l2_normalize(rows, axis=-1),
    )
    return tf.matmul(queries, rows, transpose_b=True)


def log_not_found(cosine, num_hashes, num_tables, last_fraction=1.0):
    """log (1 - p^K)^(t - 1) (1 - f p^K): none of t tables gives the class.

    Args:
        cosine: float32, between query and class.
        num_hashes: int K.
        num_tables: number t of tables that were probed, scalar; may be 0.
        last_fraction: fraction f that was kept of the last one.
    """
    in_table = collision_probability(cosine) ** num_hashes
    whole = tf.cast(tf.maximum(num_tables - 1, 0), tf.float32)
    last = tf.where(num_tables > 0, last_fraction, 0.0)
    # p = 1 has an infinite logarithm, which may be taken 0 times.
    return tf.math.multiply_no_nan(
        tf.math.log1p(-in_table), whole
    ) + tf.math.log1p(-last * in_table)


def log_found(log_none, filled=0.0):
    """log(1 - (1 - P)(1 - r)): found, or else filled with probability r.

    Args:
        log_none: float32, log(1 - P).
        filled: r, broadcast against `log_none`.
    """
    return tf.math.log(-tf.math.expm1(log_none + tf.math.log1p(-filled)))
