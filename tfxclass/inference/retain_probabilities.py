"""A model that gives the retain probabilities of DropMax beside its output."""

import keras
import tensorflow as tf

from tfxclass.inference.graph import encoder_of
from tfxclass.inference.graph import inputs_as_given
from tfxclass.inference.top_k import HeadLayer
from tfxclass.layers.dropmax import DropMax


@keras.saving.register_keras_serializable("tfxclass")
class RetainProbabilities(HeadLayer):
    """`(output, rho)` of a head, each float32 `[batch, num_classes]`."""

    def call(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        head = self.head
        logits = head.logits(features)
        output = head.activate(logits) if head.activation else logits
        return output, head.retain_probabilities(features)

    def compute_output_spec(
        self, features: keras.KerasTensor
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        shape = (*features.shape[:-1], self.head.num_classes)
        return tuple(keras.KerasTensor(shape, dtype="float32") for _ in "ab")


def retain_probabilities(model: keras.Model) -> keras.Model:
    """A model of the same inputs and weights with a second output, rho.

    The probability with which a class is retained shows which classes a row
    is confused with (the paper's figure 4).

    Args:
        model: a Sequential or functional model that ends in a `DropMax`.

    Returns:
        A `keras.Model` with outputs `(output, rho)`, each float32
        `[batch, num_classes]`.

    Raises:
        ValueError: no single head, another head, or an unbuilt model.
    """
    inputs, features, head = encoder_of(model)
    if not isinstance(head, DropMax):
        raise ValueError(
            "Retain probabilities need a model that ends in a DropMax. "
            f"Received: {type(head).__name__} {head.name!r}."
        )
    outputs = RetainProbabilities(head)(features)
    return keras.Model(inputs_as_given(model, inputs), outputs)
