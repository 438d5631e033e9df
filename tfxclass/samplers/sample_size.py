"""How many classes a step computes by default, and how long it takes."""

import math
from typing import Any

import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.types import Scalar

#: Queries of a probe, the part of the time of all steps that probes may take,
#: and what one takes in addition to its time for each class.
NUM_PROBES = 16
PROBE_SHARE = 0.02
PROBE_NANOSECONDS = 1e6
_MOST_STEPS = 5000


def check_num_sampled(value: Any, num_classes: int | None = None) -> int | None:
    """None, or a positive integer as an int, at most `num_classes`.

    Raises:
        ValueError: it is none of these; the message names a value that works.
    """
    if value is None:
        return None
    try:
        size = check_positive_int("num_sampled", value)
    except ValueError as error:
        raise ValueError(
            f"{error}. Use None, which computes 1 % of the classes and at "
            f"least twice the labels of a batch{_example(value, num_classes)}."
        ) from None
    return size if num_classes is None else min(size, num_classes)


def _example(value, num_classes):
    if num_classes is None:
        return ""
    if isinstance(value, float) and 0 < value < 1:
        count = max(round(value * num_classes), 1)
        return f", or {count} for {value:.3g} of the {num_classes} classes"
    return (
        ", or an integer of more than the labels of a batch, up to the "
        f"{num_classes} classes"
    )


def min_sample(num_classes: int) -> int:
    """1 % of the classes, at least 1."""
    return max(num_classes // 100, 1)


def sample_size(num_classes: int, num_labels: Scalar) -> Scalar:
    """1 % of the classes and at least twice the labels of a batch.

    Args:
        num_classes: int.
        num_labels: int, or an integer scalar tensor.

    Returns:
        At most `num_classes`, of the type of `num_labels`.
    """
    return clip(2 * num_labels, min_sample(num_classes), num_classes)


def clip(size: Scalar, least: int, most: int) -> Scalar:
    """`size` within these bounds, of the same type."""
    if isinstance(size, int):
        return min(max(size, least), most)
    return tf.clip_by_value(size, least, most)


def count_labels(target_ids: tf.Tensor) -> Scalar:
    """The labels of a batch, an int where the shape alone tells it.

    Args:
        target_ids: int64 `[batch, p]`, -1 is padding.
    """
    if target_ids.shape[1] != 1:
        return tf.math.count_nonzero(target_ids >= 0)
    known = target_ids.shape[0]
    return tf.shape(target_ids, tf.int64)[0] if known is None else known


def batch_of(queries: tf.Tensor) -> Scalar:
    """Rows of a batch, an int where a graph that is being made knows them."""
    known = queries.shape[0]
    return tf.shape(queries)[0] if known is None else known


def step_nanoseconds(batch: Scalar, num_sampled: Scalar, dim: int) -> Scalar:
    """Roughly what a training step takes, a float or a float64 scalar.

    A model rather than a measurement: what a step sees must not depend on how
    fast the machine is. 240 products a nanosecond, three passes, six times
    that for the rest of a step, and what no step goes without (two cores).
    """
    sizes = [
        float(size) if isinstance(size, int) else tf.cast(size, tf.float64)
        for size in (batch, num_sampled, dim)
    ]
    return 1.5e6 + 0.075 * math.prod(sizes)


def part_of_steps(nanoseconds: float, share: float, step: Scalar) -> tf.Tensor:
    """In how many steps what takes so long is that share, int64 scalar.

    Args:
        nanoseconds: float.
        share: float, of the time of the steps.
        step: float or float64 scalar, nanoseconds of one.
    """
    if isinstance(step, float):
        steps = math.ceil(nanoseconds / (share * step))
        return tf.constant(min(max(steps, 1), _MOST_STEPS), tf.int64)
    steps = tf.math.ceil(nanoseconds / (share * step))
    return tf.cast(tf.clip_by_value(steps, 1, _MOST_STEPS), tf.int64)
