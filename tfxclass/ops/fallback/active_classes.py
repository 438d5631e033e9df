"""Fallback of the union of the active classes; a step costs O(num_classes)."""

import numpy as np
import tensorflow as tf

from tfxclass.ops.fallback.refused import BY_FREQUENCY
from tfxclass.ops.fallback.refused import refusal
from tfxclass.types import Scalar


def active_classes(
    targets: tf.Tensor,
    candidates: tf.Tensor,
    scores: tf.Tensor,
    seed: tf.Tensor,
    num_sampled: tf.Tensor,
    candidate_share: Scalar,
    cumulative: tf.Tensor,
    num_classes: int,
    fill: str = "uniform",
    sample_overflow: bool = True,
) -> tuple[tf.Tensor, ...]:
    """See `tfxclass.ops.active_classes`; another fill is refused."""
    if fill != "uniform":
        raise refusal(BY_FREQUENCY)
    targets = _checked(targets, num_sampled, num_classes)
    flat = tf.reshape(targets, [-1])
    places = tf.where(flat >= 0)
    distinct, order = tf.unique(tf.gather_nd(flat, places), tf.int64)
    none = tf.fill(tf.shape(flat), tf.constant(-1, tf.int64))
    positions = tf.tensor_scatter_nd_update(none, places, order)
    num_targets = tf.size(distinct, tf.int64)
    # Unknown if there may be more targets.
    known = tf.get_static_value(num_sampled)
    most = flat.shape.num_elements()
    shape = [None if None in (known, most) or most > known else known]
    num_sampled = tf.maximum(num_sampled, num_targets)
    room = _room(num_sampled - num_targets, candidate_share)
    of_candidates, of_fill = tf.unstack(
        tf.random.experimental.stateless_split(seed, 2)
    )
    if not sample_overflow:
        of_candidates = None
    kept = _kept(distinct, candidates, scores, room, num_classes, of_candidates)
    chosen = tf.concat([distinct, kept], axis=0)
    filled, log_chance, log_chance_of_one_more = _filled(
        chosen, num_sampled, num_classes, of_fill
    )
    of_filled = tf.fill([tf.size(filled)], log_chance)
    counts = tf.concat([tf.zeros([tf.size(chosen)]), of_filled], axis=0)
    is_once = _is_there_once(positions, num_targets)
    target_counts = tf.where(is_once, log_chance_of_one_more, 0.0)
    return (
        tf.ensure_shape(tf.concat([chosen, filled], axis=0), shape),
        tf.ensure_shape(counts, shape),
        tf.reshape(positions, tf.shape(targets)),
        num_targets,
        tf.size(kept, tf.int64),
        tf.reshape(target_counts, tf.shape(targets)),
        tf.math.divide_no_nan(
            tf.cast(tf.size(kept), tf.float32), tf.cast(room, tf.float32)
        ),
    )


def _room(left, share):
    """Places for candidates; a share below 1 leaves one for the fill."""
    part = tf.cast(tf.math.ceil(share * tf.cast(left, tf.float32)), tf.int64)
    most = left - tf.cast(share < 1, tf.int64)
    return tf.minimum(part, tf.maximum(most, 0))


def _checked(targets, num_sampled, num_classes):
    """`targets`, which nothing reads in a graph before they are checked."""
    in_range = (targets >= -1) & (targets < num_classes)
    checks = [
        tf.debugging.Assert(
            tf.reduce_all(in_range),
            [f"Labels must be in [-1, {num_classes}). Received:", targets],
        ),
        tf.debugging.Assert(
            (num_sampled >= 1) & (num_sampled <= num_classes),
            [
                f"`num_sampled` must be in [1, {num_classes}]. Received:",
                num_sampled,
            ],
        ),
    ]
    with tf.control_dependencies(checks):
        return tf.identity(targets)


def _uniform(seed, size):
    """Random numbers in (0, 1), float64 `[size]`."""
    least = np.finfo(np.float64).tiny
    return tf.random.stateless_uniform(
        [size], seed, minval=least, dtype=tf.float64
    )


def _among(ids, num_classes):
    """bool [num_classes]: which classes are among these."""
    ones = tf.ones([tf.size(ids)], tf.bool)
    none = tf.zeros([num_classes], tf.bool)
    return tf.tensor_scatter_nd_update(none, ids[:, tf.newaxis], ones)


def _kept(targets, candidates, scores, room, num_classes, seed):
    """The candidates that are in; without a seed, the best-scored that fit."""
    candidates = tf.reshape(candidates, [-1])
    is_target = tf.gather(
        _among(targets, num_classes), tf.maximum(candidates, 0)
    )
    places = tf.where((candidates >= 0) & ~is_target)
    distinct, order = tf.unique(tf.gather_nd(candidates, places))
    scores = tf.gather_nd(tf.reshape(scores, [-1]), places)
    scores = tf.where(tf.math.is_nan(scores), float("-inf"), scores)
    count = tf.size(distinct)
    best = tf.math.unsorted_segment_max(scores, order, count)

    def chosen():
        keys = tf.cast(best, tf.float64)
        if seed is not None:  # Gumbel top-k
            keys -= tf.math.log(-tf.math.log(_uniform(seed, count)))
        by_id = tf.argsort(distinct)
        _, at = tf.nn.top_k(tf.gather(keys, by_id), tf.cast(room, tf.int32))
        return tf.gather(tf.gather(distinct, by_id), at)

    fits = tf.cast(count, tf.int64) <= room
    return tf.cond(fits, lambda: distinct, chosen)


def _filled(chosen, num_sampled, num_classes, seed):
    """Classes of the fill, the log chance of one, and of one more class."""
    count = tf.size(chosen, tf.int64)
    wanted = num_sampled - count
    # The greatest numbers win, and none of the chosen has one.
    numbers = _uniform(seed, num_classes)
    numbers = tf.where(_among(chosen, num_classes), -numbers, numbers)
    _, ids = tf.nn.top_k(numbers, tf.cast(wanted, tf.int32))
    filled, rest = (
        tf.cast(x, tf.float64) for x in (wanted, num_classes - count)
    )
    chances = filled / tf.maximum(rest, 1.0), (filled + 1) / (rest + 1)
    logs = [tf.cast(tf.math.log(x), tf.float32) for x in chances]
    return tf.cast(ids, tf.int64), *logs


def _is_there_once(positions, num_targets):
    """Which labels occur once, bool; padding does not."""
    is_label = positions >= 0
    times = tf.math.unsorted_segment_sum(
        tf.cast(is_label, tf.int32), tf.maximum(positions, 0), num_targets + 1
    )
    return is_label & (tf.gather(times, tf.maximum(positions, 0)) == 1)
