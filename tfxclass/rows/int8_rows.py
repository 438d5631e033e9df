"""Class rows in int8 with a scale each: a quarter of the bytes, for exports.

Stock TensorFlow has no int8 product that is fast on every CPU. So a few rows
are made float32, in a level-2 cache, and multiplied there.
"""

from typing import Any

import tensorflow as tf

from tfxclass.ops.stored_rows import StoredRows
from tfxclass.ops.stored_rows import zeros_variable
from tfxclass.types import Scalar

# Products of a block of classes: each of so many rows that they are 512 KiB
# as float32.
_PARTS = 16
_PART_FLOATS = 1 << 17
# Slices that begin at a multiple of it are views.
_ROW_MULTIPLE = 64


class Int8Rows(StoredRows):
    """Rows that are `scales * codes`.

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
