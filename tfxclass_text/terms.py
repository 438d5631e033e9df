"""Texts to terms, as 64-bit hashes, in stock TensorFlow ops.

The model and its export read texts so. Training counts the same terms by an op
of ours, in `Field.count`.
"""

import tensorflow as tf

#: Words or characters of the longest run.
MOST_TERMS = 64

# Odd factors of 64 bits mix the parts of an n-gram.
_FACTOR = -7046029254386353131
_BUCKETS = (1 << 63) - 1
_SPACE = 32
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"


def plain(texts: tf.Tensor) -> tf.Tensor:
    """Lower-case words of letters, marks and digits, a space between them.

    What is not UTF-8 is replaced.
    """
    # `lower` ends a text at a NUL.
    texts = tf.strings.unicode_transcode(
        texts, "UTF-8", "UTF-8", replace_control_characters=True
    )
    texts = tf.strings.lower(texts, "utf-8")
    texts = tf.strings.regex_replace(texts, r"[^\pL\pN\pM]+", " ")
    return tf.strings.strip(texts)


def word_ngrams(texts: tf.Tensor, longest: int) -> tuple[tf.Tensor, tf.Tensor]:
    """`(rows, hashes)` of the runs of up to `longest` words of plain texts."""
    words = tf.strings.split(texts)
    hashes = tf.strings.to_hash_bucket_fast(words.flat_values, _BUCKETS)
    return _runs(words.value_rowids(), hashes, 1, longest)


def char_ngrams(
    texts: tf.Tensor, shortest: int, longest: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """`(rows, hashes)` of runs of characters in the words of plain texts.

    A word's ends count as characters: a run may begin or end with one.
    """
    padded = tf.strings.join([" ", texts, " "])
    characters = tf.strings.unicode_decode(padded, "UTF-8")
    codes = tf.cast(characters.flat_values, tf.int64)
    # Another salt than words have.
    hashes = (codes + 1) * _FACTOR
    rows = characters.value_rowids()
    return _runs(rows, hashes, shortest, longest, codes == _SPACE)


def _runs(rows, hashes, shortest, longest, is_space=None):
    """Runs of neighbours in a row, no space inside."""
    found = []
    run, whole = hashes, tf.ones_like(rows, tf.bool)
    for length in range(1, longest + 1):
        if length > 1:
            # run[i] begins at i and is one longer than before.
            run = run[:-1] * _FACTOR + hashes[length - 1 :]
            whole = whole[:-1] & (rows[: -(length - 1)] == rows[length - 1 :])
        if is_space is not None and length > 2:
            whole &= ~is_space[length - 2 : -1]
        if length >= shortest:
            found.append((rows[: tf.size(run)], run * 31 + length, whole))
    rows, hashes, whole = (tf.concat(part, 0) for part in zip(*found))
    return tuple(of_mask(whole, rows, hashes))


def of_mask(mask: tf.Tensor, *parts: tf.Tensor) -> list[tf.Tensor]:
    """The entries of `[n]` tensors that a bool mask `[n]` keeps.

    `tf.boolean_mask` searches it for each tensor anew, with ops of its own.
    """
    kept = tf.where(mask)[:, 0]
    return [tf.gather(part, kept) for part in parts]


def run_names(
    texts: tf.Tensor, kind: str, shortest: int, longest: int
) -> tf.Tensor:
    """What `word_ngrams` or `char_ngrams` hashes, in the same order.

    Runs of characters are in quotes: a space in them is the end of a word.
    """
    if kind == "words":
        units, separator = tf.strings.split(texts), " "
    else:
        padded = tf.strings.join([" ", texts, " "])
        units, separator = tf.strings.unicode_split(padded, "UTF-8"), ""
    runs = [
        tf.strings.ngrams(units, length, separator).flat_values
        for length in range(shortest, longest + 1)
    ]
    names = tf.concat(runs, 0)
    if kind == "words":
        return names
    is_whole = ~tf.strings.regex_full_match(names, ".+ .+")
    return tf.strings.join(['"', *of_mask(is_whole, names), '"'])


def count(
    rows: tf.Tensor, terms: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """`(rows, terms, counts)`: how often each term is in each row.

    Each pair of row and term is there once, in the order of the rows if `rows`
    ascend.
    """
    rows, terms, _, counts = _pairs(rows, terms)
    return rows, terms, tf.cast(counts, tf.float32)


def _pairs(rows, terms):
    """Distinct pairs: rows, terms, the pair of each input, and counts."""
    distinct, places = tf.unique(terms, tf.int64)
    size = tf.maximum(tf.size(distinct, tf.int64), 1)
    pairs, owners, counts = tf.unique_with_counts(rows * size + places)
    terms = tf.gather(distinct, pairs % size)
    return pairs // size, terms, owners, counts


def named_values(
    texts: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """`(rows, hashes, names, values)` of texts as "f0:0.5 f7:-1.25 f9".

    A word without a number behind its last colon has value 1. The values are
    strings.
    """
    words = tf.strings.split(texts)
    rows, words = words.value_rowids(), words.flat_values
    has_value = tf.strings.regex_full_match(words, f".+:{_NUMBER}")
    numbers = tf.where(
        has_value, tf.strings.regex_replace(words, "^.*:", ""), "1"
    )
    names = tf.where(
        has_value, tf.strings.regex_replace(words, ":[^:]*$", ""), words
    )
    hashes = tf.strings.to_hash_bucket_fast(names, _BUCKETS)
    return rows, hashes, names, numbers


def values_of(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """`(rows, hashes, values)` of the features of `named_values`' texts.

    Each pair of row and feature is there once, with the sum of its values, in
    the order of the rows.
    """
    rows, hashes, _, numbers = named_values(texts)
    rows, hashes, owners, counts = _pairs(rows, hashes)
    values = tf.math.unsorted_segment_sum(
        tf.strings.to_number(numbers), owners, tf.size(counts)
    )
    return rows, hashes, values
