"""Checks the arguments of the `fit` that a head's loss is called in."""

import warnings

import keras
import numpy as np
import tensorflow as tf

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
