"""The one place that takes a Keras model apart."""

import contextlib
import inspect
import itertools
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_value
from tfxclass.core import forward as forward_lib
from tfxclass.keras_internals import flat_layers
from tfxclass.keras_internals import get_mask
from tfxclass.keras_internals import set_mask
from tfxclass.keras_internals import tensors_before
from tfxclass.layers.output_head import OutputHead
from tfxclass.types import Config
from tfxclass.types import Shape

_TYPES = ("float32", "int64", "string")


def find_head(model: keras.Model) -> OutputHead:
    """The head that ends `model`; ValueError for none, or several."""
    is_model = isinstance(model, keras.Model)
    check_value("model", model, is_model, "a keras.Model")
    heads = [x for x in flat_layers(model) if isinstance(x, OutputHead)]
    if len(heads) != 1:
        raise ValueError(
            "The model must have exactly one head of tfxclass.layers. "
            f"Received: {[head.name for head in heads]} in model "
            f"{model.name!r}."
        )
    return heads[0]


def encoder_of(model: keras.Model) -> tuple[keras.Model, OutputHead]:
    """`(encoder, head)`: the model from the inputs to what the head reads.

    In a subclassed model, features are what a `HeadFeatures` finds. ValueError
    for models that were not built, and where something follows the head.
    """
    head = find_head(model)
    inputs: Any = getattr(model, "inputs", None)
    try:
        features = head.input
        is_in_graph = inputs and any(x is head.output for x in model.outputs)
    except (AttributeError, ValueError):
        is_in_graph = False
    if not is_in_graph:
        inputs, features = _called(model, head)
    elif isinstance(features, (list, tuple)):
        features = features[0]
    # Those that features depend on: not a head's labels.
    before = set(map(id, tensors_before(features)))
    inputs = [x for x in inputs if id(x) in before]
    return keras.Model(inputs_as_given(model, inputs), features), head


def _called(model, head):
    """Inputs of a model, and features that calling it finds."""
    if not head.built:
        raise ValueError(
            f"The model must be built. Received: {type(model).__name__} "
            f"{model.name!r}, whose head {head.name!r} has no weights. Call it "
            "on a batch first, or begin it with a keras.Input."
        )
    layer = HeadFeatures(model)
    given = getattr(model, "input", None)
    if given is None:
        given = symbolic_inputs(model, layer)
    return keras.tree.flatten(given), layer(given)


def check_plain_logits(what: str, head: OutputHead, instead: str = "") -> None:
    """Raises ValueError unless a head has one class vector for each class."""
    if not head.has_plain_logits:
        raise ValueError(
            f"{what} needs a head with one class vector for each class, and a "
            "softmax, a sigmoid or no activation. Received: "
            f"{type(head).__name__}. {instead}"
        )


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


@keras.saving.register_keras_serializable("tfxclass")
class HeadFeatures(keras.layers.Layer):
    """Calls a model, and returns the features that its head was given.

    The weights of the model but the head's are weights of this layer.
    """

    def __init__(self, model: keras.Model, **kwargs: Any) -> None:
        kwargs["autocast"] = False  # A configuration has it, too.
        super().__init__(**kwargs)
        head = find_head(model)
        # Untracked: the head of another model may read these features.
        self.read = lambda: (model, head)
        of_head = {id(x) for x in flat_layers(head)}
        self.parts = [
            x
            for x in flat_layers(model)
            if id(x) not in of_head and head not in flat_layers(x)
        ]
        known = {id(v) for x in [head, *self.parts] for v in x.variables}
        self.own = [v for v in model.variables if id(v) not in known]
        self.supports_jit = False
        self.supports_masking = True
        self.run = tf.function(self._features, autograph=False)

    def build(self, input_shape: Shape) -> None:
        self.built = True

    def call(self, inputs: Any, training: bool | None = None) -> tf.Tensor:
        # In a graph the scores that nobody reads are pruned.
        run = self.run if tf.executing_eagerly() else self._features
        features, mask = run(inputs, bool(training))
        if mask is not None:
            set_mask(features, mask)
        return features

    def _features(self, inputs, training):
        model, head = self.read()
        with forward_lib.features_only():
            outputs = model(inputs, training=training)
        for output in tf.nest.flatten(outputs):
            forward = forward_lib.of(output)
            if forward is not None and forward.head is head:
                # The same tensor may be an output of other layers, too.
                features = tf.identity(forward.features)
                return features, get_mask(forward.features)
        raise ValueError(
            f"The head must end the model: the output of {head.name!r} is "
            f"none of the outputs of {model.name!r}. Fix: no layer behind the "
            "head; return what it returns, as it is."
        )

    def get_config(self) -> Config:
        model = keras.saving.serialize_keras_object(self.read()[0])
        return {**super().get_config(), "model": model}

    @classmethod
    def from_config(cls, config: Config) -> "HeadFeatures":
        model = keras.saving.deserialize_keras_object(config["model"])
        return cls(**{**config, "model": model})


def symbolic_inputs(model: keras.Model, layer: HeadFeatures) -> Any:
    """A `keras.Input` for each input of a subclassed model, in its structure.

    Keras knows their shapes, but not their types. The first types that the
    model takes are used, float32 before int64 before string. But where the
    model casts a float input to integers, as an `Embedding` does, or to string,
    the input is int64 or string.
    """
    shapes = (model.get_build_config() or {}).get("input_shape")
    if shapes is None:
        raise ValueError(
            f"The shapes of the inputs of {model.name!r} are not known. Call "
            "it on a batch first, or begin it with a keras.Input. Received: "
            f"{type(model).__name__}, built={model.built}"
        )
    argument = next(iter(inspect.signature(model.call).parameters), "inputs")
    shapes = keras.tree.map_shape_structure(tf.TensorShape, shapes)
    named = [
        (_name(argument, path), (None, *shape[1:]))
        for path, shape in keras.tree.flatten_with_path(shapes)
    ]

    def trace(types):
        specs = [
            tf.TensorSpec(x, t, name) for (name, x), t in zip(named, types)
        ]
        given = keras.tree.pack_sequence_as(shapes, specs)
        return layer.run.get_concrete_function(given, False).graph

    # With more than five inputs there are too many combinations to try.
    trials = [(dtype,) * len(named) for dtype in _TYPES]
    if len(named) <= 5:
        trials = list(itertools.product(_TYPES, repeat=len(named)))
    error = None
    for types in sorted(trials, key=lambda x: -x.count(_TYPES[0])):
        try:
            graph = trace(types)
        except Exception as e:
            error = error or e
            continue
        dtypes = list(types)
        with contextlib.suppress(Exception):
            as_cast = [_type_of(x).name for x, _ in zip(graph.inputs, types)]
            trace(as_cast)
            dtypes = as_cast
        inputs = [
            keras.Input(shape[1:], dtype=dtype, name=name)
            for (name, shape), dtype in zip(named, dtypes)
        ]
        return keras.tree.pack_sequence_as(shapes, inputs)
    raise ValueError(
        f"{model.name!r} was called with inputs of types that are not known, "
        f"and takes none of {_TYPES}. Fix: wrap it, with its types: x = "
        "keras.Input(shape, dtype=...); keras.Model(x, model(x)). Received: "
        f"inputs of shape {shapes}: {error}"
    ) from error


def _name(argument, path):
    """The name of an input: its key, or a place in a list."""
    for step in path:
        argument = step if isinstance(step, str) else f"{argument}_{step}"
    return argument


def _type_of(x):
    """The dtype of an input: int64 or string if a float is cast to it."""
    casts = [op.outputs[0] for op in x.consumers() if op.type == "Cast"]
    if not x.dtype.is_floating:
        return x.dtype
    if any(y.dtype == tf.string for y in casts):
        return tf.string
    return tf.int64 if any(y.dtype.is_integer for y in casts) else x.dtype
