"""The resources that a Keras model reads: variables and lookup tables."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.keras_internals import flat_layers

_RESOURCES = (tf.Variable, tf.saved_model.experimental.TrackableResource)
_CONTAINERS = (list, tuple, set)


def of(model: keras.Model) -> list[Any]:
    """The `tf.Variable`s and tables of a model and its layers; a list.

    Tables are found where a layer, or a module or container of its
    attributes, holds them.
    """
    found, seen = {}, set()

    def visit(thing):
        if id(thing) in seen:
            return
        seen.add(id(thing))
        if isinstance(thing, _RESOURCES):
            found[id(thing)] = thing
        for part in _parts(thing):
            visit(part)

    for layer in flat_layers(model):
        visit(layer)
    return list(found.values())


def _parts(thing):
    if isinstance(thing, keras.Variable):
        return [thing.value]
    if isinstance(thing, keras.layers.Layer):
        # Attributes hold what Keras has no list of.
        return [*thing.variables, *vars(thing).values()]
    if isinstance(thing, tf.Module):
        return list(vars(thing).values())
    if isinstance(thing, dict):
        return list(thing.values())
    return list(thing) if isinstance(thing, _CONTAINERS) else []
