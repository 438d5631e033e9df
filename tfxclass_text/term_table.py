"""Vocabularies and rows of texts, which are read batch by batch."""

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfxclass.types import Columns
from tfxclass_text import columns as columns_lib
from tfxclass_text import fields as fields_lib
from tfxclass_text.corpus import Corpus
from tfxclass_text.corpus import slices
from tfxclass_text.fields import Field
from tfxclass_text.fields import Vocabulary
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.sparse_rows import side_by_side
from tfxclass_text.sparse_rows import stack

# Hashes that wait to be counted: 16 MB.
_WAITING = 1 << 21


class TermCounts:
    """How many texts have each term, of terms that come in batches.

    Memory is 16 bytes for each distinct term, and some terms that wait.
    """

    def __init__(self) -> None:
        # The terms, ascending, and how many texts have each.
        self.hashes = np.zeros(0, np.int64)
        self.texts = np.zeros(0, np.int64)
        # Sum of the squares of all counts or values.
        self.squares = 0.0
        self._waiting, self._size = list[Any](), 0

    def add(self, hashes: np.ndarray, counts: np.ndarray) -> None:
        """Counts the terms of some texts; `hashes` has each once a text."""
        self._waiting.append(hashes)
        self._size += len(hashes)
        self.squares += float(np.sum(np.square(counts, dtype=np.float64)))
        if self._size > max(_WAITING, len(self.hashes)):
            self.merge()

    def merge(self) -> "TermCounts":
        """Counts the terms that wait; returns the same object."""
        if self._waiting:
            new, texts = np.unique(
                np.concatenate(self._waiting), return_counts=True
            )
            self._waiting, self._size = [], 0
            self.hashes, self.texts = sum_by_key(
                np.concatenate([self.hashes, new]),
                np.concatenate([self.texts, texts]),
            )
        return self


def sum_by_key(
    keys: np.ndarray, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Distinct keys, ascending, and the sums of their numbers."""
    if not len(keys):
        return keys, numbers
    # A stable sort is quick where parts are sorted already.
    order = np.argsort(keys, kind="stable")
    keys, numbers = keys[order], numbers[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    return keys[first], np.add.reduceat(numbers, first)


def count(batches: Iterable[Columns], fields: list[Field]) -> list[TermCounts]:
    """`TermCounts` of each field."""
    found = [TermCounts() for _ in fields]
    for columns in batches:
        terms = fields_lib.read_terms(columns, fields)
        for of_field, (_, hashes, counts) in zip(found, terms, strict=True):
            of_field.add(hashes, counts)
    return [of_field.merge() for of_field in found]


def vocabularies_of(
    batches: Iterable[Columns], fields: list[Field], size: int
) -> list[Vocabulary]:
    """The `Vocabulary` of each field, of `size` texts."""
    return [
        fields_lib.learn(field, size, x.hashes, x.texts, x.squares)
        for field, x in zip(fields, count(batches, fields), strict=True)
    ]


def rows_of(
    batches: Iterable[Columns],
    fields: Sequence[Field],
    vocabularies: Sequence[Vocabulary],
) -> list[SparseRows]:
    """The rows of all texts, by field."""
    parts = [list[SparseRows]() for _ in fields]
    for columns in batches:
        size = columns_lib.size(columns)
        terms = fields_lib.read_terms(columns, fields)
        for part, field, vocabulary, counted in zip(
            parts, fields, vocabularies, terms, strict=True
        ):
            found = fields_lib.weigh(field, vocabulary, counted, size)
            part.append(found.with_ids(found.ids.astype(np.int32)))
    return [stack(*part) for part in parts]


class TermTable:
    """Features of the texts, by field; joined as they are asked for."""

    def __init__(self, fields: list[Field], corpus: Corpus) -> None:
        learned = vocabularies_of(corpus.batches(), fields, corpus.size)
        self.vocabularies = dict(zip(fields, learned))
        self._parts = self._rows(corpus.batches())
        self._joined: tuple[Any, Any] = None, None

    def _rows(self, batches):
        fields, vocabularies = zip(*self.vocabularies.items())
        return dict(zip(fields, rows_of(batches, fields, vocabularies)))

    def read(self, columns: Columns) -> dict[Field, SparseRows]:
        """`SparseRows` of other texts, by field."""
        return self._rows(slices(columns))

    def take(self, rows: np.ndarray) -> dict[Field, SparseRows]:
        """`SparseRows` of some of the texts, by field."""
        return {field: part.take(rows) for field, part in self._parts.items()}

    def join(
        self,
        fields: Sequence[Field],
        parts: dict[Field, SparseRows] | None = None,
        most: int | None = None,
    ) -> SparseRows:
        """`SparseRows` of the fields, of `parts` or of all texts.

        `most` is how many terms of each text are taken, the heaviest.
        """
        sizes = [len(self.vocabularies[field].hashes) for field in fields]
        if parts is not None:
            rows = side_by_side([parts[field] for field in fields], sizes)
            return rows if most is None else rows.heaviest(most)
        # The last ones are often asked for again.
        if self._joined[0] != (fields, most):
            self._joined = None, None
            self._joined = (fields, most), self.join(fields, self._parts, most)
        return self._joined[1]

    def size_of(self, fields: Iterable[Field]) -> int:
        """Number of terms of the fields' vocabularies."""
        return sum(len(self.vocabularies[field].hashes) for field in fields)

    def num_entries(self, fields: Iterable[Field]) -> int:
        """Terms of all texts, by the given fields."""
        return sum(len(self._parts[field].ids) for field in fields)
