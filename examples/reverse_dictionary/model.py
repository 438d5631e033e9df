"""The encoder: an idf-weighted sum of word embeddings; and the head on it."""

import keras
import numpy as np
import scipy.sparse
import tensorflow as tf

import tfxclass
from examples.reverse_dictionary.text import WordIds

DIM = 256


class WordSum(keras.layers.Layer):
    """Word ids `[batch, length]` to the idf-weighted sum of their embeddings.

    The head takes the cosine, so the sum serves as the mean.

    Args:
        idf: weight of each word, float `[vocabulary]`.
        dim: width of the embeddings.
    """

    def __init__(self, idf, dim=DIM, **kwargs):
        super().__init__(**kwargs)
        self.idf = tf.constant(idf, tf.float32)
        self.dim = dim
        self.supports_jit = False

    def build(self, input_shape):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(len(self.idf), self.dim),
            initializer=keras.initializers.RandomNormal(
                stddev=self.dim**-0.5, seed=0
            ),
        )

    def call(self, ids):
        # Only words that are there are fetched, and get a (sparse) gradient.
        where = tf.where(ids >= 0)
        known = tf.gather_nd(ids, where)
        weights = tf.gather(self.idf, known)[:, tf.newaxis]
        vectors = tf.gather(self.embeddings.value, known) * weights
        rows = tf.shape(ids, tf.int64)[0]
        return tf.math.unsorted_segment_sum(vectors, where[:, 0], rows)

    def compute_output_shape(self, ids_shape):
        return (ids_shape[0], self.dim)


def make_head(num_classes, full=False):
    """The one line to swap."""
    if full:
        return tfxclass.layers.FullSoftmax(
            num_classes, similarity="cosine", scale=20
        )
    return tfxclass.layers.SelectiveSoftmax(
        num_classes,
        num_sampled=2048,
        num_trees=10,
        similarity="cosine",
        scale=20,
        seed=0,
    )


def make_models(vocabulary_path, idf, head):
    """`(serving, training)`: the same weights from text, and from word ids."""
    text = keras.Input((), dtype="string", name="text")
    ids = WordIds(vocabulary_path, name="word_ids")(text)
    serving = keras.Model(text, head(WordSum(idf, name="word_sum")(ids)))
    # Text is split once, not each step.
    ids = keras.Input((None,), dtype="int64", name="ids")
    features = serving.get_layer("word_sum")(ids)
    return serving, keras.Model(ids, head(features))


def encoder_of(serving):
    """The part of a serving model that ends in the features."""
    return keras.Model(serving.inputs, serving.get_layer("word_sum").output)


def start_classes(serving, shown, labels):
    """Sets each class row to the mean of the features of its texts.

    With embeddings that are still random this is TF-IDF in a random
    projection: training starts from there, not from nothing.

    Args:
        serving: a model of `make_models`.
        shown: sparse `[n, vocabulary]`, weight of each word in each text.
        labels: int `[n, p]`, classes of each text, -1 is padding.
    """
    encoder, head = serving.get_layer("word_sum"), serving.layers[-1]
    weights = shown.multiply(encoder.idf.numpy())
    features = weights.tocsr() @ encoder.embeddings.numpy()
    text, column = np.nonzero(labels >= 0)
    has = scipy.sparse.csr_matrix(
        (np.ones(len(text), "float32"), (labels[text, column], text)),
        shape=(head.num_classes, len(labels)),
    )
    rows = has @ keras.utils.normalize(features)
    head.kernel.assign(keras.utils.normalize(rows))
