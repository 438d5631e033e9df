"""What a tagger is given: columns of texts, and tags; checked."""

import itertools
import keyword
import numbers
import re
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfxclass import text_files
from tfxclass.checks import as_list
from tfxclass.types import Columns
from tfxclass.types import Texts
from tfxclass_text.fields import Field

#: Name of the column where the texts are a plain list.
TEXT = "text"


def read(texts: Texts) -> Columns:
    """Lists of bytes by column, checked."""
    if isinstance(texts, Iterable) and hasattr(texts, "batch_size"):
        raise ValueError(
            "`texts` must be a list of texts, or a dict of such lists. A "
            f"{type(texts).__name__} is for `fit` and `partial_fit`, without "
            "`tags`. Fix: read it with `tfxclass.text.readers.read`"
        )
    columns = _columns_of(texts)
    columns = {TEXT: texts} if columns is None else columns
    items = "texts (`tfxclass.text.readers.read` of a file), or a dict of these"
    columns = {x: as_list("texts", y, items) for x, y in columns.items()}
    if not columns or not any(columns.values()):
        raise ValueError("`texts` must have a text. Received: none.")
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(
            f"Columns must be of the same length. Received: {sizes}"
        )
    lower = [str(name).lower() for name in columns]
    for name, column in columns.items():
        if not _is_name(name) or lower.count(name.lower()) > 1:
            raise ValueError(
                "Names of columns must begin with a letter (A to Z), be of "
                "letters, digits and _, be no words of Python, and differ in "
                f"more than case alone. Received: {name!r}"
            )
        columns[name] = [_text(name, i, text) for i, text in enumerate(column)]
    return columns


def _is_name(name):
    """Whether a SavedModel can have a column of that name."""
    is_plain = re.fullmatch(r"[A-Za-z]\w*", str(name), re.A)
    return is_plain and str(name) not in (*keyword.kwlist, "self", "tag_id")


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
            f"Texts must be str. Received: {text!r:.60} "
            f"({type(text).__name__}) as text {number} of column {name!r}"
        )
    # Halves of surrogate pairs are str, but not UTF-8.
    return text.encode("utf-8", "replace")


def size(columns: Columns) -> int:
    """Number of texts, int."""
    return len(next(iter(columns.values())))


def take(columns: Columns, rows: np.ndarray) -> Columns:
    """The given texts, in their order."""
    return {name: [texts[i] for i in rows] for name, texts in columns.items()}


def check_same(columns: Iterable[str], expected: Iterable[str]) -> None:
    """Raises ValueError unless the names of the columns are those expected."""
    if set(columns) != set(expected):
        raise ValueError(
            "`texts` must be a dict of the columns that the tagger was fitted "
            f"to, {sorted(expected)}; a list is the column {TEXT!r}. Received: "
            f"{sorted(columns)}"
        )


def read_tags(tags: Any, size: int, some: bool = True) -> list[list[str | int]]:
    """Lists of distinct tags, one a text, of `Tagger.fit`'s `tags`, checked."""
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
    tags = as_list("tags", tags, "the tags of each text")
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
            f"{tag!r:.60} ({type(tag).__name__}) for text {number}. "
            "Fix: str(tag) or int(tag), or leave out texts without a tag"
        )
    raise ValueError(
        "A tag must be one line of text, without line breaks, NULs, "
        "lone surrogates and byte order marks: exports write one tag a "
        f"line. Received: {tag!r} for text {number}"
    )


def sorted_tags(tags: Iterable[str | int]) -> list[str | int]:
    """The distinct tags in order; they must be all ints or all str."""
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


def check_fields(fields: list[Field], columns: Columns) -> None:
    """Raises ValueError where a field reads a column that there is not."""
    for field in fields:
        if not isinstance(field, Field):
            raise ValueError(
                "`fields` must be a list of `tfxclass.text.Field`. Received: "
                f"{field!r:.60} in it"
            )
        unknown = [name for name in field.columns if name not in columns]
        if unknown:
            raise ValueError(
                f"`fields` must be of columns of the texts, {list(columns)}. "
                f"Received: {field}"
            )
