"""A model that answers with the best classes instead of all of them."""

import keras
import tensorflow as tf

from tfxclass.checks import check_k
from tfxclass.layers.output_head import OutputHead


@keras.saving.register_keras_serializable("tfxclass")
class TopK(keras.layers.Layer):
    """The k best classes of a head, `(ids, scores)`; see `OutputHead.top_k`.

    Scores below `threshold` are 0 and their ids -1.
    """

    def __init__(self, head, k, threshold=None, **kwargs):
        super().__init__(**kwargs)
        self.head = head
        self.k = k
        self.threshold = threshold
        self.supports_jit = False

    def call(self, features):
        return above(self.threshold, *self.search(features))

    def search(self, features):
        return self.head.top_k(features, self.k)

    def compute_output_spec(self, features):
        shape = (features.shape[0], self.k)
        return (
            keras.KerasTensor(shape, dtype="int64"),
            keras.KerasTensor(shape, dtype="float32"),
        )


def find_head(model):
    """The head that ends `model`.

    Raises:
        ValueError: no head, several, or a model that has not been built.
    """
    heads = [layer for layer in model._flatten_layers() if _is_head(layer)]
    if len(heads) != 1:
        raise ValueError(
            "The model must have exactly one head of tfxclass.layers. "
            f"Received: {[head.name for head in heads]} in model "
            f"{model.name!r}."
        )
    return heads[0]


def _is_head(layer):
    return isinstance(layer, OutputHead)


def encoder_of(model):
    """`(inputs, features, head)`: symbolic inputs, and what the head reads.

    Raises:
        ValueError: as `find_head`, and for models that are no graph of layers.
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
    if isinstance(features, (list, tuple)):
        features = features[0]
    return _inputs_of(features, inputs), features, head


def _inputs_of(tensor, inputs):
    """The symbolic `inputs` that `tensor` depends on: not a head's labels."""
    pending, seen = [tensor], set()
    while pending:
        reached = pending.pop()
        if id(reached) in seen:
            continue
        seen.add(id(reached))
        operation, node_index, _ = reached._keras_history
        node = operation._inbound_nodes[node_index]
        pending.extend(node.input_tensors)
    return [x for x in inputs if id(x) in seen]


def check_threshold(threshold, head):
    """Raises ValueError unless `threshold` may be one of the scores."""
    if threshold is None:
        return
    if head.activation is None or not 0 <= threshold <= 1:
        raise ValueError(
            "`threshold` must be None, or in [0, 1] for a head with "
            f"probabilities. Received: {threshold} with "
            f"activation={head.activation!r}"
        )


def above(threshold, ids, scores):
    """`(ids, scores)` with ids -1 and scores 0 below `threshold`."""
    if threshold is None:
        return ids, scores
    is_above = scores >= threshold
    return tf.where(is_above, ids, -1), tf.where(is_above, scores, 0.0)


def top_k(model, k=10, threshold=None):
    """A model of the same inputs and weights that returns the k best classes.

    Its memory is O(batch x block): the [batch, num_classes] output is never
    made.

    Args:
        model: a Sequential or functional model that ends in a head.
        k: int, at most `num_classes`.
        threshold: float in [0, 1], least probability of a class, or None;
            where fewer than `k` reach it, ids are -1 and scores 0.

    Returns:
        A `keras.Model` with outputs `(ids, scores)`, int64 and float32
        `[batch, k]`, best first.

    Raises:
        ValueError: no single head, `k` out of range, or an unbuilt model.
    """
    inputs, features, head = encoder_of(model)
    check_k(k, head.num_classes)
    check_threshold(threshold, head)
    best = TopK(head, k, threshold)(features)
    return keras.Model(inputs_as_given(model, inputs), best)


def inputs_as_given(model, inputs):
    """`inputs` in the structure of `model`'s, or Keras warns of each call."""
    given = getattr(model, "input", None)  # Sequential may have none.
    if isinstance(given, dict):
        wanted = {id(x) for x in inputs}
        return {k: x for k, x in given.items() if id(x) in wanted}
    return inputs[0] if len(inputs) == 1 else inputs
