"""The encoder: an idf-weighted sum of word embeddings; and the head on it."""

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from examples.reverse_dictionary import meaning
from examples.reverse_dictionary import train
from examples.reverse_dictionary.text import AskedClasses
from examples.reverse_dictionary.text import WordIds

DIM, SCALE = 256, 20
# With it, the probability of the best answer is its accuracy on phrases.tsv.
ANSWER_SCALE = 15
# Of the cosine as it was before training, beside the learned one.
SHARE = 0.7


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
            initializer="zeros",
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
            num_classes, similarity=tfxclass.layers.Cosine(scale=SCALE)
        )
    return tfxclass.layers.SampledSoftmax(
        num_classes,
        num_sampled=2048,
        sampler="auto",
        similarity=tfxclass.layers.Cosine(scale=SCALE),
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


def beginning(idf, terms, words, batches, seed=0):
    """What the texts say by themselves: `(embeddings, class rows)`, arrays.

    With embeddings that are random, class rows that are the mean of their
    texts' features are TF-IDF in a random projection; then the embeddings are
    expanded by them (`meaning.expanded`), and the rows made anew.

    Args:
        idf: float `[vocabulary]`.
        terms: bytes `[vocabulary]`.
        words: list of str, the classes.
        batches: `train.Batches`.
        seed: int, of the projection.
    """
    random = np.random.default_rng(seed)
    first = random.normal(0, DIM**-0.5, (len(terms), DIM)).astype("float32")
    has = meaning.classes_of(batches.labels, len(words))

    def rows(embeddings, weights):
        texts = batches.terms(len(terms), weights).multiply(idf).tocsr()
        return keras.utils.normalize(
            has @ keras.utils.normalize(texts @ embeddings)
        )

    embeddings = first
    for _ in range(2):
        defined = rows(embeddings, train.DEFINES)
        embeddings = meaning.expanded(first, terms, words, defined)
    return embeddings, rows(embeddings, train.KEEP)


def set_state(serving, state):
    """Embeddings and class rows of a model of `make_models`."""
    serving.get_layer("word_sum").embeddings.assign(state[0])
    serving.layers[-1].kernel.assign(state[1])


def state(serving):
    """`(embeddings, class rows)` of a model of `make_models`, arrays."""
    rows = keras.utils.normalize(serving.layers[-1].kernel.numpy())
    return serving.get_layer("word_sum").embeddings.numpy(), rows


def make_answering(vocabulary_path, idf, learned, begun, usual, asked):
    """The model that answers: by what was learned, what it began from, and
    how usual a word is.

    The learned parts know what people mean, and make different mistakes where
    they began from different projections. The part as it began has every rare
    word of a definition. A logit is
    15 (mean of the learned cosines + 0.7 cos begun + 1.7 usual).

    Args:
        vocabulary_path: file with a term a line.
        idf: float `[vocabulary]`.
        learned: list of `state`s of trained models.
        begun: from `beginning`.
        usual: float `[num_classes]`, from `meaning.usualness`.
        asked: int64 `[vocabulary, p]`, from `text.classes_of_terms`.

    Returns:
        `(model, excluded)`: excluded is a Keras tensor, the classes that a
        question names itself. They are no answers.
    """
    query = keras.Input((), dtype="string", name="text")
    ids = WordIds(vocabulary_path, name="word_ids")(query)
    parts = [*learned, begun]
    shares = [1 / len(learned)] * len(learned) + [SHARE]
    sums = [
        WordSum(idf, name=f"part_{i}", trainable=False)
        for i in range(len(parts))
    ]
    unit = [keras.layers.UnitNormalization()(layer(ids)) for layer in sums]
    features = keras.layers.Concatenate(name="features")(unit)
    head = tfxclass.layers.FullSoftmax(len(usual), use_bias=True)
    model = keras.Model(query, head(features))
    for layer, (embeddings, _) in zip(sums, parts):
        layer.embeddings.assign(embeddings)
    rows = [share * rows for share, (_, rows) in zip(shares, parts)]
    head.kernel.assign(ANSWER_SCALE * np.concatenate(rows, axis=1))
    head.bias.assign(ANSWER_SCALE * (1 + SHARE) * usual)
    return model, AskedClasses(asked, name="asked")(ids)


def encoder_of(answering):
    """The part of a model of `make_answering` that ends in the features."""
    return keras.Model(answering.inputs, answering.get_layer("features").output)
