"""Files of texts and tags: JSON lines, CSV, Parquet, and the XC format."""

import itertools
import os
import warnings
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from tfxclass import text_files
from tfxclass.checks import as_list
from tfxclass.checks import check_positive_int
from tfxclass.paths import local_path
from tfxclass.types import Path
from tfxclass_text import file_rows
from tfxclass_text import separators
from tfxclass_text.fields import Field

#: `(texts, tags)`: texts by column, and the tags of each, or None.
Batch = tuple[dict[str, list[str]], list[list[str]] | None]
#: What a file is read as, by the end of its name.
SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet", ".txt", ".xc")
# Rows whose tags tell whether the separator is the right one.
_CHECKED_ROWS = 10_000


def read(
    path: Path,
    columns: Sequence[str],
    tags: str | None = None,
    encoding: str = "utf-8",
    separator: str = "|",
) -> tuple[dict[str, list[str]], list[list[str]] | None]:
    """Columns of texts, and tags, of a file.

    The end of the name says what a file is: `.jsonl`, `.csv`, `.tsv`,
    `.parquet`, or the XC format (`.xc`, `.txt`). `.gz`, `.xz` and `.bz2` are
    decompressed. Empty lines are skipped, except in XC, where each is a row.
    Tags that are null, NaN or "" are left out.

    - A text is a str. In JSON lines and Parquet, tags are a list of str, or one
      str. In CSV and TSV they are one field, `separator` between them.
    - A row of the XC format whose values are counts has each feature as often
      as its value says, "f0 f0 f4". Another row has the values, "f0:-0.5
      f4:0.3", which a tagger reads with a field of the kind "values" (see
      `fields_of`). Labels are tags.

    Args:
        path: str or `os.PathLike`.
        columns: names of the columns to read as texts, or one name.
        tags: name of the column of the tags, None for none.
        encoding: str, of JSON lines, CSV and TSV; a name that Python knows,
            such as "cp1252".
        separator: str between the tags of a field of CSV and TSV; "" where a
            field is one tag.

    Returns:
        `(texts, tags)`: a dict of lists of str, and a list of lists of str,
        None without.

    Raises:
        ValueError: a file of another kind; a column that is missing or there
            twice; tags that clearly have another separator; or a damaged row.
            The message names the file and the row.
    """
    file = TextFile(path, columns, tags, encoding, separator)
    texts, names = {column: list[str]() for column in file.columns}, []
    for of_batch, tags_of_batch in file:
        for column in file.columns:
            texts[column] += of_batch[column]
        names += tags_of_batch or []
    return texts, None if tags is None else names


class TextFile:
    """A file of texts and tags that `Tagger.fit` reads in passes.

    Use it for a file that is larger than memory. Each iteration begins at the
    start of the file and gives batches `(texts, tags)`. The other arguments are
    as in `tfxclass.text.readers.read`, which reads the same files.

    Args:
        batch_size: int, texts of a batch.

    Example:

    >>> file = tfxclass.text.TextFile("titles.tsv.xz", ["title"], "subjects")
    >>> tagger.fit(file)
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str],
        tags: str | None = None,
        encoding: str = "utf-8",
        separator: str = "|",
        batch_size: int = 4096,
    ) -> None:
        self.path = local_path(path)
        if not os.path.isfile(self.path):
            raise FileNotFoundError(
                f"`path` must be a file. Received: {self.path!r}, which does "
                "not exist"
            )
        columns = as_list("columns", columns, "names", str)
        self.columns = list(dict.fromkeys(columns))
        text_files.check_encoding(encoding)
        if not isinstance(separator, str):
            raise ValueError(
                f"`separator` must be a str. Received: {separator!r}"
            )
        self.tags, self.encoding, self.separator = tags, encoding, separator
        self.batch_size = check_positive_int("batch_size", batch_size)
        self._is_checked = False

    def __iter__(self) -> Iterator[Batch]:
        rows = _rows(self.path, self.columns, self.tags, self.encoding)
        row, has_tags, fields = dict[str, Any](), self.tags is None, list[Any]()
        while batch := list(itertools.islice(rows, self.batch_size)):
            row, names = batch[-1][1], None
            texts = {
                column: [_text(self.path, at, x, column) for at, x in batch]
                for column in self.columns
            }
            if self.tags is not None:
                names = [
                    _names(self.path, at, x, self.tags, self.separator)
                    for at, x in batch
                ]
                has_tags = has_tags or any(self.tags in x for _, x in batch)
                if len(fields) < _CHECKED_ROWS:
                    fields += [x.get(self.tags) for _, x in batch]
            if len(fields) >= _CHECKED_ROWS or len(batch) < self.batch_size:
                self._check_separator(fields)
            yield texts, names
        if row and not has_tags:
            raise ValueError(
                f"{self.path}: no row has the column {self.tags!r} of the "
                f"tags. Received: {sorted(row)}"
            )
        self._check_separator(fields)

    def _check_separator(self, fields):
        """Refuses a separator that no tags have, if many have another one.

        Warns once if only some rows seem to have another one.
        """
        if self._is_checked or not _has_separators(self.path):
            return
        found = separators.other_separator(
            fields[:_CHECKED_ROWS], self.separator
        )
        if found is not None and not found.is_mixed:
            raise ValueError(self._separator_message(found))
        self._is_checked = True
        if found is not None:
            warnings.warn(self._separator_message(found), stacklevel=3)

    def _separator_message(self, found):
        other, given = found.separator, self.separator
        shown = f"{found.example[:60]!r} is read as one tag."
        if found.is_mixed:
            return (
                f"{self.path}: {found.fields} rows of the column {self.tags!r} "
                f"seem to have {other!r} between tags, and other rows have "
                f"{given!r}: {shown} Fix: write the same separator in all rows."
            )
        return (
            f"{self.path}: no tags of the column {self.tags!r} have the "
            f"separator {given!r} between them, but many have {other!r}: "
            f"{shown} Fix: separator={other!r}, or --separator {other!r} for "
            "the command. If these are single tags: separator='', or "
            "--separator ''."
        )


def fields_of(path: Path, columns: Sequence[str]) -> list[Field] | None:
    """What a tagger reads of a file's texts; None where it chooses.

    The words of an XC file have no order, and their letters mean nothing. If
    all values are counts, its texts are words, whose weights the tagger learns.
    Otherwise the values are the weights. Arguments are as in `read`.
    """
    path = local_path(path)
    if not _is_xc(path):
        return None
    kind = "words" if file_rows.has_counts(path) else "values"
    return [Field(columns, kind, min_count=1, max_share=1.0)]


def _has_separators(path):
    return text_files.endings(path)[0] in (".csv", ".tsv")


def _is_xc(path):
    return text_files.endings(path)[0] in (".txt", ".xc")


def _rows(path, columns, tags, encoding):
    """Yields `(place, dict)`."""
    suffix, _ = text_files.endings(path)
    wanted = [*columns, *([] if tags is None else [tags])]
    if suffix == ".jsonl":
        return file_rows.json_lines(path, encoding)
    if _has_separators(path):
        return file_rows.with_header(path, wanted, encoding)
    if suffix == ".parquet":
        return file_rows.parquet(path, wanted)
    if not _is_xc(path):
        raise ValueError(
            f"The name of a file must end in one of {SUFFIXES}, and .gz, .xz "
            f"or .bz2 if it is packed. Received: {path!r}"
        )
    if len(columns) != 1:
        raise ValueError(
            "A file of the XC format has one column of texts. Received: "
            f"{columns} for {path!r}"
        )
    return file_rows.xc_rows(path, wanted)


def _text(path, place, row, column):
    if column not in row:
        raise ValueError(
            f"{path}, {place}: has no column {column!r}. Received: "
            f"{sorted(row)}"
        )
    return _str(path, place, column, row[column], "a text")


def _names(path, place, row, column, separator):
    names = row.get(column)
    if _has_separators(path):
        names = names.split(separator) if separator else [names]
        names = [name.strip() for name in names]
    elif not isinstance(names, list):
        names = [names]
    return [
        _str(path, place, column, name, "a tag")
        for name in names
        # NaN is not itself.
        if name is not None and name != "" and name == name
    ]


def _str(path, place, column, value, what):
    if isinstance(value, bytes):
        # Parquet files of older writers do not say what is text.
        try:
            return value.decode()
        except UnicodeDecodeError as e:
            raise ValueError(
                f"{path}, {place}, column {column!r}: bytes must be UTF-8. "
                f"Received: {value[:40]!r}"
            ) from e
    if isinstance(value, str):
        return value
    received = "null" if value is None else repr(value)[:60]
    raise ValueError(
        f"{path}, {place}, column {column!r}: {what} must be a str. Received: "
        f"{received} ({type(value).__name__})"
    )
