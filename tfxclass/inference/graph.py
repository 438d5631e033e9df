"""The one place that takes a Keras model apart."""

import keras

from tfxclass.keras_internals import flat_layers
from tfxclass.keras_internals import tensors_before
from tfxclass.layers.output_head import OutputHead


def find_head(model: keras.Model) -> OutputHead:
    """The head that ends `model`.

    Raises:
        ValueError: no model, no head, or several.
    """
    if not isinstance(model, keras.Model):
        raise ValueError(f"`model` must be a keras.Model. Received: {model!r}")
    heads = [layer for layer in flat_layers(model) if _is_head(layer)]
    if len(heads) != 1:
        raise ValueError(
            "The model must have exactly one head of tfxclass.layers. "
            f"Received: {[head.name for head in heads]} in model "
            f"{model.name!r}."
        )
    return heads[0]


def _is_head(layer):
    return isinstance(layer, OutputHead)


def encoder_of(
    model: keras.Model,
) -> tuple[list[keras.KerasTensor], keras.KerasTensor, OutputHead]:
    """`(inputs, features, head)`: symbolic inputs, and what the head reads.

    Raises:
        ValueError: as `find_head`, for models that are no graph of layers, and
            where the head is followed by something.
    """
    head = find_head(model)
    try:
        inputs, features = model.inputs, head.input
    except (AttributeError, ValueError):
        inputs = None
    if inputs is None:
        raise ValueError(
            "The model must be built, and Sequential or functional. Received: "
            f"{type(model).__name__} {model.name!r}, built={model.built}. "
            "Call it on a batch first, or begin it with a keras.Input."
        )
    if not any(output is head.output for output in model.outputs):
        raise ValueError(
            f"The head must end the model: the output of {head.name!r} is "
            f"none of the outputs of {model.name!r}, which answers with "
            "something else. Fix: no layer behind the head, and no model "
            "around it within this one."
        )
    if isinstance(features, (list, tuple)):
        features = features[0]
    return _inputs_of(features, inputs), features, head


def _inputs_of(tensor, inputs):
    """The symbolic `inputs` that `tensor` depends on: not a head's labels."""
    before = set(map(id, tensors_before(tensor)))
    return [x for x in inputs if id(x) in before]


def inputs_as_given(
    model: keras.Model, inputs: list[keras.KerasTensor]
) -> list[keras.KerasTensor] | dict[str, keras.KerasTensor] | keras.KerasTensor:
    """`inputs` in the structure of `model`'s, or Keras warns of each call."""
    given = getattr(model, "input", None)  # Sequential may have none.
    if isinstance(given, dict):
        wanted = {id(x) for x in inputs}
        return {k: x for k, x in given.items() if id(x) in wanted}
    return inputs[0] if len(inputs) == 1 else inputs
