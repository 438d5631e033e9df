"""What is used of the insides of `fit`, `compile` and traced steps."""

from typing import Any

import keras
import tensorflow as tf


def is_keras_building() -> bool:
    """Whether Keras calls the loss and the metrics on placeholders.

    Under a `tf.distribute` strategy it does so ahead of training, metrics
    before the loss and with labels that it has averaged over the replicas:
    floats. Ours have nothing to build.
    """
    if tf.executing_eagerly():
        return False
    return tf.compat.v1.get_default_graph().name.startswith("scratch_graph")


def metrics_of(model: keras.Model, output_name: str) -> list[Any]:
    """`metrics` and `weighted_metrics` as `compile` was given them.

    Args:
        model: a Keras model.
        output_name: str, of the one output whose metrics are asked for.

    Returns:
        List of names, functions and `keras.metrics.Metric`.
    """
    compiled = model._compile_metrics
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
