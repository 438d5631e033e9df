"""The extreme-classification text format as a streaming pipeline."""

import codecs

import numpy as np
import tensorflow as tf

from tfxclass import text_files
from tfxclass.checks import check_optional_int
from tfxclass.checks import check_positive_int
from tfxclass.data import passes
from tfxclass.data.batches import without_autotune
from tfxclass.ops import library
from tfxclass.paths import local_path
from tfxclass.types import Path

_BLOCK_BYTES = 1 << 20
# No line is as long: what has no newlines is no text.
_MOST_LINE_BYTES = 1 << 26


class XCFile:
    r"""A data set in the text format of the Extreme Classification Repository.

    Use it to train on large sparse data sets. The first line is `rows features
    labels`. Each other line is one example, `l1,l2,... f:v f:v ...`: its class
    ids, and its features with their values. All ids start at 0. An example
    without labels starts with a space. The file is streamed, so memory holds
    only the shuffle buffer and a few batches. An error of a malformed line
    names the file, the line (the header is line 1) and what is wrong.

    Args:
        path: str, the file, in UTF-8; `.gz`, `.xz` and `.bz2` are unpacked.

    Attributes:
        num_rows: int, number of examples, from the header.
        num_features: int, number of features.
        num_classes: int, number of classes.

    Raises:
        ValueError: if the first line is not a header, or the file is damaged.

    Example:

    ```python
    with open("train.txt", "w") as f:
        f.write("2 5 3\n0,2 1:0.5 4:1.0\n1 0:2.0\n")
    train = tfxclass.data.XCFile("train.txt")
    batches = train.batches(2, num_epochs=1)
    for features, labels in batches:
        print(features["feature_ids"], labels)
    ```

    References:
        Bhatia et al., The Extreme Classification Repository, 2016,
        http://manikvarma.org/downloads/XC/XMLRepository.html
    """

    def __init__(self, path: Path) -> None:
        self.path = local_path(path)
        _, lines = next(self._text_blocks(), (1, [b""]))
        header = _parse_header(self.path, lines[0])
        self.num_rows, self.num_features, self.num_classes = header

    def batches(
        self,
        batch_size: int,
        shuffle_buffer_size: int | None = None,
        seed: int | None = None,
        num_epochs: int | None = 1,
        drop_remainder: bool = False,
    ) -> tf.data.Dataset:
        """Batches for `fit`, `evaluate` and `predict`.

        Args:
            batch_size: int, number of examples in a batch.
            shuffle_buffer_size: int, number of examples from which the next one
                is chosen at random. None keeps the order of the file.
            seed: int, seed of the shuffle.
            num_epochs: int, number of passes. None is without end.
            drop_remainder: bool, whether a last batch that is not full is left
                out.

        Returns:
            A `tf.data.Dataset` of `(features, labels)`. `features` is a dict of
            `"feature_ids"`, int64, and `"feature_values"`, float32, both
            `[batch, n]` for the longest example of the batch. Padding is
            feature 0 with value 0. `labels` is int64 `[batch, p]`, padded with
            -1 to the largest number of labels in the batch.

            Iterating it raises `InvalidArgumentError` for a malformed line, a
            number of lines that the header does not have, or a damaged file.
        """
        check_positive_int("batch_size", batch_size)
        check_optional_int("shuffle_buffer_size", shuffle_buffer_size)
        check_optional_int("num_epochs", num_epochs)
        count = tf.data.experimental.assert_cardinality(self.num_rows)
        lines = self._blocks().unbatch().apply(count)
        if shuffle_buffer_size is not None:
            # Unparsed, so that a row in the buffer is as small as in the file.
            lines = lines.shuffle(shuffle_buffer_size, seed=seed)
        batches = lines.repeat(num_epochs).batch(batch_size, drop_remainder)
        return batches.map(
            lambda *lines: _padded(self._parse(*lines)),
            num_parallel_calls=tf.data.AUTOTUNE,
        ).prefetch(tf.data.AUTOTUNE)

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """How often each feature and each class occurs, in one pass.

        They are `(feature_counts, label_counts)`, int64 `[num_features]` and
        `[num_classes]`. A repetition within an example counts again.
        """
        feature_counts = np.zeros(self.num_features, np.int64)
        label_counts = np.zeros(self.num_classes, np.int64)
        for rows in self._blocks().map(self._parse).prefetch(1):
            np.add.at(feature_counts, rows.features.numpy(), 1)
            np.add.at(label_counts, rows.labels.numpy(), 1)
        return feature_counts, label_counts

    def _blocks(self):
        """Dataset of `(line numbers, lines)`, about a MiB of text each."""
        return without_autotune(passes.dataset_of(self._row_blocks))

    def _row_blocks(self):
        end = 2
        for number, lines in self._text_blocks():
            if number == 1:
                number, lines = 2, lines[1:]
            end = number + len(lines)
            if end > self.num_rows + 2:
                raise ValueError(
                    f"{self.path}, line {self.num_rows + 2}: the header says "
                    f"{self.num_rows} rows, but here is another line"
                )
            yield np.arange(number, end), np.array(lines, object)
        if end < self.num_rows + 2:
            raise ValueError(
                f"{self.path}, line {end}: the header says {self.num_rows} "
                f"rows, but the file ends here, after {end - 2}"
            )

    def _text_blocks(self):
        """Yields `(number of the first line, lines)`, all of the file."""
        number, rest = 1, b""
        for chunk in text_files.read_bytes(self.path, _BLOCK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _MOST_LINE_BYTES:
                raise ValueError(
                    f"{self.path}, line {number + len(lines)}: longer than "
                    f"{_MOST_LINE_BYTES} bytes; is this a text file?"
                )
            if lines:
                yield number, lines
            number += len(lines)
        if rest:
            yield number, [rest]

    def _parse(self, line_numbers, lines):
        return library.ops.tfxclass_parse_xc_lines(
            lines,
            line_numbers,
            num_features=self.num_features,
            num_classes=self.num_classes,
            path=self.path,
        )


def _parse_header(path, line):
    text_files.check_bytes(path, line)
    fields = line.removeprefix(codecs.BOM_UTF8).split()
    # 18 digits: ids are 64-bit.
    if len(fields) != 3 or not all(
        field.isdigit() and len(field) <= 18 and int(field) for field in fields
    ):
        raise ValueError(
            f"{path}, line 1: the file must start with the header `rows "
            "features labels`, three positive integers. Received: "
            f"{line[:60]!r}"
        )
    return map(int, fields)


def _padded(rows):
    features = {
        "feature_ids": _matrix(rows.features, rows.feature_splits, 0),
        "feature_values": _matrix(rows.values, rows.feature_splits, 0),
    }
    return features, _matrix(rows.labels, rows.label_splits, -1)


def _matrix(values, splits, padding):
    rows = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
    # At least one column: not everything downstream takes [batch, 0].
    columns = tf.maximum(rows.bounding_shape(axis=1), 1)
    shape = tf.stack([tf.constant(-1, tf.int64), columns])
    matrix = rows.to_tensor(padding, shape=shape)
    return tf.ensure_shape(matrix, [rows.shape[0], None])
