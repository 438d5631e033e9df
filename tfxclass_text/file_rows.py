"""Rows of files of texts, each a dict by column, and where it was found."""

import csv
import io
import json
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass import text_files
from tfxclass.data import XCFile

#: `("line 7", {"text": "...", "tags": ["..."]})`.
Row = tuple[str, dict[str, Any]]
# Words of a text of an XC file; a row with a greater sum is one of values.
_MAX_WORDS = 10**6
_BATCH = 256


def json_lines(path: str, encoding: str) -> Iterator[Row]:
    """Rows of a file with one JSON object a line; empty lines are skipped."""
    lines = text_files.read_lines(path, encoding)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_without_duplicates)
        except (ValueError, RecursionError) as e:
            raise ValueError(f"{path}, line {number}: no JSON: {e}") from e
        if not isinstance(row, dict):
            raise ValueError(
                f"{path}, line {number}: must be an object, as "
                f'{{"text": "...", "tags": ["..."]}}. Received: {line[:60]!r}'
            )
        yield f"line {number}", row


def _without_duplicates(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ValueError(f"names must be there once. Received twice: {twice}")
    return found


def _tsv_records(path, encoding):
    """Yields `(line, fields)`; a quote is text like any other."""
    lines = text_files.read_lines(path, encoding)
    for number, line in enumerate(lines, 1):
        if text := line.rstrip("\r\n"):
            yield number, text.split("\t")


def _csv_records(path, encoding):
    """Yields `(first line, fields)`; quoted fields may have line ends."""
    # A text may be longer than the module's 128 KiB.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    reader = csv.reader(text_files.read_lines(path, encoding), strict=True)
    first = 1
    try:
        for fields in reader:
            if fields:
                yield first, fields
            first = reader.line_num + 1
    except csv.Error as e:
        raise ValueError(
            f"{path}, line {first}: a quote in the row that begins here is "
            f"wrong or never closed ({e}). Write a quote within a field twice, "
            "and the field in quotes; or write a .tsv file, where quotes are "
            "text."
        ) from e


def with_header(
    path: str, columns: Sequence[str], encoding: str
) -> Iterator[Row]:
    """Rows of a CSV or TSV file with a header."""
    is_csv = text_files.endings(path)[0] == ".csv"
    read = _csv_records if is_csv else _tsv_records
    records = read(path, encoding)
    line, header = next(records, (1, None))
    if header is None:
        raise ValueError(
            f"{path}: is empty; the first line must be a header with the "
            f"columns {list(columns)}"
        )
    check_columns(path, columns, header)
    for number, (line, fields) in enumerate(records, 1):
        if len(fields) != len(header):
            raise ValueError(
                f"{path}, row {number} (line {line}): must have the "
                f"{len(header)} fields of the header {header}. Received: "
                f"{len(fields)} fields, {fields[:5]!r:.200}"
            )
        yield f"row {number} (line {line})", dict(zip(header, fields))


def check_columns(
    path: str, columns: Sequence[str], header: Sequence[str]
) -> None:
    """Raises ValueError unless a file has each of the columns once."""
    for column in columns:
        count = list(header).count(column)
        if count == 1:
            continue
        found = f"{count} columns" if count else "no column"
        hint = ""
        if any("\0" in name for name in header):
            hint = '. Its names have NULs: try encoding="utf-16"'
        raise ValueError(
            f"{path}: has {found} {column!r}. The first line of a CSV or TSV "
            f"file names its columns. Received: {sorted(header)[:20]}{hint}"
        )


def parquet(path: str, columns: Sequence[str]) -> Iterator[Row]:
    """Rows of a Parquet file."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as e:
        raise ImportError(
            "Parquet files need pyarrow: pip install 'tfxclass[parquet]'"
        ) from e
    number = 0
    try:
        file = parquet.ParquetFile(_unpacked(path))
        check_columns(path, columns, file.schema_arrow.names)
        for batch in file.iter_batches(columns=list(columns)):
            for row in batch.to_pylist():
                number += 1
                yield f"row {number}", row
    except pyarrow.ArrowException as e:
        raise ValueError(f"{path}: is damaged, or no Parquet: {e}") from e


def _unpacked(path):
    """The path of a file that is not packed, or else a stream."""
    if not text_files.endings(path)[1]:
        return path
    return io.BytesIO(b"".join(text_files.read_bytes(path, 1 << 20)))


def xc_rows(path: str, columns: Sequence[str]) -> Iterator[Row]:
    """Rows of an XC file as texts: a feature is a word, its value a count.

    Where all values of a row are counts, each feature is there as often as its
    value says: "f0 f0 f4". Otherwise each has its value: "f0:2.0 f4:0.3". The
    columns are one of texts, and one of tags or none.
    """
    text, *tags = columns
    number = 0
    for ids, values, labels in _batches(path):
        for own_ids, own_values, own in zip(ids, values, labels):
            number += 1
            row: dict[str, Any] = {text: " ".join(_words(own_ids, own_values))}
            for name in tags:
                row[name] = [str(label) for label in own if label >= 0]
            yield f"row {number}", row


def has_counts(path: str) -> bool:
    """Whether all values of a file are counts of words."""
    return all(np.all(_are_counts(values)) for _, values, _ in _batches(path))


def _batches(path):
    """Yields `(ids, values, labels)`, padded arrays `[batch, ...]`."""
    try:
        for features, labels in XCFile(path).batches(_BATCH):
            ids, values = features["feature_ids"], features["feature_values"]
            yield ids.numpy(), values.numpy(), labels.numpy()
    except tf.errors.InvalidArgumentError as e:
        # TensorFlow's notes on the node of the graph help nobody.
        told = e.message.split("\n")[0].split("}} ")[-1]
        raise ValueError(told.split("ValueError: ")[-1]) from e


def _are_counts(values):
    """bool `[...]` of values `[..., n]`."""
    whole = (values >= 0) & (values == np.floor(values))
    return np.all(whole, axis=-1) & (
        np.sum(values, axis=-1, dtype=np.float64) <= _MAX_WORDS
    )


def _words(ids, values):
    # Padding is zero, too.
    ids, values = ids[values != 0], values[values != 0]
    if _are_counts(values):
        return [f"f{i}" for i in np.repeat(ids, values.astype(np.int64))]
    # NumPy writes the digits that a float32 has, Python a double's.
    return [f"f{i}:{value}" for i, value in zip(ids, values.astype(str))]
