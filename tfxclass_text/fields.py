"""Fields: what is read from the columns of a text, and how it is weighed."""

import dataclasses
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxclass.checks import as_list
from tfxclass.checks import check_choice
from tfxclass.checks import check_fraction
from tfxclass.checks import check_positive
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.ops import library
from tfxclass.types import Columns
from tfxclass_text import terms
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.sparse_rows import from_pairs
from tfxclass_text.terms import MOST_TERMS

tf.no_gradient("Tfxclass>CountTerms")

#: `(rows, hashes, counts or values)`: int64, int64 and float32 `[pairs]`, an
#: entry a pair of text and term, ascending by text.
Terms = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Field:
    """Terms of one or more columns, with a vocabulary and a weight of its own.

    Args:
        columns: names of the columns that are read as one text, or one name.
        kind: `"words"`; `"chars"`, runs of characters within words; or
            `"values"`, features with their values, as "f0:0.5 f7:-1.25". A
            feature without a value has 1. Values are scaled by one number for
            all texts.
        shortest: int, words or characters of the shortest run.
        longest: int, of the longest.
        min_count: int, texts that a term of the vocabulary is in at least.
        max_share: float, share of the texts that it is in at most.
        weight: float, norm of the field's part of a row; of the kind
            `"values"`, the root of the rows' mean squared norm.
    """

    columns: Iterable[str] | str
    kind: str = "words"
    shortest: int = 1
    longest: int = 1
    min_count: int = 2
    max_share: float = 0.5
    weight: float = 1.0

    def __post_init__(self) -> None:
        columns = as_list("columns", self.columns, "names", str)
        object.__setattr__(self, "columns", tuple(columns))
        check_choice("kind", self.kind, ("words", "chars", "values"))
        for name in ("shortest", "longest", "min_count"):
            number = check_positive_int(name, getattr(self, name))
            object.__setattr__(self, name, number)
        is_shortest = self.kind != "words" or self.shortest == 1
        largest = 1 if self.kind == "values" else MOST_TERMS
        check_value("columns", columns, bool(columns), "names of columns")
        check_value("shortest", self.shortest, is_shortest, "1 for words")
        is_longest = self.shortest <= self.longest <= largest
        wanted = f"from `shortest` to {largest} for {self.kind}"
        check_value("longest", self.longest, is_longest, wanted)
        check_fraction("max_share", self.max_share)
        check_positive("weight", self.weight)

    def join(self, columns: dict[str, tf.Tensor]) -> tf.Tensor:
        """The text that is read, string `[n]`, of a dict by column."""
        texts = [columns[name] for name in self.columns]
        # A mark between the columns would be a word; a space parts them.
        return texts[0] if len(texts) == 1 else tf.strings.join(texts, " ")

    def _join_plain(self, plain):
        text = self.join(plain)
        if len(self.columns) == 1:
            return text
        # Empty columns leave spaces that are no characters of the text.
        return tf.strings.strip(tf.strings.regex_replace(text, " +", " "))

    def terms_of(
        self, plain: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`(rows, hashes)` of plain texts, a dict by column."""
        text = self._join_plain(plain)
        if self.kind == "words":
            return terms.word_ngrams(text, self.longest)
        return terms.char_ngrams(text, self.shortest, self.longest)

    def named_terms(
        self, texts: dict[str, tf.Tensor], plain: dict[str, tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """`(rows, hashes, names)` of the terms, each as often as it is read."""
        if self.kind == "values":
            return terms.named_values(self.join(texts))[:3]
        names = terms.run_names(
            self._join_plain(plain), self.kind, self.shortest, self.longest
        )
        return *self.terms_of(plain), names

    def count(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """`(rows, hashes, counts or values)` of texts of `texts_of`."""
        if self.kind == "values":
            return terms.values_of(texts)
        # A tenth of the time of `terms_of`, in parallel over the texts. The op
        # lower-cases and parts ASCII alone, so other texts must be plain.
        splits, hashes, counts = library.ops.tfxclass_count_terms(
            texts, kind=self.kind, shortest=self.shortest, longest=self.longest
        )
        ragged = tf.RaggedTensor.from_row_splits(hashes, splits, validate=False)
        return ragged.value_rowids(), hashes, counts


class Vocabulary(NamedTuple):
    """Terms of a field, int64 hashes in ascending order, and their idf."""

    hashes: np.ndarray
    idf: np.ndarray


def read_terms(columns: Columns, fields: Sequence[Field]) -> list[Terms]:
    """The terms of some texts by field, counted in each text."""
    found = []
    for field, texts in zip(fields, texts_of(columns, fields)):
        counted = field.count(tf.constant(texts, tf.string))
        rows, hashes, values = (x.numpy() for x in counted)
        is_sound = np.isfinite(values)
        if not is_sound.all():
            text = texts[rows[np.argmin(is_sound)]].decode("utf-8", "replace")
            wanted = "of features below 3.4e38"
            check_value("+".join(field.columns), text[:99], False, wanted)
        found.append((rows, hashes, values))
    return found


def texts_of(columns: Columns, fields: Sequence[Field]) -> list[list[bytes]]:
    """The texts of each field, as `Field.count` reads them."""
    ready = columns
    if any(field.kind != "values" for field in fields):
        ready = {name: _ready(texts) for name, texts in columns.items()}
    return [
        _joined(columns if field.kind == "values" else ready, field)
        for field in fields
    ]


def _joined(columns, field):
    return [b" ".join(x) for x in zip(*(columns[c] for c in field.columns))]


def _ready(texts):
    """The texts, `plain` where not all is ASCII."""
    others = [i for i, text in enumerate(texts) if not text.isascii()]
    if others:
        texts = list(texts)
        made = terms.plain(tf.constant([texts[i] for i in others])).numpy()
        for i, text in zip(others, made):
            texts[i] = text
    return texts


def learn(
    field: Field,
    size: int,
    distinct: np.ndarray,
    texts: np.ndarray,
    squares: float = 0.0,
    known: Vocabulary | None = None,
) -> Vocabulary:
    """The vocabulary of a field, of `size` texts.

    `distinct` are hashes, ascending, and `texts` how many texts have each. The
    idf is log((texts + 1) / (texts with the term + 1)) + 1, as scikit-learn's.
    For the kind `"values"` it is the same number for all terms, which makes the
    mean squared norm of the texts 1; `squares` is the sum of all squared
    values. No term of earlier texts, `known`, is forgotten, and the kind
    `"values"` keeps its number.
    """
    # Of few texts, a term may be in most of them and tell nothing yet.
    most = max(field.max_share * size, field.min_count)
    kept = (texts >= min(field.min_count, max(size // 2, 1))) & (texts <= most)
    if known is not None:
        kept |= np.isin(distinct, known.hashes)
    if field.kind == "values":
        scale = 1 / np.sqrt(squares / size) if squares else 1.0
        if known is not None and len(known.idf):
            scale = known.idf[0]
        idf = np.full(kept.sum(), scale)
    else:
        idf = np.log((size + 1) / (texts[kept] + 1)) + 1
    return Vocabulary(distinct[kept], idf.astype(np.float32))


def weigh(
    field: Field, vocabulary: Vocabulary, counted: Terms, size: int
) -> SparseRows:
    """TF-IDF of the terms of the vocabulary that `size` texts have.

    Values are (1 + log count) idf, each row's of norm `field.weight`. For the
    kind `"values"`, they are value * idf * `field.weight`.
    """
    rows, hashes, counts = counted
    if not len(vocabulary.hashes):
        return from_pairs(size, rows[:0], hashes[:0], counts[:0])
    # Ascending ones are found in a quarter of the time (measured).
    distinct, places = np.unique(hashes, return_inverse=True)
    ids = np.searchsorted(vocabulary.hashes, distinct)[places]
    ids = np.minimum(ids, len(vocabulary.hashes) - 1)
    known = vocabulary.hashes[ids] == hashes
    rows, ids, counts = rows[known], ids[known], counts[known]
    if field.kind == "values":
        values = counts * vocabulary.idf[ids] * np.float32(field.weight)
        return from_pairs(size, rows, ids, values)
    values = (1 + np.log(counts)) * vocabulary.idf[ids]
    norms = np.sqrt(np.bincount(rows, values**2, minlength=size))
    values *= field.weight / np.maximum(norms[rows], 1e-12)
    return from_pairs(size, rows, ids, values)
