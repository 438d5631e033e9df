"""How many classes a training step computes where nobody said it."""

from typing import Any

import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.types import Scalar


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
