"""Negatives that come with the labels of a row, as its last columns."""

import tensorflow as tf

from tfxclass.core.targets import as_tensor
from tfxclass.core.targets import require
from tfxclass.types import Labels


def split(
    labels: Labels, count: int, rank: int | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Labels and negatives of the tensor that has both.

    Args:
        labels: integers `[batch, ..., p + count]`, the negatives last.
        count: int, negatives of a row.
        rank: int, of the features, and so of the labels.

    Returns:
        `(labels, negatives)`: integers `[batch, ..., p]` and `[batch, ...,
        count]`.

    Raises:
        ValueError: ragged labels, of another rank, or without a column of
            their own.
        InvalidArgumentError: the last, of a width that is known in a step.
    """
    if isinstance(labels, tf.RaggedTensor):
        raise ValueError(
            "`labels` of a head with `num_negatives` must be padded: the "
            "negatives are the last columns. Received: a RaggedTensor"
        )
    labels = as_tensor(labels)
    width = labels.shape[-1] if labels.shape.rank else None
    is_wrong = labels.shape.rank not in (None, rank)
    if is_wrong or (width is not None and width <= count):
        raise ValueError(
            f"`labels` of a head with num_negatives={count} must have the "
            f"negatives in their last columns: [batch, p + {count}]. "
            f"Received: shape {labels.shape}"
        )
    check = require(
        tf.shape(labels)[-1] > count,
        "labels_must_have_columns_before_negatives",
        f"`labels` must have columns before their num_negatives={count}. "
        "Received: shape",
        tf.shape(labels),
    )
    with tf.control_dependencies([] if check is None else [check]):
        labels = tf.identity(labels)
    return labels[..., :-count], labels[..., -count:]
