"""A model that also returns the retain probabilities of DropMax."""

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
    """A model with the retain probabilities of `DropMax` as second output.

    It has the inputs and weights of `model`. A class with a higher probability
    is one that the example is easily confused with (figure 4 of the paper). At
    the default weights of `DropMax` the differences are small.

    Args:
        model: a Sequential or functional model that ends in a `DropMax`.

    Returns:
        A `keras.Model` with outputs `(output, rho)`, each float32 `[batch,
        num_classes]`.

    Raises:
        ValueError: if there is no single head, the head is of another kind, or
            the model is not built.

    Example:

    ```python
    head = tfxclass.layers.DropMax(10)
    model = keras.Sequential([keras.Input([20]), head])
    both = tfxclass.retain_probabilities(model)
    output, rho = both.predict(np.ones([2, 20]), verbose=0)
    ```
    """
    inputs, features, head = encoder_of(model)
    if not isinstance(head, DropMax):
        raise ValueError(
            "Retain probabilities need a model that ends in a DropMax. "
            f"Received: {type(head).__name__} {head.name!r}."
        )
    outputs = RetainProbabilities(head)(features)
    return keras.Model(inputs_as_given(model, inputs), outputs)
