"""What is slow or wrong about a compiled model and its head, before `fit`."""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from tfxclass.inference.graph import find_head
from tfxclass.keras_internals import metrics_of
from tfxclass.losses.fit_checks import class_weight_error
from tfxclass.losses.fit_checks import may_have_several
from tfxclass.ops import half_rows
from tfxclass.types import Array

# Numbers of a class matrix from which a dense optimizer is slow: 40 MB.
_LARGE_MATRIX = 10_000_000


def check(
    model: keras.Model,
    labels: Array | None = None,
    class_weight: Mapping[int, float] | None = None,
) -> list[str]:
    """Looks for settings of a model that make training slow or wrong.

    Call it once before `fit`. It finds class vectors in bfloat16 with an
    optimizer that cannot move them, an optimizer that updates all classes of a
    large sampled head, metrics that make a sampled head compute all classes,
    and a `class_weight` for rows with several labels.

    Args:
        model: a compiled Keras model that ends in a head.
        labels: labels as in `fit`, or anything with their `shape`; or None.
        class_weight: the argument of `fit`, or None.

    Returns:
        List of str, a problem and its fix each; empty if there are none.

    Raises:
        ValueError: the model has no head, or is not compiled.

    Example:

    >>> problems = tfxclass.check(model)
    >>> assert not problems, problems
    """
    head = find_head(model)
    if getattr(model, "optimizer", None) is None:
        raise ValueError(
            "`model` must be compiled. Fix: model.compile(optimizer, "
            f"loss=head.loss). Received: {model.name!r}"
        )
    found = [
        _rounding(head, model.optimizer),
        _dense_updates(head, model.optimizer),
        _full_output(head, model),
        _class_weight(labels, class_weight),
    ]
    return [problem for problem in found if problem is not None]


def _rounding(head, optimizer):
    try:
        half_rows.check_rounded(head.trainable_variables, optimizer)
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
        "tfxclass.optimizers.LazyAdam, or LazySGD."
    )


def _is_dense(optimizer):
    """Whether a step costs as much as the head has classes."""
    # A LossScaleOptimizer has an inner optimizer.
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if getattr(optimizer, "rounds_half_rows", False):
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


def _class_weight(labels, class_weight):
    if labels is None or class_weight is None:
        return None
    given = labels if hasattr(labels, "shape") else np.asarray(labels)
    shape = tf.TensorShape(given.shape)
    return class_weight_error(shape) if may_have_several(shape) else None


def _name_of(metric):
    for name in ("name", "__name__"):
        if hasattr(metric, name):
            return getattr(metric, name)
    return str(metric)
