"""What is used of the insides of `fit`, `compile` and traced steps."""

import inspect
import sys
from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from tfxclass.keras_internals.names import ARGUMENT_OF_FIT
from tfxclass.keras_internals.names import METRICS
from tfxclass.keras_internals.names import SCRATCH_GRAPH
from tfxclass.keras_internals.names import SCRATCH_GRAPH_USE
from tfxclass.keras_internals.names import has_all


def is_keras_building() -> bool:
    """Whether Keras calls the loss and the metrics on placeholders.

    Under a `tf.distribute` strategy it does so ahead of training, metrics
    before the loss and with labels that it has averaged over the replicas:
    floats. Ours have nothing to build.
    """
    if tf.executing_eagerly():
        return False
    has_all(
        "Training under a tf.distribute strategy may fail before its first "
        "step.",
        SCRATCH_GRAPH_USE,
    )
    return tf.compat.v1.get_default_graph().name.startswith(SCRATCH_GRAPH)


class RunningFit(NamedTuple):
    """Arguments of the `fit`, `evaluate` or such that is running.

    Attributes:
        class_weight: dict, or None.
        labels: what was given as `y`.
        labels_shape: `tf.TensorShape` of a batch's labels, as far as known.
        model: the model that is trained.
    """

    class_weight: dict[int, float] | None
    labels: Any
    labels_shape: tf.TensorShape
    model: keras.Model


def running_fit() -> RunningFit | None:
    """The call of a model that has labels and runs this, or None.

    That is `fit`, `evaluate`, `train_on_batch` or `test_on_batch`.

    This is the one place that reads stack frames. Keras turns `class_weight`
    into sample weights before a loss is called, and keeps it nowhere: neither
    the model nor its callbacks, optimizer or data adapter have it afterwards.
    With rows of several labels these weights are wrong without any error.
    """
    is_known = has_all(
        "`class_weight` of `fit` is not checked against the labels.",
        ARGUMENT_OF_FIT,
    )
    if not is_known:
        return None
    model = keras.Model
    methods = (
        model.fit,
        model.evaluate,
        model.train_on_batch,
        model.test_on_batch,
    )
    codes = [inspect.unwrap(method).__code__ for method in methods]
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code in codes:
            given = frame.f_locals
            return RunningFit(
                given.get("class_weight"),
                given["y"],
                _labels_shape(given),
                given["self"],
            )
        frame = frame.f_back
    return None


def _labels_shape(given):
    """Shape of the labels, from the variables of a `fit`."""
    batch = getattr(given.get("iterator"), "element_spec", (None, given["y"]))
    has_labels = isinstance(batch, tuple) and len(batch) > 1
    shape = getattr(batch[1], "shape", None) if has_labels else None
    return tf.TensorShape(shape)


def metrics_of(model: keras.Model, output_name: str) -> list[Any]:
    """`metrics` and `weighted_metrics` as `compile` was given them.

    Args:
        model: a Keras model.
        output_name: str, of the one output whose metrics are asked for.

    Returns:
        List of names, functions and `keras.metrics.Metric`.
    """
    is_known = has_all(
        "Slow metrics of a sampled head are not reported.", *METRICS
    )
    compiled = model._compile_metrics if is_known else None
    if compiled is None:
        return []
    # Sequential and subclassed models have one, or no names.
    names = getattr(model, "output_names", None) or [output_name]
    found = []
    for given in (compiled._user_metrics, compiled._user_weighted_metrics):
        if len(names) > 1 and isinstance(given, (list, tuple)):
            given = dict(zip(names, given))
        if len(names) > 1 and isinstance(given, dict):
            given = given.get(output_name)
        found += tf.nest.flatten(given)
    return [metric for metric in found if metric is not None]
