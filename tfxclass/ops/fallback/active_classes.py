"""Fallback of the union of the active classes.

The distribution is the op's, the samples are others. A step costs
O(num_classes), where the op costs O(sample size): each class has a time at
which it rings, an exponential variable whose rate is its probability, and the
classes that ring first are sampled (custom_ops/core/active_classes.h).
"""

import numpy as np
import tensorflow as tf

from tfxclass.types import Scalar

_NEVER = np.float64(np.inf)


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
    """See `tfxclass.ops.active_classes`."""
    _check(targets, num_sampled, num_classes)
    flat = tf.reshape(targets, [-1])
    places = tf.where(flat >= 0)
    distinct, order = tf.unique(tf.gather_nd(flat, places), tf.int64)
    none = tf.fill(tf.shape(flat), tf.constant(-1, tf.int64))
    positions = tf.tensor_scatter_nd_update(none, places, order)
    num_targets = tf.size(distinct, tf.int64)
    shape = _static_shape(flat, num_sampled)
    num_sampled = tf.maximum(num_sampled, num_targets)
    room = _room(num_sampled - num_targets, candidate_share)
    draws = _Draws(seed, num_classes)
    kept = _kept(
        distinct, candidates, scores, room, num_classes, sample_overflow, draws
    )
    chosen = tf.concat([distinct, kept], axis=0)
    counts = tf.zeros([tf.size(chosen)], tf.float64)
    of_targets = tf.fill([num_targets], tf.constant(-_NEVER, tf.float64))
    if fill != "uniform":
        law = _law(fill, cumulative, num_classes)
        chosen, filled, of_targets = _fill(
            chosen, num_sampled, law, distinct, draws
        )
        counts = tf.concat([counts, filled], axis=0)
    chosen, filled, of_rest = _fill_rest(
        chosen, num_sampled, num_classes, draws
    )
    counts = tf.cast(tf.concat([counts, filled], axis=0), tf.float32)
    target_counts = _target_counts(positions, of_targets, of_rest)
    return (
        tf.ensure_shape(chosen, shape),
        tf.ensure_shape(counts, shape),
        tf.reshape(positions, tf.shape(targets)),
        num_targets,
        tf.size(kept, tf.int64),
        tf.reshape(target_counts, tf.shape(targets)),
        _part(tf.size(kept), room),
    )


def _static_shape(targets, num_sampled):
    """The static shape of the ids; unknown if there may be more targets."""
    known = tf.get_static_value(num_sampled)
    most = targets.shape.num_elements()
    return [None if None in (known, most) or most > known else known]


def _part(count, room):
    count, room = (tf.cast(n, tf.float32) for n in (count, room))
    return tf.math.divide_no_nan(count, room)


def _room(left, share):
    """Places for candidates; a share below 1 leaves one for the fill."""
    part = tf.cast(tf.math.ceil(share * tf.cast(left, tf.float32)), tf.int64)
    most = left - tf.cast(share < 1, tf.int64)
    return tf.minimum(part, tf.maximum(most, 0))


def _check(targets, num_sampled, num_classes):
    in_range = (targets >= -1) & (targets < num_classes)
    tf.debugging.Assert(
        tf.reduce_all(in_range),
        [f"Labels must be in [-1, {num_classes}). Received:", targets],
    )
    tf.debugging.Assert(
        (num_sampled >= 1) & (num_sampled <= num_classes),
        [
            f"`num_sampled` must be in [1, {num_classes}]. Received:",
            num_sampled,
        ],
    )


class _Draws:
    """Uniform numbers in (0, 1), others at each call."""

    def __init__(self, seed, num_classes):
        self.seed, self.num_classes, self.calls = seed, num_classes, 0

    def __call__(self, size=None):
        self.calls += 1
        seed = tf.random.experimental.stateless_fold_in(self.seed, self.calls)
        return tf.random.stateless_uniform(
            [self.num_classes if size is None else size],
            seed,
            minval=np.finfo(np.float64).tiny,
            dtype=tf.float64,
        )


def _among(ids, num_classes):
    """bool [num_classes]: which classes are among these."""
    ones = tf.ones([tf.size(ids)], tf.bool)
    none = tf.zeros([num_classes], tf.bool)
    return tf.tensor_scatter_nd_update(none, ids[:, tf.newaxis], ones)


def _kept(targets, candidates, scores, room, num_classes, sample, draws):
    """The candidates that are in, the best score of each counting."""
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
        if sample:  # Gumbel top-k
            keys -= tf.math.log(-tf.math.log(draws(count)))
        by_id = tf.argsort(distinct)
        _, at = tf.nn.top_k(tf.gather(keys, by_id), tf.cast(room, tf.int32))
        return tf.gather(tf.gather(distinct, by_id), at)

    fits = tf.cast(count, tf.int64) <= room
    return tf.cond(fits, lambda: distinct, chosen)


def _law(fill, cumulative, num_classes):
    """float64 [num_classes], the probability to sample each class."""
    if fill == "log_uniform":
        ids = tf.range(num_classes, dtype=tf.float64)
        return tf.math.log1p(1 / (ids + 1)) / np.log(num_classes + 1.0)
    total = cumulative[-1]
    before = tf.concat([tf.zeros([1], tf.float64), cumulative[:-1]], axis=0)
    return (cumulative - before) / total


def _first(rings, count):
    """The classes with the least `rings`, int64 [count]."""
    _, ids = tf.nn.top_k(-rings, tf.cast(count, tf.int32))
    return tf.cast(ids, tf.int64)


def _fill(chosen, num_sampled, law, targets, draws):
    """`chosen` with those that ring first; log counts of these and targets."""
    taken = _among(chosen, tf.size(law))
    can_ring = (law > 0) & ~taken
    rings = -tf.math.log(draws()) / tf.where(can_ring, law, 1.0)
    rings = tf.where(can_ring, rings, _NEVER)
    able = tf.math.count_nonzero(can_ring)
    wanted = num_sampled - tf.size(chosen, tf.int64)
    ids = _first(rings, tf.minimum(wanted + 1, able))
    # When the first that is left out rings.
    last = tf.gather(rings, ids[-1:])
    never = tf.constant([_NEVER], tf.float64)
    time = tf.cond(able > wanted, lambda: last, lambda: never)[0]
    ids = ids[:wanted]

    def log_rung(classes):
        p = tf.gather(law, classes)
        # 0 times infinity is no number.
        rung = -tf.math.expm1(-tf.math.multiply_no_nan(time, p))
        return tf.math.log(rung)

    chosen = tf.concat([chosen, ids], axis=0)
    return chosen, log_rung(ids), log_rung(targets)


def _fill_rest(chosen, num_sampled, num_classes, draws):
    """`chosen` filled uniformly; log counts of these, and of one more."""
    wanted = num_sampled - tf.size(chosen, tf.int64)
    rest = tf.cast(num_classes - tf.size(chosen, tf.int64), tf.float64)
    filled = tf.cast(wanted, tf.float64)

    def drawn():
        taken = _among(chosen, num_classes)
        return _first(tf.where(taken, _NEVER, draws()), wanted)

    none = tf.zeros([0], tf.int64)
    ids = tf.cond(wanted > 0, drawn, lambda: none)
    counts = tf.fill([wanted], tf.math.log(filled / tf.maximum(rest, 1.0)))
    chosen = tf.concat([chosen, ids], axis=0)
    return chosen, counts, tf.math.log((filled + 1) / (rest + 1))


def _target_counts(positions, of_targets, of_rest):
    """float32, of each label; 0 of padding and of one that is there twice."""
    is_label = positions >= 0
    at = tf.maximum(positions, 0)
    times = tf.math.bincount(
        tf.cast(tf.boolean_mask(positions, is_label), tf.int32),
        minlength=tf.size(of_targets),
        maxlength=tf.size(of_targets),
    )
    # One more, so that there is something to gather.
    times = tf.concat([times, [0]], axis=0)
    counts = tf.where(tf.math.is_finite(of_targets), of_targets, of_rest)
    counts = tf.concat([counts, tf.zeros([1], tf.float64)], axis=0)
    counts = tf.where(tf.gather(times, at) == 1, tf.gather(counts, at), 0.0)
    return tf.cast(tf.where(is_label, counts, 0.0), tf.float32)
