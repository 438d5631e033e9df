"""Checks the arguments of the `fit` that a head's loss is called in.

In a graph, an error of values comes below "Graph execution error". What a user
gave as an array is checked while the step is traced, which is once.
"""

import warnings

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import as_array
from tfxclass.checks import as_ids
from tfxclass.core import targets as targets_lib
from tfxclass.core.forward import Forward
from tfxclass.core.forward import mask_of
from tfxclass.keras_internals import metrics_of
from tfxclass.keras_internals import running_fit
from tfxclass.rows import class_matrix
from tfxclass.types import Labels

# Numbers of a class matrix from which a dense optimizer is slow: 40 MB.
_LARGE_MATRIX = 10_000_000


def check_class_weight_of_fit(labels: Labels) -> None:
    """Refuses what Keras makes of `class_weight` and rows of several ids.

    It takes the column of the greatest id as the class. It is checked where a
    step is traced: a later `fit` with the same shapes, and the replicas of a
    `MirroredStrategy`, are not. `tfxclass.check` asks before a training.

    Raises:
        ValueError: labels `[batch, p]` in a `fit` with `class_weight`.
    """
    fit = running_fit()
    if fit is None or fit.class_weight is None:
        return
    shape = tf.TensorShape(getattr(labels, "shape", []))
    if may_have_several(shape if shape.rank else fit.labels_shape):
        raise ValueError(class_weight_error(shape))


def class_weight_error(shape: tf.TensorShape) -> str:
    """The message about `class_weight` with labels `[batch, p]`."""
    return (
        "`class_weight` of `fit` is for labels of shape [batch]: of others "
        "Keras takes the place of the greatest id as the class. Give the "
        "head its own, loss_options=tfxclass.losses.LossOptions("
        "class_weight=...), or each row its weight with `sample_weight`. "
        f"Received: labels of shape {shape}."
    )


def may_have_several(shape: tf.TensorShape) -> bool:
    """Whether rows of labels of a shape may have several classes."""
    if shape.rank is None:
        return True
    return shape.rank > 1 and shape[-1] != 1


def check_model_of_fit(head: keras.layers.Layer) -> None:
    """Refuses or warns of settings of the model that `fit` trains.

    A warning comes once for each head.

    Raises:
        ValueError: the optimizer cannot move bfloat16 class vectors.
    """
    fit = running_fit()
    if fit is None:
        return
    error = rounding_error(head, fit.model)
    if error is not None:
        raise ValueError(error)
    if head.has_warned:
        return
    problems = _padding_only(fit.labels) + slow_settings(head, fit.model)
    for problem in problems:
        head.has_warned = True
        warnings.warn(problem, stacklevel=2)


def _padding_only(labels):
    """A message if no row of an array of labels has a label."""
    if not isinstance(labels, np.ndarray) or not labels.size:
        return []
    # Most arrays have a label at their beginning.
    if np.any(labels[:100] != -1) or np.any(labels != -1):
        return []
    return [
        "All labels of `fit` are -1, which is padding, so the head learns "
        "nothing. Fix: give class ids from 0 to num_classes - 1. Received: "
        f"labels of shape {labels.shape}."
    ]


def slow_settings(head: keras.layers.Layer, model: keras.Model) -> list[str]:
    """Settings that make a step of a sampled head slow, with their fixes."""
    found = [_dense_updates(head, model.optimizer), _full_output(head, model)]
    return [problem for problem in found if problem is not None]


def rounding_error(head: keras.layers.Layer, model: keras.Model) -> str | None:
    """Why an optimizer cannot move bfloat16 class vectors, or None."""
    try:
        class_matrix.check_rounded(head.trainable_variables, model.optimizer)
    except ValueError as error:
        return str(error)
    return None


def _dense_updates(head, optimizer):
    """Plain SGD moves the touched rows alone; Keras' others move all rows."""
    numbers = sum(int(np.prod(v.shape)) for v in head.trainable_variables)
    is_large = head.is_sampled and numbers >= _LARGE_MATRIX
    if not is_large or not _is_dense(optimizer):
        return None
    return (
        f"{type(optimizer).__name__} updates all {head.num_classes:,} classes "
        f"of {head.name!r} in each step, not only the sampled ones: at "
        "670,091 classes a step takes 275 ms instead of 14. Use "
        "tfxclass.optimizers.HeadAdam, or LazySGD."
    )


def _is_dense(optimizer):
    """Whether a step costs as much as the head has classes."""
    # A LossScaleOptimizer has an inner optimizer.
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if getattr(optimizer, "rounds_bfloat16_rows", False):
        return False
    is_sgd = type(optimizer) is keras.optimizers.SGD
    return not is_sgd or bool(optimizer.momentum)


def _full_output(head, model):
    """A training step computes `y_pred` only where a metric reads it."""
    if not head.is_sampled:
        return None
    names = [
        _name_of(metric)
        for metric in metrics_of(model, head.name)
        if getattr(metric, "reads_y_pred", True)
    ]
    if not names:
        return None
    return (
        f"metrics={names} read the whole output of {head.name!r}, so each "
        f"training step computes all {head.num_classes:,} classes, not only "
        "those that the loss needs. Use tfxclass.metrics.TopKAccuracy(head, "
        "k=1), which ranks the label among the classes of the step, or "
        "evaluate on validation data only."
    )


def _name_of(metric):
    for name in ("name", "__name__"):
        if hasattr(metric, name):
            return getattr(metric, name)
    return str(metric)


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
