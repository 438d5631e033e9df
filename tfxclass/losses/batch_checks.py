"""Checks labels and weights before a step runs, where they are known.

In a graph, an error of values comes below "Graph execution error". What a user
gave as an array is checked while the step is traced, which is once.
"""

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import as_array
from tfxclass.checks import as_ids
from tfxclass.core import targets as targets_lib
from tfxclass.core.forward import Forward
from tfxclass.core.forward import mask_of
from tfxclass.keras_internals import running_fit


def check_weight_shape(weight: tf.Tensor, leading: tf.TensorShape) -> None:
    """Raises ValueError for weights that rows, or positions, do not have.

    Args:
        weight: the sample weights of a batch.
        leading: shape of the features without their last dimension.
    """
    shape, leading = tf.TensorShape(weight.shape), tf.TensorShape(leading)
    if shape.rank in (None, 0) or leading.rank is None:
        return
    own = shape[:-1] if shape.rank > 1 and shape[-1] == 1 else shape
    # A weight for each sequence is one for all of its positions.
    fits = own.rank <= leading.rank and all(
        size is None or wanted is None or size in (1, wanted)
        for size, wanted in zip(own, leading)
    )
    if not fits:
        wanted = ["[batch]", "[batch, time]"][: leading.rank]
        raise ValueError(
            f"`sample_weight` must have shape {' or '.join(wanted)}: a row has "
            "one weight, however many labels it has. Fix: for a weight of each "
            "class, loss_options=tfxclass.losses.LossOptions(class_weight=...)"
            f". Received: shape {shape}."
        )


def check_labels_of_call(forward: Forward, loss: keras.losses.Loss) -> None:
    """Raises ValueError for an array of labels with ids that no class has.

    It looks at `y` of the running `fit`, `evaluate` or their one-batch forms,
    where it goes to the head's loss as it is.

    Args:
        forward: the forward pass of the head.
        loss: the loss that is called.
    """
    head, fit = forward.head, running_fit()
    if fit is None or not hasattr(fit.labels, "__array__"):
        return
    if tf.is_tensor(fit.labels) or not _is_plain(fit.model, loss):
        return
    # Labels under a mask may be anything.
    if mask_of(forward.features) is not None:
        return
    labels = as_array("y", fit.labels)
    is_float = labels.dtype.kind == "f"
    if labels.dtype.kind not in "iuf" or not labels.size:
        return
    labels = as_ids("y", labels)
    if head.teacher_weight:
        labels = np.where(labels > targets_lib.MAX_ID, -1, labels)
    has_columns = labels.ndim == len(forward.features.shape)
    if has_columns and _are_one_hot(labels, head.num_classes, is_float):
        raise ValueError(
            "`y` must be class ids, and these are one-hot or multi-hot rows. "
            "Fix: one-hot labels become ids by y.argmax(axis=-1). Received: "
            f"zeros and ones of shape {labels.shape}, and the head has "
            f"num_classes={head.num_classes}."
        )
    error = range_error("y", labels, head.num_classes)
    if error is not None:
        raise ValueError(error)


def range_error(name: str, labels: np.ndarray, num_classes: int) -> str | None:
    """What is wrong with ids that no class has, or None.

    Args:
        name: str, the argument that the message names.
        labels: int64 array of any shape, not empty; -1 is padding.
        num_classes: int.
    """
    least, most = int(labels.min()), int(labels.max())
    if least >= -1 and most < num_classes:
        return None
    return (
        f"`{name}` has labels from {least} to {most}, but the head has "
        f"{num_classes} classes: ids from 0 to {num_classes - 1}, and -1 for "
        f"padding. {targets_lib.RANGE_FIX} "
        f"{targets_lib.TEACHER_HINT * (most > targets_lib.MAX_ID)}"
    )


def _are_one_hot(labels, num_classes, is_float):
    least = targets_lib.min_one_hot(num_classes, is_float)
    is_wide = least is not None and labels.shape[-1] >= least
    if not is_wide or not np.all((labels == 0) | (labels == 1)):
        return False
    return bool(np.any(labels[..., :1] != labels))


def _is_plain(model, loss):
    """Whether Keras hands the loss what it is given as labels."""
    kind = type(model)
    return model.loss is loss and all(
        getattr(kind, name) is getattr(keras.Model, name)
        for name in ("train_step", "test_step", "compute_loss")
    )
