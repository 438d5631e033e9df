"""The data sets: texts for ours, and prepared rows for the others."""

import os
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.hierarchical.data import dictionary_texts
from tfxclass_text import fields as fields_lib
from tfxclass_text import readers
from tfxclass_text import sparse_rows
from tfxclass_text.fields import Field
from tfxclass_text.sparse_rows import SparseRows


class Set(NamedTuple):
    """A data set.

    Attributes:
        title: str.
        train, test: paths under the data folder, or "" where there is a
            `reader`.
        columns: names of the columns of the texts.
        tags: name of the column of the tags.
        fields: `Field`s that the other tools are given, each of norm
            `weight`; they have no reader of texts of their own.
        reader: function of the data folder to what `read` returns, or None.
    """

    title: str
    train: str
    test: str
    columns: tuple = ("text",)
    tags: str = "tags"
    fields: tuple = (Field(["text"], min_count=1, max_share=1.0),)
    reader: Callable | None = None


def _dictionary(folder):
    texts, labels, queries, words = dictionary_texts(
        folder, np.random.default_rng(0)
    )
    tags = [[words[c] for c in of_text] for of_text in labels]
    test_texts, test_tags = zip(*queries)
    return [
        ({"text": texts}, tags),
        ({"text": list(test_texts)}, [[words[c]] for c in test_tags]),
    ]


_EU = "eurlex57k/{}.jsonl.xz"
SETS = {
    "bibtex": Set(
        "Bibtex, 159 labels, bags of words",
        "bibtex/bibtex_train.txt.xz",
        "bibtex/bibtex_test.txt.xz",
    ),
    "delicious": Set(
        "Delicious, 983 labels, bags of words",
        "delicious/delicious_train.txt.xz",
        "delicious/delicious_test.txt.xz",
    ),
    "eurlex57k": Set(
        "EURLEX57K, 4,108 labels, title and text",
        _EU.format("train"),
        _EU.format("test_a"),
        ("title", "text"),
        "concepts",
        (
            Field(["title", "text"], min_count=3),
            Field(["title"], longest=2, max_share=1.0, weight=0.8),
        ),
    ),
    "reverse_dictionary": Set(
        "Reverse dictionary, 147,306 words of their definitions",
        "",
        "",
        reader=_dictionary,
    ),
}


def read(name, folder):
    """`(texts, tags)` to learn from, and such to be judged by."""
    one = SETS[name]
    if one.reader is not None:
        return one.reader(folder)
    return [
        readers.read(os.path.join(folder, path), one.columns, one.tags)
        for path in (one.train, one.test)
    ]


def fields_of(name, folder):
    """What the tagger reads of a set; None where it chooses."""
    one = SETS[name]
    if one.reader is not None:
        return None
    return readers.fields_of(os.path.join(folder, one.train), one.columns)


def prepare(name, folder, path):
    """Writes TF-IDF rows and labels, .npz; labels by their sorted names.

    Labels of no training row are numbered on, so that they count as missed.
    """
    (texts, tags), (test_texts, test_tags) = read(name, folder)
    numbers = {x: i for i, x in enumerate(sorted({x for t in tags for x in t}))}
    known = len(numbers)
    begin = time.process_time()
    x, test_x, num_features = _rows(SETS[name].fields, texts, test_texts)
    seconds = time.process_time() - begin
    arrays = {"num_features": num_features, "num_labels": known}
    arrays["tf_idf_s"] = seconds
    for key, rows in (
        ("x", x),
        ("test_x", test_x),
        ("y", _labels(tags, numbers)),
        ("test_y", _labels(test_tags, numbers)),
    ):
        arrays.update({f"{key}_{i}": part for i, part in enumerate(rows)})
    np.savez(path + ".part.npz", **arrays)
    os.replace(path + ".part.npz", path)


def _rows(fields, texts, test_texts):
    found, first = [], 0
    texts, test_texts = (
        {name: [text.encode() for text in column] for name, column in x.items()}
        for x in (texts, test_texts)
    )
    for field in fields:
        vocabulary = None
        parts = []
        for columns in (texts, test_texts):
            size = len(next(iter(columns.values())))
            ((rows, hashes, counts),) = fields_lib.read_terms(columns, [field])
            if vocabulary is None:
                vocabulary = fields_lib.learn(field, size, hashes, counts)
            rows, ids, values = fields_lib.weigh(
                field, vocabulary, rows, hashes, counts, size
            )
            parts.append((size, rows, ids + first, values))
        first += len(vocabulary.hashes)
        found.append(parts)
    joined = [_joined(of_set) for of_set in zip(*found)]
    return *joined, max(first, 1)


def _joined(parts):
    size = parts[0][0]
    rows, ids, values = (np.concatenate(x) for x in list(zip(*parts))[1:])
    return sparse_rows.from_pairs(size, rows, ids, values)


def _labels(tags, numbers):
    lists = [
        np.array([numbers.setdefault(x, len(numbers)) for x in of_text], int)
        for of_text in tags
    ]
    splits, ids = sparse_rows.ragged(lists)
    return SparseRows(splits, ids.astype(np.int64), np.ones(len(ids), "f4"))
