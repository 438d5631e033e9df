"""The function that a tagger predicts with: terms from a compiled op."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfxclass.text import fields as fields_lib
from tfxclass.text import text_features
from tfxclass.types import Columns


def build_predictor(
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

    @tf.function(reduce_retracing=True)
    def best(columns, texts, k):
        with text_features.counted(texts):
            scores = model(columns, training=False)
        found = tf.math.top_k(scores, k)
        return found.indices, found.values

    def answer(columns, k):
        texts = fields_lib.texts_of(columns, features.fields)
        found = best(
            {name: tf.constant(x) for name, x in columns.items()},
            [tf.constant(x) for x in texts],
            tf.constant(k),
        )
        return tuple(x.numpy() for x in found)

    return answer
