"""Files of texts and tags: JSON lines, CSV, Parquet, and the XC format."""

import csv
import json
import os
import sys
from collections.abc import Sequence

import numpy as np

from tfxclass.data import XCFile
from tfxclass.text.fields import Field
from tfxclass.types import Path

#: What a file is read as, by the end of its name.
SUFFIXES = (".jsonl", ".csv", ".tsv", ".parquet", ".txt", ".xc")
#: Of a text of the XC format.
_MOST_WORDS = 10**6
_OPENERS = {".gz": "gzip", ".xz": "lzma", ".bz2": "bz2"}


def read(
    path: Path, columns: Sequence[str], tags: str | None = None
) -> tuple[dict[str, list[str]], list[list[str]] | None]:
    """Columns of texts, and tags, of a file; read as a stream.

    A JSON line has a list of str, or one str, as its tags; a CSV or TSV file
    (with a header line) has them in one field, `|` between them; a Parquet
    file has a column of lists or of str. Of the XC format (`.xc`, `.txt`) each
    feature becomes a word, as often as its value says, and labels are tags.
    `.gz`, `.xz` and `.bz2` are decompressed.

    Args:
        path: str.
        columns: names of the columns to read as texts.
        tags: name of the column of the tags, None for none.

    Returns:
        `(texts, tags)`: a dict of lists of str, and a list of lists of str,
        None without.

    Raises:
        ValueError: a file of another kind, or a row without a column, or that
            is damaged, or no row with the column of the tags.
    """
    texts, names = {column: [] for column in columns}, []
    if _is_xc(path) and len(columns) != 1:
        raise ValueError(
            f"A file of the XC format has one column of texts. Received: "
            f"{list(columns)} for {os.fspath(path)!r}"
        )
    row, has_tags = {}, tags is None
    for number, row in _rows(os.fspath(path), [*columns, *_given(tags)]):
        for column in columns:
            texts[column].append(_text(path, number, row, column))
        if tags is not None:
            names.append(_names(path, number, row, tags))
            has_tags = has_tags or tags in row
    if row and not has_tags:
        raise ValueError(
            f"{os.fspath(path)}: no row has the column {tags!r} of the tags. "
            f"Received: {sorted(str(key) for key in row)}"
        )
    return texts, None if tags is None else names


def fields_of(path: Path, columns: Sequence[str]) -> list[Field] | None:
    """What a tagger reads of a file's texts; None where it chooses.

    The words of an XC file have no order, and their letters mean nothing.
    """
    if not _is_xc(path):
        return None
    return [Field(columns, min_count=1, max_share=1.0)]


def _is_xc(path):
    return _suffix(os.fspath(path)) in (".txt", ".xc")


def _suffix(path):
    plain, suffix = os.path.splitext(path)
    return os.path.splitext(plain)[1] if suffix in _OPENERS else suffix


def _given(tags):
    return [] if tags is None else [tags]


def _rows(path, columns):
    """Yields `(row number from 1, dict)`."""
    packing, suffix = os.path.splitext(path)[1], _suffix(path)
    if suffix == ".jsonl":
        return _json_lines(path, packing)
    if suffix in (".csv", ".tsv"):
        return _separated(path, packing, "," if suffix == ".csv" else "\t")
    if suffix == ".parquet":
        return _parquet(path, columns)
    if suffix in (".txt", ".xc"):
        return _xc(path, columns)
    raise ValueError(
        f"The name of a file must end in one of {SUFFIXES}, and .gz, .xz or "
        f".bz2 if it is packed. Received: {path!r}"
    )


def _open(path, packing):
    if packing not in _OPENERS:
        return open(path, encoding="utf-8", errors="replace", newline="")
    opener = __import__(_OPENERS[packing]).open
    return opener(path, "rt", encoding="utf-8", errors="replace", newline="")


def _json_lines(path, packing):
    with _open(path, packing) as f:
        for number, line in enumerate(f, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as e:
                raise ValueError(f"{path}, line {number}: {e}") from e
            if not isinstance(row, dict):
                raise ValueError(
                    f"{path}, line {number}: must be an object. Received: "
                    f"{line[:60]!r}"
                )
            yield number, row


def _separated(path, packing, delimiter):
    # A text may be longer than the module's 128 KiB.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with _open(path, packing) as f:
        try:
            yield from enumerate(csv.DictReader(f, delimiter=delimiter), 1)
        except csv.Error as e:
            raise ValueError(f"{path}: {e}") from e


def _parquet(path, columns):
    try:
        from pyarrow import parquet
    except ImportError as e:
        raise ImportError(
            "Parquet files need pyarrow: pip install 'tfxclass[parquet]'"
        ) from e
    number = 0
    for batch in parquet.ParquetFile(path).iter_batches(columns=columns):
        for row in batch.to_pylist():
            number += 1
            yield number, row


def _xc(path, columns):
    rows = XCFile(path)
    text, *tags = columns
    number = 0
    for features, labels in rows.batches(256):
        pairs = (
            features["feature_ids"].numpy(),
            features["feature_values"].numpy(),
        )
        for ids, values, own in zip(*pairs, labels.numpy()):
            number += 1
            row = {text: " ".join(_words(path, number, ids, values))}
            for name in tags:
                row[name] = [str(label) for label in own if label >= 0]
            yield number, row


def _words(path, number, ids, values):
    """Each feature as often as its value says, at least once."""
    if not np.sum(np.maximum(values, 0)) <= _MOST_WORDS:
        raise ValueError(
            f"{path}, row {number}: values are numbers of words here, in all "
            f"at most {_MOST_WORDS}. Received: a value of {np.max(values)}"
        )
    return [
        word
        for i, value in zip(ids, values)
        for word in [f"f{i}"] * max(round(float(value)), int(value > 0))
    ]


def _text(path, number, row, column):
    if row.get(column) is None:
        raise ValueError(
            f"{path}, row {number}: has no column {column!r}. Received: "
            f"{sorted(str(key) for key in row)}"
        )
    return str(row[column])


def _names(path, number, row, column):
    names = row.get(column)
    if names is None:
        return []
    if isinstance(names, str):
        return [name.strip() for name in names.split("|") if name.strip()]
    if not isinstance(names, list):
        names = [names]
    return [str(name) for name in names]
