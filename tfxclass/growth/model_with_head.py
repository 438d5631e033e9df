"""The same model with another head, compiled alike."""

import contextlib
from typing import Any

import keras
import tensorflow as tf

from tfxclass.inference.graph import encoder_of
from tfxclass.inference.graph import inputs_as_given
from tfxclass.inference.graph import is_called
from tfxclass.layers.output_head import OutputHead


def with_head(model: keras.Model, head: OutputHead) -> keras.Model:
    """Replaces the head of `model`; other layers are shared.

    The new head is not built, and has the name of the old one. If `model` is
    compiled, so is the built model that is returned, with metrics of as many
    classes as `head` has, and an optimizer that is built, as new.
    """
    inputs, features, old = encoder_of(model)
    with scope_of(model):
        if is_called(features):
            # A functional model around the layers of a subclassed one.
            given = inputs_as_given(model, inputs)
            other = keras.Model(given, head(features), name=model.name)
        else:
            other = _cloned(model, old, head)
        config = model.get_compile_config() if model.compiled else None
        if config:
            config = _of_classes(config, old.num_classes, head.num_classes)
            other.compile_from_config(config)
    return other


def scope_of(model: keras.Model) -> contextlib.AbstractContextManager[Any]:
    """The scope of the strategy that the model was made in."""
    strategy = model.distribute_strategy
    if strategy is tf.distribute.get_strategy():
        return contextlib.nullcontext()
    return strategy.scope()


def _cloned(model, old, head):
    compiled, model.compiled = model.compiled, False
    # Keras would compile the clone, with optimizer state for all classes.
    try:
        return keras.models.clone_model(
            model, clone_function=lambda layer: head if layer is old else layer
        )
    finally:
        model.compiled = compiled


def _of_classes(config, before, after):
    """`config` in which metrics of `before` classes are of `after`."""
    if isinstance(config, (list, tuple)):
        return [_of_classes(x, before, after) for x in config]
    if not isinstance(config, dict):
        return config
    config = {k: _of_classes(x, before, after) for k, x in config.items()}
    is_ours = str(config.get("registered_name")).startswith("tfxclass>")
    if is_ours and config["config"].get("num_classes") == before:
        config["config"]["num_classes"] = after
    return config
