"""What a head's loss has to say about the `fit` that it is called in."""

import warnings
import weakref

import keras
import numpy as np
import tensorflow as tf

from tfxclass.keras_internals import at_each_call
from tfxclass.keras_internals import running_fit
from tfxclass.rows import class_matrix
from tfxclass.types import Labels

# Heads whose user has been told: each is, once.
_warned = weakref.WeakSet()
_warned_of_optimizer = weakref.WeakSet()

# Numbers of a class matrix from which a dense optimizer is slow: 40 MB.
_MANY_NUMBERS = 10_000_000


def check_class_weight_of_fit(labels: Labels) -> None:
    """Refuses what Keras makes of `class_weight` and rows of several ids.

    It takes the column of the greatest id as the class. The next `fit` may use
    the same trace, so each of them is checked.

    Raises:
        ValueError: labels `[batch, p]` in a `fit` with `class_weight`.
    """
    shape = tf.TensorShape(getattr(labels, "shape", []))
    if _may_have_several(shape) and running_fit() is not None:
        at_each_call(lambda: _check_class_weight(shape))


def _check_class_weight(shape):
    fit = running_fit()
    if fit is None or fit.class_weight is None:
        return
    if shape.rank is None:
        # A trace for labels of different ranks.
        shape = fit.labels_shape
    if _may_have_several(shape):
        raise ValueError(
            "`class_weight` of `fit` is for labels of shape [batch]: of others "
            "Keras takes the place of the greatest id as the class. Give the "
            "head its own, loss_options=tfxclass.losses.LossOptions("
            "class_weight=...), or each row its weight with `sample_weight`. "
            f"Received: labels of shape {shape}."
        )


def _may_have_several(shape):
    """Whether rows of labels of a shape may have several classes."""
    if shape.rank is None:
        return True
    return shape.rank > 1 and shape[-1] != 1


def check_optimizer_of_fit() -> None:
    """Raises ValueError for an optimizer that cannot move bfloat16 rows."""
    fit = running_fit()
    if fit is not None:
        model = fit.model
        class_matrix.check_rounded(model.trainable_variables, model.optimizer)


def warn_of_dense_optimizer(head: keras.layers.Layer) -> None:
    """Warns if an optimizer moves all rows of a large sampled head.

    Once a head. Plain SGD moves the touched rows alone; Keras' other optimizers
    make a dense gradient, and read and write each row in each step.
    """
    fit = running_fit()
    if fit is None or not head.is_sampled or head in _warned_of_optimizer:
        return
    optimizer = fit.model.optimizer
    numbers = sum(int(np.prod(v.shape)) for v in head.trainable_weights)
    if numbers < _MANY_NUMBERS or not _is_dense(optimizer, head):
        return
    _warned_of_optimizer.add(head)
    warnings.warn(
        f"{type(optimizer).__name__} updates all {head.num_classes:,} classes "
        f"of {head.name!r} in each step, not only those of the sample: at "
        "670,091 classes a step takes 275 ms instead of 14. Use "
        "tfxclass.optimizers.LazyAdam, or LazySGD.",
        stacklevel=2,
    )


def _is_dense(optimizer, head):
    """Whether a step costs as much as the head has classes."""
    # That of a LossScaleOptimizer.
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if getattr(optimizer, "rounds_half_rows", False):
        return False
    is_sgd = type(optimizer) is keras.optimizers.SGD
    return not is_sgd or bool(optimizer.momentum)


def warn_of_full_output(head: keras.layers.Layer) -> None:
    """Warns if a metric makes a sampled head compute all of its classes.

    Once a head. `y_pred` of a training step is dead code, and pruned, until a
    metric reads it: 3 ms became 107 at 300,000 classes.
    """
    if not head.is_sampled or head in _warned:
        return
    fit = running_fit()
    given = [] if fit is None else fit.metrics_of(head.name)
    names = [
        _name_of(metric)
        for metric in given
        if getattr(metric, "reads_y_pred", True)
    ]
    if not names:
        return
    _warned.add(head)
    warnings.warn(
        f"metrics={names} read the whole output of {head.name!r}, so each "
        f"training step computes all {head.num_classes:,} classes, not only "
        "those that the loss needs. Use tfxclass.metrics.TopKAccuracy(head, "
        "k=1), which ranks the label among the classes of the step, or "
        "evaluate on validation data only.",
        stacklevel=2,
    )


def _name_of(metric):
    for name in ("name", "__name__"):
        if hasattr(metric, name):
            return getattr(metric, name)
    return str(metric)
