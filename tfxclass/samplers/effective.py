"""The effective number of classes that share the negatives' mass."""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfxclass.core.softmax import empty_stats
from tfxclass.core.softmax import logsumexp_of
from tfxclass.ops import library
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.class_rows import ClassRows
from tfxclass.types import Scalar


class Effective(NamedTuple):
    """The result of `effective_classes`.

    Attributes:
        k_eff: float32 `[n]`, (sum p)^2 / sum p^2 over the classes that are no
            labels.
        missed: float32 `[n]`, 1 - p_y.
        counts: bool `[n]`, whether the row has labels and other classes; where
            not, the others are 1 and 0.
        best: int64 `[n, num_best]`, the classes of the greatest logits, labels
            among them, best first; -1 where there are no more.
    """

    k_eff: Any
    missed: Any
    counts: Any
    best: Any


def effective_classes(
    queries: tf.Tensor,
    target_ids: tf.Tensor,
    rows: ClassRows,
    num_best: Scalar = 1,
    max_queries: int | None = None,
) -> Effective:
    """The exact effective number of the negatives' classes, in one pass.

    Args:
        queries: float32 `[n, dim]`.
        target_ids: int64 `[n, p]`, -1 is padding.
        rows: `ClassRows` of all classes.
        num_best: int or int32 scalar, at most as many as there are classes.
        max_queries: of `Blocks`.
    """
    blocks = Blocks(queries, rows, max_queries)
    batch = blocks.batch
    ops = library.ops
    # What is added to the labels' logits leaves them out.
    out = tf.fill(tf.shape(target_ids), float("-inf"))
    no_delta = tf.zeros_like(out)

    def step(start, mass, squares, everything, best):
        logits = blocks.logits(start)

        def folded(logits, delta, stats):
            stats = ops.tfxclass_softmax_block_stats(
                logits, target_ids, delta, start, *stats
            )
            return tuple(stats)

        return (
            folded(logits, out, mass),
            folded(2.0 * logits, out, squares),
            folded(logits, no_delta, everything),
            tuple(ops.tfxclass_top_k_block(logits, start, *best)),
        )

    none = (
        tf.fill([batch, num_best], float("-inf")),
        tf.fill([batch, num_best], tf.constant(-1, tf.int64)),
    )
    *stats, best = blocks.fold(step, (*[tuple(empty_stats(batch))] * 3, none))
    mass, squares, everything = (logsumexp_of(*each) for each in stats)
    k_eff = tf.cast(tf.exp(2.0 * mass - squares), tf.float32)
    missed = tf.cast(tf.exp(mass - everything), tf.float32)
    counts = tf.reduce_any(target_ids >= 0, axis=1)
    counts &= tf.math.is_finite(mass) & tf.math.is_finite(k_eff)
    return Effective(
        tf.where(counts, k_eff, 1.0),
        tf.where(counts, missed, 0.0),
        counts,
        best[1],
    )
