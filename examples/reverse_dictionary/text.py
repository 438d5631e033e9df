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


def classes_of_terms(terms, words, most=4):
    """The words that a question with a term asks about in its own words.

    A word belongs to its term and to its stem.

    Args:
        terms: bytes `[vocabulary]`, from `make_vocabulary`.
        words: list of str, the classes.
        most: int, words of a stem.

    Returns:
        int64 `[vocabulary, most]`, class ids padded with -1.
    """
    at = {term: i for i, term in enumerate(terms)}
    found = np.full((len(terms), most), -1, "int64")
    sizes = np.zeros(len(terms), "int64")
    marked = stems(tf.constant(words)).numpy()
    for i, (word, stem) in enumerate(zip(words, marked)):
        for term in (word.encode(), stem):
            row = at.get(term)
            if row is not None and " " not in word and sizes[row] < most:
                found[row, sizes[row]] = i
                sizes[row] += 1
    return found


class AskedClasses(keras.layers.Layer):
    """Ids of terms `[batch, length]` to the classes that a question names.

    Returns:
        int64 `[batch, p]`, padded with -1; p is at most 64.

    Args:
        classes: from `classes_of_terms`.
    """

    def __init__(self, classes, **kwargs):
        super().__init__(**kwargs)
        self.classes = tf.Variable(classes, trainable=False)

    def call(self, ids):
        classes = tf.gather(self.classes, tf.maximum(ids, 0))
        classes = tf.where(ids[..., tf.newaxis] >= 0, classes, -1)
        classes = tf.reshape(classes, [tf.shape(ids)[0], -1])
        return tf.sort(classes, axis=1, direction="DESCENDING")[:, :64]

    def compute_output_spec(self, ids):
        return keras.KerasTensor((ids.shape[0], None), dtype="int64")


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
