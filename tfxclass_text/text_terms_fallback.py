"""Fallback of the counter of texts' terms, in the ops that an export has."""

import tensorflow as tf

from tfxclass.ops.fallback.registry import InvalidInput
from tfxclass.ops.fallback.registry import Strings
from tfxclass.ops.fallback.registry import check_choice
from tfxclass.ops.fallback.registry import check_number
from tfxclass.ops.fallback.registry import check_shape
from tfxclass.ops.fallback.registry import fallback
from tfxclass_text import terms

_MOST_TERMS = 64
# The ASCII bytes that are no digit and no lower-case letter.
_NO_WORD = r"[\x00-\x2f\x3a-\x60\x7b-\x7f]+"


@fallback
def count_terms(
    texts: Strings, kind: str, shortest: int, longest: int
) -> list[tf.Tensor]:
    """See `tfxclass_text.text_terms.count_terms`."""
    check_shape("texts", texts, [None])
    check_choice("kind", kind, ("words", "chars"))
    check_number("shortest", shortest, 1)
    check_number("longest", longest, 1)
    if longest > _MOST_TERMS:
        raise InvalidInput(
            f"`longest` must be at most {_MOST_TERMS}. Received: {longest}"
        )
    if shortest > longest:
        splits = tf.zeros(tf.size(texts) + 1, tf.int64)
        return [splits, tf.zeros(0, tf.int64), tf.zeros(0)]
    words = tf.strings.lower(texts)
    words = tf.strings.strip(tf.strings.regex_replace(words, _NO_WORD, " "))
    read = terms.char_ngrams if kind == "chars" else terms.word_ngrams
    rows, hashes = read(words, shortest=shortest, longest=longest)
    order = tf.argsort(rows, stable=True)
    rows, hashes, counts = terms.count(
        tf.gather(rows, order), tf.gather(hashes, order)
    )
    splits = tf.searchsorted(rows, tf.range(tf.size(texts, tf.int64) + 1))
    return [tf.cast(splits, tf.int64), hashes, counts]
