"""A slim class matrix in full width: V R^T."""

import zlib
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

from tfxclass.layers.full_softmax import FullSoftmax

# Numbers of a block of rows: 8 MiB of float32.
_BLOCK = 1 << 21


def row_blocks(count: int, dim: int) -> Iterator[slice]:
    """`[count, dim]` in blocks of rows that need little memory."""
    size = max(_BLOCK // dim, 1)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def full_dim(head: keras.layers.Layer) -> int:
    """Width of the features of a built head, int."""
    if isinstance(head, FullSoftmax):
        return head.kernel.shape[1]
    return head.projection.shape[0]


def back_projected_blocks(
    head: keras.layers.Layer,
) -> Iterator[tuple[int, np.ndarray]]:
    """The class matrix that has exactly the head's logits, block by block.

    Yields:
        `(first, rows)`: the first class and float32 `[size, dim]`; of a
        `FullSoftmax` its own rows.
    """
    first = 0
    for projection, rows in _parts(head):
        for at in row_blocks(rows.shape[0], full_dim(head)):
            block = rows[at]
            if projection is not None:
                block = tf.matmul(block, projection, transpose_b=True)
            yield first + at.start, block.numpy()
        first += rows.shape[0]


def checksum(head: keras.layers.Layer) -> int:
    """A number that tells the weights of a built head from others."""
    found = 0
    bias = getattr(head, "bias", None)
    for values in (*tf.nest.flatten(_parts(head)), bias):
        if values is None:
            continue
        values = tf.convert_to_tensor(values)
        for at in row_blocks(values.shape[0], values[:1].shape.num_elements()):
            found = zlib.crc32(np.ascontiguousarray(values[at]), found)
    return found


def back_projected(head: keras.layers.Layer) -> np.ndarray:
    """The whole of it, float32 `[num_classes, dim]`."""
    kernel = np.empty((head.num_classes, full_dim(head)), np.float32)
    for first, rows in back_projected_blocks(head):
        kernel[first : first + len(rows)] = rows
    return kernel


def _parts(head):
    if isinstance(head, FullSoftmax):
        return [(None, head.class_matrix())]
    return head.projected_rows()
