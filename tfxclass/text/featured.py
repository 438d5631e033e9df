"""Features of a tagger's texts, read once and joined as they are tried."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tfxclass.text import columns as columns_lib
from tfxclass.text import fields as fields_lib
from tfxclass.text.fields import Field
from tfxclass.text.fields import Vocabulary
from tfxclass.text.sparse_rows import SparseRows
from tfxclass.text.sparse_rows import from_pairs
from tfxclass.types import Columns


class Featured:
    """Features of the texts, by field; joined as they are asked for.

    Args:
        fields: list of `Field`.
        columns: of the texts.
        tagger: `Tagger`.
        lighten: function of `SparseRows` to those that are learned from.
    """

    def __init__(
        self,
        fields: list[Field],
        columns: Columns,
        tagger: Any,
        lighten: Callable[[SparseRows], SparseRows],
    ) -> None:
        self.lighten = lighten
        self.fields = fields
        self.size = columns_lib.size(columns)
        tagger.say(f"reading {self.size} texts")
        read = fields_lib.read_terms(columns, fields)
        self.vocabularies = [
            fields_lib.learn(field, self.size, hashes, counts)
            for field, (_, hashes, counts) in zip(fields, read)
        ]
        self.parts = self._weigh(read, self.size)

    def _weigh(self, read, size):
        return [
            from_pairs(size, *fields_lib.weigh(*of_field, *terms, size))
            for *of_field, terms in zip(self.fields, self.vocabularies, read)
        ]

    def read(self, columns: Columns) -> list[SparseRows]:
        """`SparseRows` of other texts, by field."""
        read = fields_lib.read_terms(columns, self.fields)
        return self._weigh(read, columns_lib.size(columns))

    def take(self, rows: np.ndarray) -> list[SparseRows]:
        """`SparseRows` of some of the texts, by field."""
        return [part.take(rows) for part in self.parts]

    def join(
        self, fields: list[Field]
    ) -> tuple[list[Field], SparseRows, int, list[Vocabulary]]:
        """`(fields, rows, num_features, vocabularies)`."""
        vocabularies = [self.vocabularies[i] for i in self._numbers(fields)]
        count = max(sum(len(v.hashes) for v in vocabularies), 1)
        rows = self.lighten(self.join_held(fields, self.parts))
        return fields, rows, count, vocabularies

    def join_held(
        self, fields: list[Field], parts: list[SparseRows]
    ) -> SparseRows:
        """One `SparseRows` of parts by field, of the given fields."""
        first, flat = 0, []
        for i in self._numbers(fields):
            part = parts[i]
            flat.append((part.row_ids(), part.ids + first, part.values))
            first += len(self.vocabularies[i].hashes)
        rows, ids, values = (np.concatenate(x) for x in zip(*flat))
        return from_pairs(len(parts[0]), rows, ids, values)

    def _numbers(self, fields):
        return [self.fields.index(field) for field in fields]
