"""From a Keras model that ends in `Dense` to a head, and back."""

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_value
from tfxclass.growth.class_vectors import check_has_vectors
from tfxclass.growth.class_vectors import set_class_vectors
from tfxclass.inference.graph import check_plain_logits
from tfxclass.inference.graph import encoder_of
from tfxclass.inference.graph import inputs_as_given
from tfxclass.keras_internals import flat_layers
from tfxclass.keras_internals import made_by
from tfxclass.layers.output_head import OutputHead
from tfxclass.ops import bfloat16_rows
from tfxclass.ops.placement import check_made_within

# Activations that a head has, too.
_ACTIVATIONS = ("softmax", "sigmoid", "linear")
_WITHOUT_TFXCLASS = (
    "Fix: tfxclass.export.saved_model writes a model that needs no tfxclass"
)


def replace_head(model: keras.Model, head: OutputHead) -> keras.Model:
    """Replaces the `Dense` layer at the end of a model by a head.

    Use it to continue the training of a Keras model with a head of tfxclass.
    The head gets the kernel and the bias of the `Dense` layer, so the new model
    gives the same answers, but not its regularizers and constraints. It is not
    compiled, and shares other layers with `model`. With a `tf.distribute`
    strategy, load the model, make the head, replace and compile inside of one
    `strategy.scope()`.

    Args:
        model: a built Sequential or functional Keras model with one output. It
            ends in `Dense`, with or without the activation `"softmax"` or
            `"sigmoid"`, or in `Dense` and a `Softmax` or `Activation` layer.
            Without one, its output counts as logits of the head's loss. Heads
            answer with probabilities, and with logits by `activation=None`.
        head: a head that is not built, with one class vector for each class,
            such as `SampledSoftmax(num_classes, use_bias=True)`. Its similarity
            is `"dot"`. For `"sigmoid"` it needs `loss="sigmoid"`.

    Raises:
        ValueError: if the model ends in something else, is not built, or was
            made outside of the strategy in scope, or if the head does not fit.

    Example:

    ```python
    dense = keras.layers.Dense(500, activation="softmax")
    model = keras.Sequential([keras.Input([20]), dense])
    head = tfxclass.layers.SampledSoftmax(500, use_bias=True)
    model = tfxclass.replace_head(model, head)
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    ```
    """
    features, dense, activation = _last_layer(model)
    _check_head(head, dense, activation)
    check_made_within(tf.distribute.get_strategy(), model.weights)
    given = inputs_as_given(model, model.inputs)
    other = keras.Model(given, head(features), name=model.name)
    check_has_vectors(head)
    # The kernel of `Dense` is [dim, num_classes], also where it is square.
    bias = dense.bias
    bias = np.zeros(head.num_classes) if bias is None else bias.numpy()
    kernel = keras.ops.convert_to_numpy(dense.kernel)
    return set_class_vectors(other, kernel, bias, class_axis=1)


def to_dense(model: keras.Model) -> keras.Model:
    """Replaces the head of a model by a plain Keras `Dense` layer.

    Use it to hand a trained model to a program without tfxclass. The new model
    gives the same answers, and its `.keras` file loads without `import
    tfxclass`. It computes all classes, so training it is slow. It is not
    compiled, and shares other layers with `model`. For cosine logits, a
    `UnitNormalization` layer comes before `Dense`, and for a `ProjectedSoftmax`
    its fixed projection.

    Args:
        model: a built Keras model that ends in a head with one class vector for
            each class. No other layer is from tfxclass.

    Raises:
        ValueError: if the model is of another kind, such as with a tree.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(100)
    model = keras.Sequential([keras.Input([20]), head])
    tfxclass.to_dense(model).save("plain.keras")
    ```
    """
    encoder, head = encoder_of(model)
    check_plain_logits("A Dense layer", head, _WITHOUT_TFXCLASS)
    (rows,) = head.export_weights()
    kernel = bfloat16_rows.widen(keras.ops.convert_to_tensor(rows.kernel))
    scale = head.answer_scale
    bias = [] if rows.bias is None else [scale * rows.bias.numpy()]
    dense = keras.layers.Dense(
        head.num_classes,
        activation=head.activation,
        use_bias=bool(bias),
        dtype="float32",
        name=head.name,
    )
    outputs = dense(_queries(head, encoder.output))
    kernel = scale * head.logit_scale * kernel.numpy().T
    dense.set_weights([kernel, *bias])
    plain = keras.Model(encoder.input, outputs, name=model.name)
    _check_is_plain(plain)
    return plain


def _last_layer(model):
    """What the last `Dense` reads, the layer, and the activation as str."""
    is_model = isinstance(model, keras.Model)
    check_value("model", model, is_model, "a keras.Model")
    outputs = getattr(model, "outputs", None) or []
    if len(outputs) != 1:
        raise ValueError(
            "`model` must be a Sequential or functional model that is built, "
            f"with one output. Received: {type(model).__name__} {model.name!r} "
            f"with {len(outputs)}. Fix: begin it with a keras.Input. For a "
            "subclassed model, make the head in it and copy the weights with "
            "tfxclass.set_class_vectors"
        )
    layer, (features,) = made_by(outputs[0])
    found = []
    if isinstance(layer, keras.layers.Activation):
        found = [keras.activations.serialize(layer.activation)]
    elif isinstance(layer, keras.layers.Softmax):
        is_last = layer.axis == -1
        found = ["softmax" if is_last else f"softmax of {layer.axis=}"]
    if found:
        layer, (features,) = made_by(features)
    if not isinstance(layer, keras.layers.Dense):
        raise ValueError(
            "`model` must end in keras.layers.Dense, or in Dense and a Softmax "
            f"or Activation layer. Received: a {type(layer).__name__} "
            f"{layer.name!r} there. Fix: for a model within a model, give the "
            "inner one, or put its layers into one keras.Model"
        )
    found = [keras.activations.serialize(layer.activation), *found]
    activation = ", ".join(x for x in found if x != "linear") or "linear"
    if activation not in _ACTIVATIONS:
        raise ValueError(
            "The activation at the end of `model` must be softmax, sigmoid or "
            f"none. Received: {activation}"
        )
    if getattr(layer, "quantization_mode", None):
        raise ValueError(
            f"The layer {layer.name!r} must not be quantized. Received: "
            f"{layer.quantization_mode}. Fix: give the model before "
            "`quantize`"
        )
    return features, layer, activation


def _check_head(head, dense, activation):
    """Raises ValueError unless `head` gives the answers of `dense`."""
    is_new = isinstance(head, OutputHead) and not head.built
    wanted = "a head of tfxclass.layers that is not built"
    check_value("head", head, is_new, wanted)
    is_dot = head.has_plain_logits and head.similarity == "dot"
    if not is_dot or hasattr(head, "projection_dim"):
        raise ValueError(
            "`head` must have one class vector for each class, as wide as the "
            'features, and similarity="dot", to give the answers of a Dense '
            f"layer. Received: {head!r}. Fix: take SampledSoftmax, or train "
            "another head from the start"
        )
    if head.num_classes != dense.units:
        raise ValueError(
            "`head` must have as many classes as the Dense layer. Received: "
            f"num_classes={head.num_classes} for Dense({dense.units})"
        )
    if activation not in ("linear", head.own_activation):
        raise ValueError(
            f"The model ends in a {activation}, and the loss of the head "
            f"is of a {head.own_activation}. Fix: make the head with "
            f'loss="{activation}"'
        )


def _queries(head, features):
    """The factors of the class vectors, by Keras layers only."""
    if hasattr(head, "projection"):
        dim, width = head.projection.shape
        projection = keras.layers.Dense(
            width, use_bias=False, trainable=False, dtype="float32"
        )
        features = projection(features)
        projection.set_weights([head.projection.numpy()])
    if head.similarity == "cosine":
        normalize = keras.layers.UnitNormalization(axis=-1, dtype="float32")
        features = normalize(features)
    return features


def _check_is_plain(model):
    layers = flat_layers(model)
    ours = [x for x in layers if type(x).__module__.startswith("tfxclass.")]
    if ours:
        raise ValueError(
            "The model has other layers of tfxclass, so it needs tfxclass to "
            f"load. Received: {ours[0]!r}. {_WITHOUT_TFXCLASS}"
        )
