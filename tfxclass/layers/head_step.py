"""A step of any head: from features and labels to the losses of examples.

`OutputHead.compute_step` begins here, and `training_step` of the head computes
the losses. In between are the labels: padding, hard negatives, a teacher.
"""

import keras
import tensorflow as tf

from tfxclass.core import targets as targets_lib
from tfxclass.core.forward import Step
from tfxclass.core.forward import flatten
from tfxclass.core.forward import mask_of
from tfxclass.core.forward import unflatten
from tfxclass.core.targets import as_tensor
from tfxclass.core.targets import require
from tfxclass.layers import head_config
from tfxclass.losses import teacher
from tfxclass.types import Labels


def compute_step(
    head: keras.layers.Layer,
    features: tf.Tensor,
    labels: Labels,
    training: bool | None,
) -> Step:
    """The losses of a batch, and in training what metrics rank by.

    Features are `[batch, ..., dim]`, and losses float32 `[batch, ...]`. Labels
    are as in `OutputHead.compute_loss`.
    """
    found = targets(head, features, labels)
    flat = flatten(features)
    if training:
        step = _training_step(head, flat, found, features, labels)
    else:
        step = Step(head.exact_loss(flat, found))
    return step._replace(losses=unflatten(step.losses, features))


def _training_step(head, flat, found, features, labels):
    """`Step` of training; where there is a teacher, from both."""
    labels, negatives = _split(head, features, labels)
    if negatives is not None:
        negatives = _as_targets(head, features, negatives).ids
        found = found._replace(negatives=negatives)
    if head.teacher_weight:
        return _distilled_step(head, flat, found, features, labels)
    if len(features.shape) > 2 and head.may_skip_rows():
        return _labelled_step(head, flat, found)
    return head.training_step(flat, found)


def _distilled_step(head, flat, found, features, labels):
    """`training_step` on labels and the answers of a teacher."""
    both = teacher.add_distillation_targets(
        labels,
        found,
        head.teacher_weight,
        head.num_classes,
        tf.shape(features)[:-1],
        mask=mask_of(features),
        is_distribution=not head.objective.is_sum,
    )
    both = both._replace(negatives=found.negatives)
    step = head.training_step(flat, both)
    if step.ranking is None:
        return step
    # Metrics rank the labels alone.
    own = tf.where(found.ids >= 0, step.ranking.positions, -1)
    return step._replace(ranking=step.ranking._replace(positions=own))


def _labelled_step(head, flat, found):
    """`training_step` of the rows with a label; others have loss 0.

    Sequences are padded, and a product with the class vectors would cost as
    much for padding as for items.
    """
    rows = tf.where(found.is_labelled > 0)[:, 0]
    # One at least: not every op takes none.
    is_empty = tf.cast(tf.equal(tf.size(rows), 0), tf.int32)
    rows = tf.concat([rows, tf.zeros([is_empty], tf.int64)], axis=0)
    step = head.training_step(
        tf.gather(flat, rows), found.map(lambda x: tf.gather(x, rows))
    )
    shape = tf.shape(flat, tf.int64)[:1]
    losses = tf.scatter_nd(rows[:, tf.newaxis], step.losses, shape)
    ranking = step.ranking
    if ranking is not None:
        ranking = ranking._replace(rows=rows)
    return step._replace(losses=losses, ranking=ranking)


def targets(
    head: keras.layers.Layer, features: tf.Tensor, labels: Labels
) -> targets_lib.Targets:
    """The `Targets` of a batch, with a row for each position of features."""
    labels, _ = _split(head, features, labels)
    if head.teacher_weight:
        labels = teacher.labels_alone(labels)
    return head.objective.targets(_as_targets(head, features, labels))


def _split(head, features, labels):
    """`(labels, negatives)`, or None for these."""
    if not head.num_negatives:
        return labels, None
    return split_negatives(labels, head.num_negatives, len(features.shape))


def _as_targets(head, features, ids):
    found = targets_lib.as_targets(
        ids,
        head.num_classes,
        tf.shape(features)[:-1],
        mask=mask_of(features),
    )
    if not head.removed:
        return found
    ids = head_config.live_ids(found.ids, head.removed)
    return targets_lib.uniform_targets(ids)


def split_negatives(
    labels: Labels, count: int, rank: int | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """`(labels, negatives)` of integers whose last `count` columns are these.

    `rank` is the rank of the features, and so of the labels.
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
