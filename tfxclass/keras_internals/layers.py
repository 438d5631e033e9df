"""What is used of the insides of Keras' layers, variables and models."""

import keras
import tensorflow as tf

from tfxclass.types import Variable

# Public, says Keras' guide to masking.
_MASK = "_keras_mask"


def tf_variable(variable: Variable) -> tf.Variable:
    """The `tf.Variable` of a Keras variable; another is returned as it is.

    Not `.value`, which under autocast is a tensor and has no handle.
    """
    if isinstance(variable, keras.Variable):
        return variable._value
    return variable


def path_of(variable: Variable) -> str:
    """`path`, or the name of a bare `tf.Variable`."""
    return getattr(variable, "path", variable.name)


def untrack(layer: keras.layers.Layer, variable: keras.Variable) -> None:
    """Makes a variable that is an attribute of `layer` none of its weights."""
    layer._untrack_variable(variable)


def without_autocast(variable: keras.Variable) -> None:
    """Makes a variable one that a layer of lower precision reads as it is."""
    variable._autocast = False


def get_mask(tensor: tf.Tensor) -> tf.Tensor | None:
    """The mask that Keras attached to what a layer returned, or None."""
    return getattr(tensor, _MASK, None)


def set_mask(tensor: tf.Tensor, mask: tf.Tensor | None) -> None:
    """Attaches a mask, which Keras' losses and layers read."""
    setattr(tensor, _MASK, mask)


def flat_layers(model: keras.Layer) -> list[keras.layers.Layer]:
    """A model or layer and all layers in it, however deep; a list."""
    return list(model._flatten_layers())


def arguments_of(tensor: keras.KerasTensor) -> list[keras.KerasTensor]:
    """The symbolic tensors that a symbolic tensor was computed from."""
    operation, node_index, _ = tensor._keras_history
    return operation._inbound_nodes[node_index].input_tensors


def maker_of(tensor: keras.KerasTensor) -> keras.Operation:
    """The layer or operation that a symbolic tensor was computed by."""
    return tensor._keras_history[0]


def tensors_before(tensor: keras.KerasTensor) -> list[keras.KerasTensor]:
    """A symbolic tensor and all that it was computed from."""
    pending, found = [tensor], {}
    while pending:
        reached = pending.pop()
        if id(reached) not in found:
            found[id(reached)] = reached
            pending.extend(arguments_of(reached))
    return list(found.values())


def layers_before(tensor: keras.KerasTensor) -> list[keras.layers.Layer]:
    """The layers that a symbolic tensor was computed by; a list."""
    made_by = [x._keras_history[0] for x in tensors_before(tensor)]
    return [x for x in made_by if isinstance(x, keras.layers.Layer)]
