"""The forms of class vectors in exports: as columns, or in int8."""

from typing import Any

import tensorflow as tf

from tfxclass.ops.stored_rows import StoredRows
from tfxclass.ops.stored_rows import zeros_variable
from tfxclass.types import Scalar

# Classes of a matrix of columns at most: 128 KiB of logits a query.
_WIDTH = 32_768
# Matrices that begin at a multiple of 16 floats are views.
_MULTIPLE = 16
# Products of a block of int8 rows: each of so many rows that they are 512 KiB
# as float32.
_PARTS = 16
_PART_FLOATS = 1 << 17
# Slices of int8 rows that begin at a multiple of it are views.
_ROW_MULTIPLE = 64


class ColumnRows(StoredRows):
    """Rows that are columns of one or more matrices.

    TensorFlow reads columns in longer runs: for one query and 147,306 classes
    of 128, a product with rows takes 1.5 to 2 times as long.

    Args:
        columns: float32 or bfloat16 variable or tensor `[m, dim, width]`; of
            more than one matrix, the last is padded with zeros.
        num_classes: int, rows without padding.
    """

    def __init__(self, columns: Any, num_classes: int) -> None:
        super().__init__()
        self.columns, self.num_classes = columns, num_classes

    @property
    def shape(self) -> tf.TensorShape:
        return tf.TensorShape([self.num_classes, self.columns.shape[1]])

    @property
    def block(self) -> int:
        return self.columns.shape[2]

    def read(self) -> "ColumnRows":
        return ColumnRows(tf.convert_to_tensor(self.columns), self.num_classes)

    def floats(self, ids: tf.Tensor) -> tf.Tensor:
        dim, width = self.columns.shape[1:]
        ids = ids[..., tf.newaxis]
        places = ids // width * dim + tf.range(dim, dtype=tf.int64)
        found = tf.gather(
            tf.reshape(self.columns, [-1]), places * width + ids % width
        )
        return tf.cast(found, tf.float32)

    def products(
        self, queries: tf.Tensor, start: Scalar, size: int
    ) -> tf.Tensor:
        count = -(-size // self.block)
        first = start // self.block
        part = tf.cast(self.columns[first : first + count], tf.float32)
        if count == 1:
            logits = tf.matmul(queries, part[0])
        else:
            logits = tf.transpose(tf.matmul(queries, part), [1, 0, 2])
            logits = tf.reshape(logits, [tf.shape(queries)[0], -1])
        if self.columns.shape[0] == 1:
            return logits
        return logits[:, : self.num_classes - start]


def in_columns(kernel: Any, width: int | None = None) -> ColumnRows:
    """`ColumnRows` of a float32 or bfloat16 matrix.

    A matrix has `width` classes at most: the temporaries stay small.
    """
    kernel = tf.convert_to_tensor(kernel)
    num_classes, dim = kernel.shape
    count = max(-(-num_classes // (width or _WIDTH)), 1)
    width = -(-num_classes // count)
    if count > 1:
        width = -(-width // _MULTIPLE) * _MULTIPLE
    shape = [count, dim, width]
    columns = zeros_variable(shape, kernel.dtype, "columns")
    for i in range(count):
        part = tf.transpose(kernel[i * width : (i + 1) * width])
        columns[i, :, : part.shape[1]].assign(part)
    return ColumnRows(columns, num_classes)


class Int8Rows(StoredRows):
    """Rows that are `scales * codes`: a quarter of the bytes.

    Stock TensorFlow has no int8 product that is fast on every CPU. So a few
    rows are made float32, in a level-2 cache, and multiplied there.

    Args:
        codes: int8 variable or tensor `[n, dim]`, in [-127, 127].
        scales: float32 `[n]`.
    """

    def __init__(self, codes: Any, scales: Any) -> None:
        super().__init__()
        self.codes, self.scales = codes, scales

    @property
    def shape(self) -> tf.TensorShape:
        return self.codes.shape

    @property
    def block(self) -> int:
        return _PARTS * _multiple(_PART_FLOATS // self.shape[1])

    def read(self) -> "Int8Rows":
        values = self.codes, self.scales
        return Int8Rows(*map(tf.convert_to_tensor, values))

    def floats(self, ids: tf.Tensor) -> tf.Tensor:
        codes = tf.cast(tf.gather(self.codes, ids), tf.float32)
        return codes * tf.gather(self.scales, ids)[..., tf.newaxis]

    def products(
        self, queries: tf.Tensor, start: Scalar, size: int
    ) -> tf.Tensor:
        """As `StoredRows.products`; any `start` and `size` will do."""
        found, step = [], _multiple(-(-size // _PARTS))
        for part in range(0, size, step):
            end = start + min(part + step, size)
            rows = tf.cast(self.codes[start + part : end], tf.float32)
            found.append(tf.matmul(rows, queries, transpose_b=True))
        scales = self.scales[start : start + size]
        return tf.transpose(tf.concat(found, axis=0)) * scales


def _multiple(count):
    """At least `count`, of whole slices."""
    return max(-(-count // _ROW_MULTIPLE), 1) * _ROW_MULTIPLE


def quantize(kernel: Any, block: int = 65_536) -> Int8Rows:
    """`Int8Rows` of a float32 or bfloat16 matrix, `block` rows at a time.

    Each row is divided by its greatest number over 127 and rounded: an error
    of at most 1/254 of that number.
    """
    kernel = tf.convert_to_tensor(kernel)
    codes = zeros_variable(kernel.shape, tf.int8)
    scales = zeros_variable(kernel.shape[:1], tf.float32)
    for start in range(0, kernel.shape[0], block):
        part = tf.cast(kernel[start : start + block], tf.float32)
        most = tf.reduce_max(tf.abs(part), axis=1) / 127.0
        rounded = tf.math.divide_no_nan(part, most[:, tf.newaxis])
        rounded = tf.cast(tf.round(rounded), tf.int8)
        codes[start : start + block].assign(rounded)
        scales[start : start + block].assign(most)
    return Int8Rows(codes, scales)
