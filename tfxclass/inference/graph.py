"""The one place that takes a Keras model apart."""

import keras

from tfxclass.inference.head_features import HeadFeatures
from tfxclass.inference.head_features import symbolic_inputs
from tfxclass.keras_internals import flat_layers
from tfxclass.keras_internals import layers_before
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

    Where the head is no layer of the model's graph, as in a subclassed model,
    features are what a `HeadFeatures` finds.

    Raises:
        ValueError: as `find_head`, for models that were not built, and where
            the head is followed by something.
    """
    head = find_head(model)
    inputs = getattr(model, "inputs", None)
    try:
        features = head.input
    except (AttributeError, ValueError):
        features = None
    is_in_graph = inputs and features is not None
    if not is_in_graph or not _ends(model, head):
        return *_called(model, head), head
    if isinstance(features, (list, tuple)):
        features = features[0]
    return _inputs_of(features, inputs), features, head


def _ends(model, head):
    return any(output is head.output for output in model.outputs)


def _called(model, head):
    """Inputs of a model, and features that calling it finds."""
    if not head.built:
        raise ValueError(
            "The model must be built. Received: "
            f"{type(model).__name__} {model.name!r}, whose head {head.name!r} "
            "has no weights. Call it on a batch first, or begin it with a "
            "keras.Input."
        )
    layer = HeadFeatures(model)
    given = getattr(model, "input", None)
    if given is None:
        given = symbolic_inputs(model, layer)
    features = layer(given)
    return _inputs_of(features, keras.tree.flatten(given)), features


def is_called(features: keras.KerasTensor) -> bool:
    """Whether a `HeadFeatures` found them."""
    return any(isinstance(x, HeadFeatures) for x in layers_before(features))


def _inputs_of(tensor, inputs):
    """The symbolic `inputs` that `tensor` depends on: not a head's labels."""
    before = set(map(id, tensors_before(tensor)))
    return [x for x in inputs if id(x) in before]


def inputs_as_given(
    model: keras.Model, inputs: list[keras.KerasTensor]
) -> list[keras.KerasTensor] | dict[str, keras.KerasTensor] | keras.KerasTensor:
    """`inputs` in the structure of `model`'s, or Keras warns of each call."""
    given = getattr(model, "input", None)  # Sequential may have none.
    if given is None:
        shapes = (model.get_build_config() or {}).get("input_shape")
        if isinstance(shapes, dict):
            return {x.name: x for x in inputs}
    if isinstance(given, dict):
        wanted = {id(x) for x in inputs}
        return {k: x for k, x in given.items() if id(x) in wanted}
    return inputs[0] if len(inputs) == 1 else inputs
