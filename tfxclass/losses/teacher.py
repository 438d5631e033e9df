"""Targets of a distillation: a teacher's best classes, with the labels.

Keras hands a loss one tensor of labels. So a class of a teacher travels in it
as one int64, its id in the lower 32 bits and its probability, as float32, in
the upper ones, which are 0 for a label. Ids stay exact, padding stays -1.
"""

import numpy as np
import tensorflow as tf

from tfxclass.checks import as_ids
from tfxclass.checks import as_numbers
from tfxclass.core.targets import Targets
from tfxclass.core.targets import as_targets
from tfxclass.core.targets import as_tensor
from tfxclass.core.targets import merge_repeats
from tfxclass.core.targets import require
from tfxclass.types import Array
from tfxclass.types import Labels

_BITS = 32
_IDS = (1 << _BITS) - 1
# Ids and probabilities both lie in the positive numbers of an int32.
_MOST_ID = (1 << (_BITS - 1)) - 1


def with_teacher(
    labels: Labels, ids: Array, probabilities: Array
) -> np.ndarray | tf.Tensor:
    """Labels that carry a teacher's best classes, for distillation with `fit`.

    Heads with `LossOptions(teacher_weight=...)` learn from labels and teacher.
    Metrics and evaluations read the labels only. An example whose labels are
    all -1 is learned from the teacher alone, and one whose `ids` are all -1
    from its labels alone.

    Args:
        labels: integers `[batch, ...]` or `[batch, ..., p]`, padded with -1.
        ids: integers `[batch, ..., k]` below 2^31, distinct in each row and
            padded with -1, as `tfxclass.top_k(teacher, k)` returns them.
        probabilities: float `[batch, ..., k]` in [0, 1], of `ids`. For a
            softmax they are divided by their sum, and for `loss="sigmoid"` they
            are used as they are. Classes of probability 0 are left out.

    Returns:
        int64 `[batch, ..., p + k]`, with p = 1 for one label per example. A
        NumPy array if the arguments are NumPy arrays, else a tensor, for
        example in `tf.data.Dataset.map`.

    Raises:
        ValueError: if shapes do not fit each other, or if ids or probabilities
            in NumPy arrays are out of range.
        InvalidArgumentError: if probabilities in tensors are out of range.

    Example:

    ```python
    x, y = np.ones([64, 20], "float32"), np.arange(64)
    teacher_head = tfxclass.layers.FullSoftmax(100)
    teacher = keras.Sequential([keras.Input([20]), teacher_head])
    ids, scores = tfxclass.top_k(teacher, k=10).predict(x, verbose=0)
    options = tfxclass.losses.LossOptions(teacher_weight=0.5)
    head = tfxclass.layers.SampledSoftmax(100, 80, loss_options=options)
    student = keras.Sequential([keras.Input([20]), head])
    student.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    labels = tfxclass.losses.with_teacher(y, ids, scores)
    student.fit(x, labels, verbose=0)
    ```

    References:
        Hinton et al., Distilling the Knowledge in a Neural Network, 2015.
    """
    if any(tf.is_tensor(x) for x in (labels, ids, probabilities)):
        return _packed_tensor(labels, ids, probabilities)
    labels, ids = as_ids("labels", labels), as_ids("ids", ids)
    probabilities = as_numbers("probabilities", probabilities)
    labels = _labels_like(labels, ids, probabilities)
    if ids.size and ids.max() > _MOST_ID:
        raise ValueError(f"`ids` must be below 2^31. Received: {ids.max()}")
    good = (probabilities >= 0) & (probabilities <= 1)
    if not np.all(good):
        raise ValueError(
            "`probabilities` must be in [0, 1]. Received: "
            f"{probabilities[~good].flat[0]}"
        )
    bits = probabilities.astype(np.float32).view(np.int32).astype(np.int64)
    packed = np.where((ids >= 0) & (bits > 0), (bits << _BITS) | ids, -1)
    return np.concatenate([labels.astype(np.int64), packed], axis=-1)


def _packed_tensor(labels, ids, probabilities):
    labels, ids = as_tensor(labels), tf.convert_to_tensor(ids)
    probabilities = tf.cast(probabilities, tf.float32)
    labels = _labels_like(labels, ids, probabilities)
    ids = tf.cast(ids, tf.int64)
    check = require(
        tf.reduce_all((probabilities >= 0) & (probabilities <= 1))
        & tf.reduce_all(ids <= _MOST_ID),
        "probabilities_must_be_in_0_to_1",
        "`probabilities` must be in [0, 1] and `ids` below 2^31. Received: "
        "probabilities from .. to, and ids up to",
        tf.reduce_min(probabilities),
        tf.reduce_max(probabilities),
        tf.reduce_max(ids),
    )
    with tf.control_dependencies([check] if check is not None else []):
        bits = tf.cast(tf.bitcast(probabilities, tf.int32), tf.int64)
    there = (ids >= 0) & (bits > 0)
    packed = tf.where(there, bits * (1 << _BITS) + ids, -1)
    return tf.concat([tf.cast(labels, tf.int64), packed], axis=-1)


def _labels_like(labels, ids, probabilities):
    rank = len(ids.shape)
    fits = ids.shape == probabilities.shape and rank > 1
    rows = tf.TensorShape(labels.shape[: rank - 1])
    fits = fits and rows.is_compatible_with(ids.shape[: rank - 1])
    if not fits or len(labels.shape) not in (rank - 1, rank):
        raise ValueError(
            "`ids` and `probabilities` must be [batch, ..., k] and `labels` "
            "[batch, ...] or [batch, ..., p]. Received: labels, ids and "
            f"probabilities of shapes {tuple(labels.shape)}, "
            f"{tuple(ids.shape)} and {tuple(probabilities.shape)}"
        )
    return labels if len(labels.shape) == rank else labels[..., None]


def labels_alone(labels: Labels) -> tf.Tensor:
    """The labels of `with_teacher`, -1 in place of the teacher's classes."""
    labels = as_tensor(labels)
    if labels.dtype != tf.int64:
        return labels
    return tf.where(labels > _IDS, tf.constant(-1, tf.int64), labels)


def add_distillation_targets(
    labels: Labels,
    own: Targets,
    share: float,
    num_classes: int,
    leading_shape: tf.Tensor,
    mask: tf.Tensor | None = None,
    is_distribution: bool = True,
) -> Targets:
    """The targets of a row: its labels' and its teacher's.

    Args:
        labels: what `with_teacher` returned.
        own: `Targets` of `labels_alone(labels)`. Labels keep their columns.
        share: float in (0, 1], weight of the teacher in a row that has one.
        num_classes, leading_shape, mask: of `as_targets`.
        is_distribution: bool, whether a row's probabilities are divided by
            their sum.
    """
    labels = as_tensor(labels)
    if labels.dtype != tf.int64:
        return own
    is_taught = labels > _IDS
    ids = tf.where(is_taught, tf.bitwise.bitwise_and(labels, _IDS), -1)
    teacher = as_targets(ids, num_classes, leading_shape, mask)
    bits = tf.where(is_taught, labels // (1 << _BITS), 0)
    p = tf.bitcast(tf.cast(bits, tf.int32), tf.float32)
    p = tf.where(teacher.ids >= 0, tf.reshape(p, tf.shape(teacher.ids)), 0.0)
    if is_distribution:
        p = tf.math.divide_no_nan(p, tf.reduce_sum(p, axis=1, keepdims=True))
    has_both = own.is_labelled * teacher.is_labelled
    of_labels = tf.where(has_both > 0, 1.0 - share, 1.0)[:, tf.newaxis]
    of_teacher = tf.where(has_both > 0, share, 1.0)[:, tf.newaxis]
    return merge_repeats(
        Targets(
            tf.where(own.ids >= 0, own.ids, teacher.ids),
            of_labels * own.weights + of_teacher * p,
        )
    )
