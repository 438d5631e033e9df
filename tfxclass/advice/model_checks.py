"""Checks a compiled model and its head before `fit`."""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import as_array
from tfxclass.checks import as_ids
from tfxclass.checks import check_value
from tfxclass.core.targets import RANGE_FIX
from tfxclass.inference.graph import find_head
from tfxclass.keras_internals import metrics_of
from tfxclass.rows import class_matrix
from tfxclass.types import Array

# Numbers of a class matrix from which a dense optimizer is slow: 40 MB.
_LARGE_MATRIX = 10_000_000


def check(
    model: keras.Model,
    labels: Array | None = None,
    class_weight: Mapping[int, float] | None = None,
) -> list[str]:
    """Looks for settings of a model that make training slow or wrong.

    Use it before `fit`, which cannot see these settings. It finds:

    - class vectors in bfloat16 with an optimizer that cannot update them,
    - an optimizer that updates all classes of a large sampled head,
    - metrics that make a sampled head compute all classes,
    - a `class_weight` for examples with several labels,
    - labels that no class has, that are all padding, or that seem to count
      from 1.

    Args:
        model: a compiled Keras model that ends in a head.
        labels: labels as in `fit`, or anything with their `shape`, or None.
        class_weight: the argument of `fit`, or None.

    Returns:
        List of str, a problem and its fix each.

    Raises:
        ValueError: if the model has no head, or is not compiled.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(100)
    model = keras.Sequential([keras.Input([20]), head])
    model.compile(tfxclass.optimizers.LazyAdam(), loss=head.loss)
    problems = tfxclass.check(model)
    ```
    """
    head = find_head(model)
    is_compiled = getattr(model, "optimizer", None) is not None
    check_value("model", model, is_compiled, "compiled with loss=head.loss")
    found = [
        _dense_updates(head, model.optimizer),
        _full_output(head, model),
        _class_weight(labels, class_weight),
        _range(head, labels),
    ]
    try:
        class_matrix.check_rounded(head.trainable_variables, model.optimizer)
    except ValueError as error:
        found.insert(0, str(error))
    return [problem for problem in found if problem is not None]


def _range(head, labels):
    """What is wrong with the ids of an array or a list of labels."""
    is_array = isinstance(labels, list) or hasattr(labels, "__array__")
    if not is_array or not np.size(labels):
        return None
    ids = as_ids("labels", labels)
    least, most = int(ids.min()), int(ids.max())
    if least < -1 or most >= head.num_classes:
        return (
            f"`labels` has labels from {least} to {most}, but the head has "
            f"{head.num_classes} classes: ids from 0 to "
            f"{head.num_classes - 1}, and -1 for padding. {RANGE_FIX}"
        )
    given = ids[ids >= 0]
    if not given.size:
        return (
            "All labels are -1, which is padding, so the head learns nothing. "
            "Fix: give class ids from 0 to num_classes - 1. Received: labels "
            f"of shape {ids.shape}."
        )
    if 0 in head.removed or given.min() != 1:
        return None
    return (
        f"No label is 0. Fix: if ids count from 1, subtract 1. Received: "
        f"labels from 1 to {given.max()}."
    )


def _class_weight(labels, class_weight):
    """What is wrong with `class_weight` for rows of several labels."""
    if labels is None or class_weight is None:
        return None
    given = labels if hasattr(labels, "shape") else as_array("labels", labels)
    shape = tf.TensorShape(given.shape)
    if shape.rank is not None and (shape.rank < 2 or shape[-1] == 1):
        return None
    return (
        "`class_weight` of `fit` is for labels of shape [batch]. Fix: "
        "loss_options=tfxclass.losses.LossOptions(class_weight=...) of the "
        "head, or a `sample_weight` for each row. Received: labels of shape "
        f"{shape}."
    )


def _dense_updates(head, optimizer):
    """Plain SGD moves the touched rows alone; Keras' others move all rows."""
    numbers = sum(int(np.prod(v.shape)) for v in head.trainable_variables)
    # A LossScaleOptimizer has an inner optimizer.
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    is_plain = type(inner) is keras.optimizers.SGD and not inner.momentum
    moves_touched = getattr(inner, "rounds_bfloat16_rows", False) or is_plain
    if not head.is_sampled or numbers < _LARGE_MATRIX or moves_touched:
        return None
    return (
        f"{type(optimizer).__name__} updates all {head.num_classes:,} classes "
        f"of {head.name!r} in each step, not only the sampled ones: at "
        "670,091 classes a step takes 275 ms instead of 14. Use "
        "tfxclass.optimizers.HeadAdam, or LazySGD."
    )


def _full_output(head, model):
    """A training step computes `y_pred` only where a metric reads it."""
    if not head.is_sampled:
        return None
    names = [
        getattr(metric, "name", getattr(metric, "__name__", str(metric)))
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
