"""A tagger's answers: its model, with terms counted by a compiled op."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfxclass.text import fields as fields_lib
from tfxclass.text.mixed_scores import MixedScores
from tfxclass.types import Columns


def make(
    model: keras.Model,
) -> Callable[[Columns, int], tuple[np.ndarray, np.ndarray]]:
    """A function of columns of bytes and k, to the k best of each text.

    It gives what the model does; where the model reads texts in stock ops, to
    be served, terms are counted by `tfxclass.ops.text_terms`.

    Args:
        model: of a `Tagger`, from columns to probabilities.

    Returns:
        A function; `(ids, probabilities)` int32 and float32 `[batch, k]`.
    """
    features = model.get_layer("text_features")
    if any(isinstance(layer, MixedScores) for layer in model.layers):
        # An encoder reads the columns, too.
        scores = model

        def tensors(columns):
            return {name: tf.constant(x) for name, x in columns.items()}
    else:
        after = keras.Model(features.output, model.output)

        def scores(texts, training):
            return after(features.of_counted(texts), training=training)

        def tensors(columns):
            texts = fields_lib.texts_of(columns, features.fields)
            return [tf.constant(x) for x in texts]

    @tf.function(reduce_retracing=True)
    def best(read, k):
        found = tf.math.top_k(scores(read, training=False), k)
        return found.indices, found.values

    def answer(columns, k):
        found = best(tensors(columns), tf.constant(k))
        return tuple(x.numpy() for x in found)

    return answer
