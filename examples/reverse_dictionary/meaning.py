"""What is known before training: words by their definitions, and how usual
each word is."""

import collections

import keras
import numpy as np
import scipy.sparse
import tensorflow as tf

from examples.reverse_dictionary import data
from examples.reverse_dictionary import text

# Of the logarithms of counts, and for each phrase; chosen on GCIDE's other
# sample. In units of the cosine.
COUNTS, PHRASE = 0.01, 0.06


def classes_of(labels, num_classes):
    """Sparse float32 `[num_classes, n]`: which texts are of each class.

    Args:
        labels: int `[n, p]`, -1 is padding.
        num_classes: int.
    """
    row, column = np.nonzero(labels >= 0)
    return scipy.sparse.csr_matrix(
        (np.ones(len(row), "float32"), (labels[row, column], row)),
        shape=(num_classes, len(labels)),
    )


def expanded(first, terms, words, rows):
    """Embeddings of terms that also say what defines each of them.

    A word becomes the sum of its own random direction and of its definitions'
    in the same projection, so that "flightless" is near "incapable of flying"
    before anything is learned. A stem gets what its words have.

    Args:
        first: float `[vocabulary, dim]`, random.
        terms: bytes `[vocabulary]`, from `text.make_vocabulary`.
        words: list of str, the classes.
        rows: float `[num_classes, dim]`, the classes' texts under `first`.

    Returns:
        float32 `[vocabulary, dim]`.
    """
    at = {term: i for i, term in enumerate(terms)}
    defined = np.zeros_like(first)
    for word, row in zip(words, rows):
        if word.encode() in at:
            defined[at[word.encode()]] = row
    plain = [term for term in terms if not term.startswith(b"_")]
    pairs = [
        (at[stem], at[word])
        for stem, word in zip(text.stems(tf.constant(plain)).numpy(), plain)
        if stem in at
    ]
    of_stems = np.zeros_like(first)
    stem, word = np.array(pairs).T
    np.add.at(of_stems, stem, defined[word])
    meant = keras.utils.normalize(defined) + keras.utils.normalize(of_stems)
    return (first + keras.utils.normalize(meant)) / np.float32(2**0.5)


def usualness(words, texts):
    """What each class gains because people use it, float32 `[num_classes]`.

    WordNet counts how often a text of its corpus meant a word; its own glosses
    and examples use some words more than others; and phrases are seldom meant.

    Args:
        words: list of str, the classes.
        texts: iterable of str.
    """
    counts = data.read_counts()
    used = collections.Counter()
    for line in texts:
        used.update(data.normalized(line).split())
    gain = [
        COUNTS * (np.log1p(counts[word]) + np.log1p(used[word]))
        - PHRASE * (" " in word)
        for word in words
    ]
    return np.array(gain, "float32")
