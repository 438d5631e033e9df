"""Rows of weighted words with their labels, and a data set made of them."""

from typing import NamedTuple

import numpy as np

TEST_ROWS = 4000


class Rows(NamedTuple):
    """Rows of words, in compressed form, and their labels."""

    starts: np.ndarray  # int64; row i has words starts[i]:starts[i + 1]
    ids: np.ndarray  # int32, the words
    values: np.ndarray  # float32, weight of each word
    keep: np.ndarray  # float32, how often each word is shown in training
    labels: np.ndarray  # int64 [n, p], -1 is padding

    @property
    def num_rows(self):
        return len(self.labels)

    def positions(self, which):
        """`(row in the batch, position in ids)` of the words of `which`."""
        sizes = self.starts[which + 1] - self.starts[which]
        rows = np.repeat(np.arange(len(which)), sizes)
        first = np.repeat(np.cumsum(sizes) - sizes, sizes)
        return rows, self.starts[which][rows] + np.arange(len(rows)) - first

    def batch(self, which, length, random=None):
        """Words of `which`, all of them or, with `random`, a draw by `keep`.

        Returns:
            `{"ids": int32 [m, length], "values": float32 [m, length]}`;
            padding is id 0 with value 0.
        """
        rows, at = self.positions(which)
        if random is not None:
            kept = random.random(len(at), "float32") < self.keep[at]
            rows, at = rows[kept], at[kept]
        column = np.arange(len(rows)) - np.searchsorted(rows, rows)
        fits = column < length
        rows, at, column = rows[fits], at[fits], column[fits]
        ids = np.zeros((len(which), length), np.int32)
        values = np.zeros((len(which), length), np.float32)
        ids[rows, column] = self.ids[at]
        values[rows, column] = self.values[at]
        return {"ids": ids, "values": values}

    def take(self, which):
        _, at = self.positions(which)
        sizes = self.starts[which + 1] - self.starts[which]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        words = (part[at] for part in (self.ids, self.values, self.keep))
        return Rows(starts, *words, self.labels[which])


class DataSet(NamedTuple):
    """What a job trains on. Classes are numbered by frequency."""

    num_words: int
    length: int  # most words of a row in a batch
    counts: np.ndarray  # int64, rows of each class, falling
    train: Rows
    test: Rows

    @property
    def num_classes(self):
        return len(self.counts)


def make_set(num_words, length, num_classes, train, test):
    """A `DataSet` whose classes are renumbered, with a sample of the test."""
    present = train.labels[train.labels >= 0]
    counts = np.bincount(present, minlength=num_classes)
    order = np.argsort(-counts, kind="stable")
    numbers = np.empty(num_classes + 1, np.int64)
    numbers[order] = np.arange(num_classes)
    numbers[-1] = -1  # padding stays
    which = np.arange(test.num_rows)
    if len(which) > TEST_ROWS:
        random = np.random.default_rng(0)
        which = np.sort(random.choice(which, TEST_ROWS, replace=False))
    test = test.take(which)
    return DataSet(
        num_words,
        length,
        counts[order],
        train._replace(labels=numbers[train.labels]),
        test._replace(labels=numbers[test.labels]),
    )


def validation(data, one_in):
    """A `DataSet` whose test rows are one training row in `one_in`."""
    order = np.random.default_rng(0).permutation(data.train.num_rows)
    count = len(order) // one_in
    kept, held = (
        data.train.take(np.sort(which))
        for which in (order[count:], order[:count])
    )
    return make_set(data.num_words, data.length, data.num_classes, kept, held)
