"""A slim class matrix in full width: V R^T."""

from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf

# Numbers of a block of class vectors: 8 MiB of float32.
_BLOCK = 1 << 21


def row_blocks(count: int, dim: int) -> Iterator[slice]:
    """`[count, dim]` in blocks of rows that need little memory."""
    size = max(_BLOCK // dim, 1)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def back_projected_blocks(
    head: keras.layers.Layer,
) -> Iterator[tuple[slice, np.ndarray]]:
    """The class matrix that has exactly the head's logits, block by block.

    Yields:
        `(at, rows)`: a range of classes, and float32 `[size, dim]`.
    """
    first = 0
    for projection, rows in head.projected_rows():
        for at in row_blocks(rows.shape[0], head.projection.shape[0]):
            block = tf.matmul(rows[at], projection, transpose_b=True)
            yield slice(first + at.start, first + at.stop), block.numpy()
        first += rows.shape[0]


def back_projected(head: keras.layers.Layer) -> np.ndarray:
    """The whole of it, float32 `[num_classes, dim]`."""
    dim = head.projection.shape[0]
    kernel = np.empty((head.num_classes, dim), np.float32)
    for at, rows in back_projected_blocks(head):
        kernel[at] = rows
    return kernel
