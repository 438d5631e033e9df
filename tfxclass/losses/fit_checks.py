"""What a head's loss has to say about the `fit` that it is called in."""

import warnings
import weakref

import keras
import tensorflow as tf

from tfxclass.keras_internals import running_fit
from tfxclass.rows import half_rows
from tfxclass.types import Labels

# Heads whose user has been told: each is, once.
_warned = weakref.WeakSet()


def check_class_weight_of_fit(labels: Labels) -> None:
    """Refuses what Keras makes of `class_weight` and rows of several ids.

    It takes the column of the greatest id as the class.

    Raises:
        ValueError: labels `[batch, p]` in a `fit` with `class_weight`.
    """
    shape = tf.TensorShape(getattr(labels, "shape", []))
    if shape.rank in (None, 0, 1) or shape[-1] == 1:
        return
    fit = running_fit()
    if fit is not None and fit.class_weight is not None:
        raise ValueError(
            "`class_weight` of `fit` is for labels of shape [batch]: of others "
            "Keras takes the place of the greatest id as the class. Give the "
            "head its own, loss_options=tfxclass.losses.LossOptions("
            "class_weight=...), or each row its weight with `sample_weight`. "
            "Received: labels of shape "
            f"{shape}."
        )


def check_optimizer_of_fit() -> None:
    """Raises ValueError for an optimizer that cannot move bfloat16 rows."""
    fit = running_fit()
    if fit is not None:
        model = fit.model
        half_rows.check_rounded(model.trainable_variables, model.optimizer)


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
