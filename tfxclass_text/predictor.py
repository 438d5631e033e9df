"""The function that a tagger predicts with: terms, scores by compiled ops."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.rows import search
from tfxclass.types import Columns
from tfxclass_text import fields as fields_lib
from tfxclass_text import text_features

# Of more, TensorFlow's own top_k finds the best as soon (measured).
_FEW = 1000


def build_predictor(
    model: keras.Model,
) -> Callable[[Columns, int], tuple[np.ndarray, np.ndarray]]:
    """A function of columns of bytes and k, to the k best of each text.

    It gives what the model does, but for rounding. Where the model has stock
    ops, to be served, compiled ops count terms and compute scores.

    Args:
        model: of a `Tagger`, from columns to probabilities.

    Returns:
        A function; `(ids, probabilities)` int32 and float32 `[batch, k]`.
    """
    features = model.get_layer("text_features")

    @tf.function(reduce_retracing=True)
    def best(columns, texts, k, by_op):
        with text_features.compiled(texts):
            scores = model(columns, training=False)
        if by_op:
            found = search.best_of_logits(scores, k)
            return tf.cast(found.ids, tf.int32), found.logits
        found = tf.math.top_k(scores, k)
        return found.indices, found.values

    def answer(columns, k):
        texts = fields_lib.texts_of(columns, features.fields)
        found = best(
            {name: tf.constant(x) for name, x in columns.items()},
            [tf.constant(x) for x in texts],
            tf.constant(k),
            k <= _FEW and _has_top_k(),
        )
        return tuple(x.numpy() for x in found)

    return answer


def _has_top_k():
    """Whether a compiled op finds the best of scores, which lie on a CPU."""
    return library.build()["ops"] == "compiled" and not placement.has_gpu()
