"""Checks a compiled model and its head before `fit`."""

from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import as_array
from tfxclass.checks import as_ids
from tfxclass.core.targets import MAX_ID
from tfxclass.inference.graph import find_head
from tfxclass.losses import fit_checks
from tfxclass.types import Array


def check(
    model: keras.Model,
    labels: Array | None = None,
    class_weight: Mapping[int, float] | None = None,
) -> list[str]:
    """Looks for settings of a model that make training slow or wrong.

    Use it before `fit`, which reports the same when it begins. It finds:

    - class vectors in bfloat16 with an optimizer that cannot update them,
    - an optimizer that updates all classes of a large sampled head,
    - metrics that make a sampled head compute all classes,
    - a `class_weight` for examples with several labels,
    - labels that no class has, and labels that seem to count from 1.

    Args:
        model: a compiled Keras model that ends in a head.
        labels: labels as in `fit`, or anything with their `shape`, or None.
        class_weight: the argument of `fit`, or None.

    Returns:
        List of str, a problem and its fix each. It is empty if there are none.

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
    if getattr(model, "optimizer", None) is None:
        raise ValueError(
            "`model` must be compiled. Fix: model.compile(optimizer, "
            f"loss=head.loss). Received: {model.name!r}"
        )
    found = [
        fit_checks.rounding_error(head, model),
        *fit_checks.slow_settings(head, model),
        _class_weight(labels, class_weight),
        _range(head, labels),
    ]
    return [problem for problem in found if problem is not None]


def _range(head, labels):
    """What is wrong with the ids of an array or a list of labels."""
    is_array = isinstance(labels, list) or hasattr(labels, "__array__")
    if not is_array or not np.size(labels):
        return None
    ids = as_ids("labels", labels)
    if head.teacher_weight:
        ids = np.where(ids > MAX_ID, -1, ids)
    error = fit_checks.range_error("labels", ids, head.num_classes)
    if error is not None:
        return error
    given = ids[ids >= 0]
    if 0 in head.removed or not given.size or given.min() != 1:
        return None
    return (
        f"No label is 0. Fix: if ids count from 1, subtract 1. Received: "
        f"labels from 1 to {given.max()}."
    )


def _class_weight(labels, class_weight):
    if labels is None or class_weight is None:
        return None
    given = labels if hasattr(labels, "shape") else as_array("labels", labels)
    shape = tf.TensorShape(given.shape)
    return (
        fit_checks.class_weight_error(shape)
        if fit_checks.may_have_several(shape)
        else None
    )
