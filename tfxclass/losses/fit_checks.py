"""A head's labels against the `class_weight` of the running `fit`."""

import tensorflow as tf

from tfxclass.keras_internals import at_each_call
from tfxclass.keras_internals import running_fit
from tfxclass.types import Labels


def check_class_weight_of_fit(labels: Labels) -> None:
    """Refuses what Keras makes of `class_weight` and rows of several ids.

    It takes the column of the greatest id as the class. The next `fit` may use
    the same trace, so each step is checked.

    Raises:
        ValueError: labels `[batch, p]` in a `fit` with `class_weight`.
    """
    shape = tf.TensorShape(getattr(labels, "shape", []))
    if may_have_several(shape) and _may_be_in_fit():
        at_each_call(lambda: _check_class_weight(shape))


def _may_be_in_fit():
    """Whether a `fit` runs, or may run in the thread that traces replicas.

    Other loops are let be.
    """
    strategy = tf.distribute.get_strategy()
    is_mirrored = isinstance(strategy, tf.distribute.MirroredStrategy)
    return is_mirrored or running_fit() is not None


def _check_class_weight(shape):
    fit = running_fit()
    if fit is None or fit.class_weight is None:
        return
    if shape.rank is None:
        # A trace for labels of different ranks.
        shape = fit.labels_shape
    if may_have_several(shape):
        raise ValueError(class_weight_error(shape))


def class_weight_error(shape: tf.TensorShape) -> str:
    """What to do instead of `class_weight` with labels of a shape."""
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
