"""What a tagger is given: columns of texts, and tags; checked."""

import dataclasses
import itertools
import numbers
import re
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass import text_files
from tfxclass.types import Columns
from tfxclass.types import Texts
from tfxclass_text import terms
from tfxclass_text.fields import Field
from tfxclass_text.sparse_rows import SparseRows

#: Name of the column where the texts are a plain list.
TEXT = "text"
# Words of a text on average, up to which word order is read, too.
_SHORT = 40
# Texts of a column, and bytes of a text, that tell what its words are like.
_SAMPLE, _MAX_BYTES = 1000, 2000
# Scripts that write words without spaces, or with their particles (Korean):
# Thai, Lao, Tibetan, Burmese, Khmer, Chinese, Japanese, Hangul.
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff"
    "\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff]"
)
# Spaces do not part words if more than this share of the letters is of such
# scripts, or if words have more letters than this on average.
_UNSPACED_SHARE, _LONG_WORD = 0.1, 15
# Characters of a wrong value that a message shows.
_SHOWN = 60
# Fewer texts have none that are held out to choose on.
_FEW_TEXTS = 200
# Words of a text on average, up to which they are few.
_FEW_WORDS = 3


def read(texts: Texts) -> Columns:
    """dict of lists of str or bytes, by name.

    Raises:
        ValueError: no texts, a text that is none, columns of different
            lengths or with names that a model's input cannot have.
    """
    if isinstance(texts, (str, bytes)):
        raise ValueError(
            "`texts` must be a list of texts, or a dict of such lists. "
            f"Received: one text {texts[:40]!r}. For a file: texts, tags = "
            "tfxclass.text.readers.read(path, columns, tags)"
        )
    if isinstance(texts, Iterable) and hasattr(texts, "batch_size"):
        raise ValueError(
            "`texts` must be a list of texts, or a dict of such lists. A "
            f"{type(texts).__name__} is for `fit` and `partial_fit`, without "
            "`tags`. Fix: read it with `tfxclass.text.readers.read`"
        )
    columns = _columns_of(texts)
    columns = {TEXT: texts} if columns is None else columns
    columns = {name: list(column) for name, column in columns.items()}
    if not columns or not any(columns.values()):
        raise ValueError("`texts` must have a text. Received: none.")
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            f"Columns must be of the same length. Received: {sizes}"
        )
    for name, column in columns.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(
                "Names of columns must be letters, digits and _. Received: "
                f"{name!r}"
            )
        columns[name] = [_text(name, i, text) for i, text in enumerate(column)]
    return columns


def _columns_of(table):
    """The columns of a dict, a data frame or another table; None of others."""
    if isinstance(table, Mapping):
        return table
    if hasattr(table, "to_pydict"):
        # Columns of pyarrow hold objects of its own.
        return table.to_pydict()
    names = getattr(table, "column_names", getattr(table, "columns", None))
    if names is None:
        return None
    names = list(names)
    if len(set(names)) < len(names):
        raise ValueError(
            f"Columns must have different names. Received: {names}"
        )
    return {name: table[name] for name in names}


def _text(name, number, text):
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise ValueError(
            f"Texts must be str. Received: {_short_repr(text)} "
            f"({type(text).__name__}) as text {number} of column {name!r}"
        )
    # Halves of surrogate pairs are str, but not UTF-8.
    return text.encode("utf-8", "replace")


def _short_repr(value):
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def size(columns: Columns) -> int:
    """Number of texts, int."""
    return len(next(iter(columns.values())))


def take(columns: Columns, rows: np.ndarray) -> Columns:
    """The given texts, in their order."""
    return {name: [texts[i] for i in rows] for name, texts in columns.items()}


def take_both(
    texts: tuple[Columns, SparseRows], rows: np.ndarray
) -> tuple[Columns, SparseRows]:
    """Some rows of `(columns, labels)`."""
    columns, labels = texts
    return take(columns, rows), labels.take(rows)


def check_same(columns: Iterable[str], expected: Iterable[str]) -> None:
    """Raises ValueError unless the names of the columns are those expected."""
    if set(columns) != set(expected):
        raise ValueError(
            "`texts` must be a dict of the columns that the tagger was fitted "
            f"to, {sorted(expected)}; a list is the column {TEXT!r}. Received: "
            f"{sorted(columns)}"
        )


def read_tags(tags: Any, size: int, some: bool = True) -> list[list[str | int]]:
    """Lists of distinct tags, one a text.

    Args:
        tags: of each text, a list of str or of ints, or one tag; or a table
            with one column of them.
        size: int, number of texts.
        some: whether there must be a tag.

    Raises:
        ValueError: not one for each text, no tag at all, or a tag that is no
            int and no str that a line of a labels file can hold.
    """
    if isinstance(tags, (str, bytes, Mapping)):
        raise ValueError(
            "`tags` must be a list with the tags of each text. Received: "
            f"{type(tags).__name__}"
        )
    columns = _columns_of(tags)
    if columns is not None:
        if len(columns) != 1:
            raise ValueError(
                "`tags` must be one column. Received: a "
                f"{type(tags).__name__} with the columns {list(columns)}. Fix: "
                "pass one of them, as table['tags']"
            )
        (tags,) = columns.values()
    if _is_indicator(tags):
        raise ValueError(
            "`tags` must be lists of tags. Received: an array of 0 and 1 of "
            f"the shape {tags.shape}. Fix: of a MultiLabelBinarizer, pass "
            "`binarizer.inverse_transform(array)`"
        )
    names = [_names(number, of_text) for number, of_text in enumerate(tags)]
    if len(names) != size:
        raise ValueError(
            f"`tags` must have an item for each of the {size} texts. "
            f"Received: {len(names)}"
        )
    if some and not any(names):
        raise ValueError("`tags` must have a tag. Received: none.")
    return names


def _is_indicator(tags):
    """Whether rows mark their tags by 1, which would be read as a tag."""
    if not isinstance(tags, np.ndarray):
        return hasattr(tags, "tocsr")
    is_matrix = tags.ndim == 2 and tags.shape[1] > 1
    return is_matrix and tags.dtype.kind in "biuf" and np.all(tags**2 == tags)


def _names(number, of_text):
    is_one = isinstance(of_text, (str, bytes))
    if is_one or not isinstance(of_text, Iterable):
        of_text = [of_text]
    return list(dict.fromkeys(_tag(number, tag) for tag in of_text))


def _tag(number, tag):
    # NumPy's str and ints are of classes of their own.
    if isinstance(tag, numbers.Integral) and not isinstance(tag, bool):
        return int(tag)
    if isinstance(tag, str) and text_files.is_one_line(tag):
        return str(tag)
    if not isinstance(tag, str) or not tag:
        raise ValueError(
            "A tag must be a str, not empty, or an int. Received: "
            f"{_short_repr(tag)} ({type(tag).__name__}) for text {number}. "
            "Fix: str(tag) or int(tag), or leave out texts without a tag"
        )
    raise ValueError(
        "A tag must be one line of text, without line breaks, NULs, "
        "lone surrogates and byte order marks: exports write one tag a "
        f"line. Received: {tag!r} for text {number}"
    )


def sorted_tags(tags: Iterable[str | int]) -> list[str | int]:
    """The distinct tags in order.

    Raises:
        ValueError: some are ints and others are str.
    """
    tags = set(tags)
    ints = [tag for tag in tags if isinstance(tag, int)]
    if 0 < len(ints) < len(tags):
        name = min(tag for tag in tags if isinstance(tag, str))
        raise ValueError(
            "Tags must be all ints or all str. Received: the int "
            f"{min(ints)} and the str {name!r}. Fix: str(tag) or int(tag) for "
            "each of them"
        )
    return sorted(tags)


def padded_ids(
    names: list[list[str | int]], tags: list[str | int]
) -> np.ndarray:
    """int64 `[texts, p]`, padded with -1; unknown tags are numbered on."""
    # They are of one kind.
    sorted_tags(itertools.chain(tags, *names))
    numbers = {name: i for i, name in enumerate(tags)}
    ids = [
        [numbers.setdefault(name, len(numbers)) for name in of_text]
        for of_text in names
    ]
    padded = np.full((len(ids), max([1, *map(len, ids)])), -1, np.int64)
    for row, of_text in zip(padded, ids):
        row[: len(of_text)] = of_text
    return padded


def candidates(
    columns: Columns, quick: bool = False, num_texts: int | None = None
) -> list[list[Field]]:
    """Lists of `Field` to choose from.

    The first list is used if there are too few texts to choose. It has
    characters of the columns whose words are not parted by spaces, and no words
    of these. Characters are an alternative where all columns are short, or a
    column has few words. So are terms of each of several columns alone; words
    of short columns always have them.

    Args:
        columns: of texts.
        quick: whether more runs of characters are left out, unless a column has
            few words.
        num_texts: int, of all texts where `columns` are of some; by default the
            texts of `columns`.
    """
    num_texts = size(columns) if num_texts is None else num_texts
    short = [name for name, texts in columns.items() if _is_short(texts)]
    words = _word_fields(columns, short, num_texts)
    kinds = {name: _kind(texts) for name, texts in columns.items()}
    unspaced = [name for name in columns if kinds[name] == "unspaced"]
    if unspaced:
        # A whole text that is one word tells nothing, and takes its share.
        rest = {x: texts for x, texts in columns.items() if x not in unspaced}
        others = _word_fields(rest, [x for x in short if x in rest], num_texts)
        # A term of one text has its share there, and none in new texts.
        pooled = [*others, Field(unspaced, "chars", 1, 3)]
        sets = _with_own(pooled, unspaced, "chars", 1, 3)
        if num_texts < _FEW_TEXTS:
            # They cost little, and a column that misleads costs much.
            sets = sets[::-1]
        seen_twice = [_seen_twice(field) for field in words]
        every = [*seen_twice, Field(unspaced, "chars", 1, 4)]
        return sets if quick else [*sets, every]
    sets = _with_own(words, [name for name in columns if name not in short])
    few = [name for name in columns if kinds[name] == "few"]
    some = short if len(short) == len(columns) and not quick else few
    if some:
        chars = [*words, Field(some, "chars", 2, 5)]
        sets += _with_own(chars, some, "chars", 2, 5)
    return sets


def _with_own(fields, names, *options):
    """Candidates: fields, and if there are several columns also their own.

    What a title says may mean something else in a text.
    """
    if len(names) < 2:
        return [fields]
    return [fields, [*fields, *(_own_field(name, *options) for name in names)]]


def _own_field(name, *options, **others):
    return Field([name], *options, max_share=1.0, weight=0.8, **others)


def embedding_fields(columns: Columns) -> list[Field] | None:
    """What embeddings are learned from, or None: what the classifiers read.

    For short columns these are words and characters. An embedding of a pair of
    words that few texts have would tell little.

    Args:
        columns: of texts.
    """
    short = [name for name, texts in columns.items() if _is_short(texts)]
    if not short or any(_kind(x) == "unspaced" for x in columns.values()):
        return None
    return [Field(columns), Field(short, "chars", 3, 5)]


def _word_fields(columns, short, num_texts):
    """The words of all columns, and word pairs of each short column."""
    if not columns:
        return []
    if len(columns) == 1 and short:
        return [Field(short, longest=2, min_count=1)]
    # A term of few texts tells nothing, but of few texts there is no other.
    fields = [Field(columns, min_count=3 if num_texts >= 10_000 else 2)]
    if len(columns) > 1:
        fields += [_own_field(name, longest=2) for name in short]
    return fields


def _seen_twice(field):
    return dataclasses.replace(field, min_count=max(field.min_count, 2))


def _kind(texts):
    """What the words of a column are like: "unspaced", "few" or "many"."""
    some = [text[:_MAX_BYTES] for text in _some(texts)]
    plain = terms.plain(tf.constant(some)).numpy()
    joined = b" ".join(plain).decode("utf-8")
    words = joined.split()
    letters = sum(map(len, words))
    unspaced = len(_UNSPACED.findall(joined)) > _UNSPACED_SHARE * letters
    if unspaced or letters > _LONG_WORD * len(words):
        return "unspaced"
    return "few" if len(words) <= _FEW_WORDS * len(plain) else "many"


def check_fields(fields: list[Field], columns: Columns) -> None:
    """Raises ValueError where a field reads a column that there is not."""
    for field in fields:
        if not isinstance(field, Field):
            raise ValueError(
                "`fields` must be a list of `tfxclass.text.Field`. Received: "
                f"{_short_repr(field)} in it"
            )
        unknown = [name for name in field.columns if name not in columns]
        if unknown:
            raise ValueError(
                f"`fields` must be of columns of the texts, {list(columns)}. "
                f"Received: {field}"
            )


def _is_short(texts):
    return np.mean([text.count(b" ") for text in _some(texts)]) < _SHORT


def _some(texts):
    return texts[:: max(len(texts) // _SAMPLE, 1)]
