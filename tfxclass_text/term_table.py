"""Features of a tagger's texts, read once and joined as they are tried."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tfxclass.types import Columns
from tfxclass_text import fields as fields_lib
from tfxclass_text import term_counts
from tfxclass_text.corpus import Corpus
from tfxclass_text.corpus import slices
from tfxclass_text.fields import Field
from tfxclass_text.fields import Vocabulary
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.sparse_rows import side_by_side


class TermTable:
    """Features of the texts, by field; joined as they are asked for.

    Args:
        fields: list of `Field`.
        corpus: `Corpus`, of the texts.
        lighten: function of `SparseRows` to those that are learned from.
    """

    def __init__(
        self,
        fields: list[Field],
        corpus: Corpus,
        lighten: Callable[[SparseRows], SparseRows],
    ) -> None:
        self.lighten = lighten
        self.fields = fields
        self.size = corpus.size
        counted, _ = term_counts.count(corpus.batches(), fields)
        self.vocabularies = [
            fields_lib.learn_counted(
                field, self.size, counts.hashes, counts.texts, counts.squares
            )
            for field, counts in zip(fields, counted, strict=True)
        ]
        del counted
        self.parts = self._rows(corpus.batches(), corpus.is_streamed)
        self._joined: tuple[Any, Any] = None, None

    def _rows(self, batches, on_disk=False):
        return term_counts.rows_of(
            batches, self.fields, self.vocabularies, on_disk
        )

    def read(self, columns: Columns) -> list[SparseRows]:
        """`SparseRows` of other texts, by field."""
        return self._rows(slices(columns))

    def take(self, rows: np.ndarray) -> list[SparseRows]:
        """`SparseRows` of some of the texts, by field."""
        return [part.take(rows) for part in self.parts]

    def join(
        self, fields: list[Field]
    ) -> tuple[list[Field], SparseRows, int, list[Vocabulary]]:
        """`(fields, rows, num_features, vocabularies)`."""
        vocabularies = self.vocabularies_of(fields)
        count = max(sum(len(v.hashes) for v in vocabularies), 1)
        # The last ones are often asked for again.
        if self._joined[0] != fields:
            rows = self.lighten(self.join_held(fields, self.parts))
            self._joined = fields, rows
        return fields, self._joined[1], count, vocabularies

    def vocabularies_of(self, fields: list[Field]) -> list[Vocabulary]:
        """The vocabulary of each field."""
        return [self.vocabularies[i] for i in self._numbers(fields)]

    def join_held(
        self, fields: list[Field], parts: list[SparseRows]
    ) -> SparseRows:
        """One `SparseRows` of parts by field, of the given fields."""
        numbers = self._numbers(fields)
        sizes = [len(self.vocabularies[i].hashes) for i in numbers]
        return side_by_side([parts[i] for i in numbers], sizes)

    def _numbers(self, fields):
        return [self.fields.index(field) for field in fields]
