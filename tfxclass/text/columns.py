"""What a tagger is given: columns of texts, and tags; checked."""

from collections.abc import Iterable
from collections.abc import Mapping

import numpy as np

from tfxclass.text.fields import Field
from tfxclass.types import Columns
from tfxclass.types import Tags
from tfxclass.types import Texts

#: Name of the column where the texts are a plain list.
TEXT = "text"
# Words of a text on average, up to which word order is read, too.
_SHORT = 40


def read(texts: Texts) -> Columns:
    """dict of lists of str or bytes, by name.

    Raises:
        ValueError: no texts, a text that is none, columns of different
            lengths or with names that a model's input cannot have.
    """
    if isinstance(texts, (str, bytes)):
        raise ValueError(
            "`texts` must be a list of texts, or a dict of such lists. "
            f"Received: one text {texts[:40]!r}"
        )
    columns = texts if isinstance(texts, Mapping) else {TEXT: texts}
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


def _text(name, number, text):
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise ValueError(
            f"Texts must be str. Received: {text!r} ({type(text).__name__}) "
            f"as text {number} of column {name!r}"
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
            f"Columns must be {sorted(expected)}. Received: {sorted(columns)}"
        )


def read_tags(tags: Tags, size: int) -> list[list[str]]:
    """Lists of distinct str, one a text.

    Raises:
        ValueError: not one for each text, a tag that is no str or is empty,
            or no tag at all.
    """
    if isinstance(tags, (str, bytes, Mapping)):
        raise ValueError(
            "`tags` must be a list with the tags of each text. Received: "
            f"{type(tags).__name__}"
        )
    names = [_names(number, of_text) for number, of_text in enumerate(tags)]
    if len(names) != size:
        raise ValueError(
            f"`tags` must have an item for each of the {size} texts. "
            f"Received: {len(names)}"
        )
    if not any(names):
        raise ValueError("`tags` must have a tag. Received: none.")
    return names


def _names(number, of_text):
    if isinstance(of_text, str):
        of_text = [of_text]
    try:
        names = list(dict.fromkeys(of_text))
        # NumPy's are str of a class of their own.
        names = [str(x) if isinstance(x, str) else x for x in names]
    except TypeError as e:
        raise ValueError(
            f"Tags must be lists of str, or one str. Received: {of_text!r} "
            f"for text {number}"
        ) from e
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(
                "A tag must be a str, not empty. Received: "
                f"{name!r} for text {number}"
            )
    return names


def padded_ids(names: list[list[str]], tags: list[str]) -> np.ndarray:
    """int64 `[texts, p]`, padded with -1; unknown names are numbered on."""
    numbers = {name: i for i, name in enumerate(tags)}
    ids = [
        [numbers.setdefault(name, len(numbers)) for name in of_text]
        for of_text in names
    ]
    padded = np.full((len(ids), max([1, *map(len, ids)])), -1, np.int64)
    for row, of_text in zip(padded, ids):
        row[: len(of_text)] = of_text
    return padded


def candidates(columns: Columns) -> list[list[Field]]:
    """Lists of `Field` to choose from, the plainest first."""
    short = [name for name, texts in columns.items() if _is_short(texts)]
    size = len(next(iter(columns.values())))
    # A term of few texts tells nothing, but of few texts there is no other.
    least = 3 if size >= 10_000 else 2
    if len(columns) == 1 and short:
        words = Field(short, longest=2, min_count=1)
        chars = Field(short, "chars", 2, 5, min_count=2)
        return [[words], [words, chars]]
    fields = [Field(columns, min_count=least)]
    if len(columns) > 1:
        fields += [
            Field([name], longest=2, max_share=1.0, weight=0.8)
            for name in short
        ]
    return [fields]


def check_fields(fields: list[Field], columns: Columns) -> None:
    """Raises ValueError where a field reads a column that there is not."""
    for field in fields:
        unknown = [name for name in field.columns if name not in columns]
        if unknown:
            raise ValueError(
                f"`fields` must be of columns of the texts, {list(columns)}. "
                f"Received: {field}"
            )


def _is_short(texts):
    some = texts[:: max(len(texts) // 1000, 1)]
    return np.mean([text.count(b" ") for text in some]) < _SHORT
