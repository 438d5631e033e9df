"""Rows of the XC format as texts: a feature is a word, its value a count.

Where all values of a row are counts, each feature is there as often as its
value says: "f0 f0 f4". Otherwise each has its value: "f0:2.0 f4:0.3".
"""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass.data import XCFile
from tfxclass_text.file_rows import Row

# Words of a text; a row with a greater sum is one of values.
_MAX_WORDS = 10**6
_BATCH = 256


def rows(path: str, columns: Sequence[str]) -> Iterator[Row]:
    """Rows of an XC file.

    Args:
        path: str.
        columns: names of the columns of the texts and of the tags, or none.
    """
    text, *tags = columns
    number = 0
    for ids, values, labels in _batches(path):
        for own_ids, own_values, own in zip(ids, values, labels):
            number += 1
            row: dict[str, Any] = {text: " ".join(_words(own_ids, own_values))}
            for name in tags:
                row[name] = [str(label) for label in own if label >= 0]
            yield f"row {number}", row


def has_counts(path: str) -> bool:
    """Whether all values of a file are counts of words."""
    return all(np.all(_are_counts(values)) for _, values, _ in _batches(path))


def _batches(path):
    """Yields `(ids, values, labels)`, padded arrays `[batch, ...]`."""
    try:
        for features, labels in XCFile(path).batches(_BATCH):
            yield (
                features["feature_ids"].numpy(),
                features["feature_values"].numpy(),
                labels.numpy(),
            )
    except tf.errors.InvalidArgumentError as e:
        # TensorFlow's note on the node of the graph helps nobody.
        raise ValueError(e.message.split("\n")[0]) from e


def _are_counts(values):
    """bool `[...]` of values `[..., n]`."""
    whole = (values >= 0) & (values == np.floor(values))
    return np.all(whole, axis=-1) & (
        np.sum(values, axis=-1, dtype=np.float64) <= _MAX_WORDS
    )


def _words(ids, values):
    # Padding is zero, too.
    ids, values = ids[values != 0], values[values != 0]
    if _are_counts(values):
        return [f"f{i}" for i in np.repeat(ids, values.astype(np.int64))]
    # NumPy writes the digits that a float32 has, Python a double's.
    return [f"f{i}:{value}" for i, value in zip(ids, values.astype(str))]
