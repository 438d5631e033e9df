"""Text to word ids, in stock TensorFlow ops, and the vocabulary behind it."""

import keras
import numpy as np
import tensorflow as tf

_ENDINGS = (
    "ational|ization|fulness|ousness|iveness|ability|ibility|icity|ality|"
    "ically|ively|ously|fully|ation|able|ible|ical|icism|alism|ator|"
    "ally|ingly|edly|ness|ment|tion|sion|ings|ing|ies|ied|ity|ous|ive|ful|"
    "isms|ism|ists|ist|ate|ize|ers|ed|es|er|ly|al|ic|s|y|e"
)
# The lazy stem leaves the longest ending that matches.
_STEM = f"^(.{{4,}}?)(?:{_ENDINGS})?$"


def split(texts):
    """Words of each text and, marked by `_`, their stems: a RaggedTensor.

    Stems join what the inflection parts: "concentric" finds "concentricity".
    """
    plain = tf.strings.regex_replace(tf.strings.lower(texts), "[^a-z0-9]+", " ")
    words = tf.strings.split(plain)
    marked = words.with_flat_values(stems(words.flat_values))
    return tf.concat([words, marked], axis=1)


def stems(words):
    """The stem of each word, marked by `_`."""
    return tf.strings.join(["_", tf.strings.regex_replace(words, _STEM, r"\1")])


def split_all(texts):
    """`(terms, rows)` of a list of texts: strings, and the text of each."""
    terms = split(tf.constant(texts))
    return terms.flat_values, terms.value_rowids().numpy()


def make_vocabulary(columns, size, min_count=2):
    """The terms that `min_count` texts have, and how telling each is.

    Args:
        columns: list of `(terms, rows)`, from `split_all`.
        size: int, number of texts.
        min_count: int.

    Returns:
        `(terms, idf)`: bytes, and float32 log(texts / texts with the term).
    """
    terms, ids = tf.unique(tf.concat([terms for terms, _ in columns], 0))
    rows = np.concatenate([rows for _, rows in columns])
    # A term counts once a text.
    pairs = np.unique(ids.numpy().astype("int64") * size + rows)
    counts = np.bincount(pairs // size, minlength=len(terms))
    kept = counts >= min_count
    idf = np.log(size / counts[kept])
    return terms.numpy()[kept], idf.astype("float32")


class WordIds(keras.layers.Layer):
    """Raw text `[batch]` to ids `[batch, length]`, -1 for padding.

    Args:
        path: file with a term of the vocabulary a line; an asset of the
            exported model.
    """

    def __init__(self, path, **kwargs):
        super().__init__(**kwargs)
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                str(path),
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
            ),
            default_value=-1,
        )
        self.supports_jit = False

    def call(self, texts):
        return self.table.lookup(split(texts).to_tensor(""))

    def compute_output_spec(self, texts):
        return keras.KerasTensor((texts.shape[0], None), dtype="int64")
