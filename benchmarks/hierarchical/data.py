"""Documents and their labels, prepared as the paper did.

The paper (Mohammed & Umaashankar, Effectiveness of Hierarchical Softmax in
Large Scale Classification Tasks, 2018) keeps the n most frequent labels, drops
the others and the rows left without one, splits 70 to 30, and predicts k
labels a row, the rounded mean. A row is the set of its words, as fastText and
we are both given it; features are the mean of their vectors.
"""

import itertools
import re
from typing import NamedTuple

import numpy as np

from benchmarks import files
from benchmarks import measure

PARTS = ("train", "dev", "test_a")
TRAIN_SHARE, VALIDATION_SHARE = 0.7, 0.1


class Rows(NamedTuple):
    """ids int64 `[rows, longest]`, words padded with 0; values float32, 1 over
    the number of words, 0 at padding; labels int64 `[rows, p]`, -1 padded."""

    ids: np.ndarray
    values: np.ndarray
    labels: np.ndarray

    def part(self, at):
        return Rows(*(x[at] for x in self))


class Set(NamedTuple):
    """Train, validation and test rows, and what they are of."""

    train: Rows
    validation: Rows
    test: Rows
    num_words: int
    num_classes: int
    k: int


def eurlex(folder, num_classes):
    paths = (f"{folder}/eurlex57k/{part}.xc.txt.xz" for part in PARTS)
    labels, counts = zip(*itertools.chain.from_iterable(map(files.xc, paths)))
    return make_set([list(words) for words in counts], labels, num_classes)


def yso(folder, num_classes, num_rows=50_000):
    """Library titles -> YSO subjects: the first `num_rows` of all titles."""
    path = f"{folder}/yso_finna_en/titles_subjects.tsv.xz"
    pairs = list(itertools.islice(files.tsv(path), num_rows))
    words, classes = {}, {}
    ids = [
        [words.setdefault(w, len(words)) for w in re.findall(r"\w+", x.lower())]
        for x, _ in pairs
    ]
    labels = [
        [classes.setdefault(c, len(classes)) for c in subjects.split()]
        for _, subjects in pairs
    ]
    return make_set(ids, labels, num_classes)


def make_set(words, labels, num_classes):
    """The `num_classes` most frequent labels, numbered by frequency."""
    counts = np.bincount(np.concatenate([np.array(x, int) for x in labels]))
    kept = np.argsort(-counts, kind="stable")[:num_classes]
    number = {int(c): i for i, c in enumerate(kept)}
    labels = [[number[c] for c in row if c in number] for row in labels]
    rows = [i for i, row in enumerate(labels) if row and words[i]]
    mean = np.mean([len(labels[i]) for i in rows])
    order = np.random.default_rng(0).permutation(rows)
    num_train = round(TRAIN_SHARE * len(order))
    num_fit = round((1 - VALIDATION_SHARE) * num_train)
    parts = [
        make_rows([words[i] for i in part], [labels[i] for i in part])
        for part in (
            order[:num_train],
            order[num_fit:num_train],
            order[num_train:],
        )
    ]
    num_words = 1 + max(max(words[i]) for i in rows)
    return Set(*parts, num_words, len(kept), max(round(mean), 1))


def for_search(data):
    """The set to choose a learning rate on: validation rows for a test."""
    num_fit = len(data.train.ids) - len(data.validation.ids)
    return data._replace(
        train=data.train.part(slice(num_fit)), test=data.validation
    )


def make_rows(words, labels):
    ids = files.padded([sorted(set(row)) for row in words], 0)
    sizes = np.array([len(set(row)) for row in words])
    shown = np.arange(ids.shape[1]) < sizes[:, None]
    values = (shown / sizes[:, None]).astype(np.float32)
    return Rows(ids, values, files.padded(labels, -1))


def scores(labels, predicted, num_classes, k):
    """`macro_scores` of the first k, and rows with a label among the first 1
    and 10 that are predicted."""
    same = (predicted[:, :, None] == labels[:, None, :]).any(axis=2)
    same &= predicted >= 0
    return {
        **macro_scores(labels, predicted[:, :k], num_classes),
        "at_1": float(same[:, :1].any(axis=1).mean()),
        "at_10": float(same[:, :10].any(axis=1).mean()),
    }


def macro_scores(labels, predicted, num_classes):
    hits, found, wanted = class_counts(labels, predicted, num_classes)
    precision = float(np.mean(hits / np.maximum(found, 1)))
    recall = float(np.mean(hits / np.maximum(wanted, 1)))
    f1 = 2 * precision * recall / max(precision + recall, 1e-12)
    return {"precision": precision, "recall": recall, "f1": f1}


def class_counts(labels, predicted, num_classes):
    """Of each class: right predictions, predictions, labels; -1 is padding."""
    rows = np.arange(len(labels))[:, None]
    # A cell of [rows, classes] as a number.
    wanted, found = (
        np.unique((rows * num_classes + ids)[ids >= 0])
        for ids in (labels, predicted)
    )
    hits = np.intersect1d(wanted, found, assume_unique=True)
    return [
        np.bincount(x % num_classes, minlength=num_classes)
        for x in (hits, found, wanted)
    ]


def load(name, folder, num_classes):
    """The set of that name, kept for the next process in the cache."""
    read = {"eurlex57k": eurlex, "yso": yso}[name]
    return measure.pickled(
        f"hierarchical/{name}-{num_classes}", lambda: read(folder, num_classes)
    )
