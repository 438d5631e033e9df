"""Products of queries with class rows."""

import tensorflow as tf

from tfxclass.keras_internals import custom_gradient
from tfxclass.keras_internals import is_recorded
from tfxclass.ops import bfloat16_rows
from tfxclass.ops import library
from tfxclass.rows.class_rows import ClassRows

# Least squared norm by which a vector is divided: one shorter than 1e-3 counts
# as if it were that long. The gradient of a zero vector is then 1e3 times that
# of a unit one; with the 1e-12 of `tf.math.l2_normalize` it is 1e6 times, and
# drowns the batch. Fresh rows of 10M classes are longer.
EPSILON = 1e-6


def normalize(vectors: tf.Tensor) -> tf.Tensor:
    """Over their norms, along the last axis; zeros stay zeros. Stock ops."""
    return tf.math.l2_normalize(vectors, axis=-1, epsilon=EPSILON)


def inverse_norms(vectors: tf.Tensor) -> tf.Tensor:
    """The factors of `normalize`, float32 `[...]` for `[..., dim]`."""
    squares = tf.reduce_sum(tf.square(vectors), axis=-1)
    return tf.math.rsqrt(tf.maximum(squares, EPSILON))


def normalize_grad(
    vectors: tf.Tensor, normalized: tf.Tensor, upstream: tf.Tensor
) -> tf.Tensor:
    """Gradient of `normalize`; all `[..., dim]`."""
    squares = tf.reduce_sum(tf.square(vectors), axis=-1, keepdims=True)
    along = tf.reduce_sum(normalized * upstream, axis=-1, keepdims=True)
    along = tf.where(squares > EPSILON, along, 0.0)
    inverse = tf.math.rsqrt(tf.maximum(squares, EPSILON))
    return (upstream - along * normalized) * inverse


def row_products(queries: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """`queries . rows`, float32 `[batch, n]` of `[batch, dim]` and `[n, dim]`.

    As `tf.matmul(queries, rows, transpose_b=True)`, with a faster gradient
    where a tape is active. `model.export` saves the gradients of a graph too,
    and the faster one has a compiled op.
    """
    if not is_recorded():
        return tf.matmul(queries, rows, transpose_b=True)
    return _row_products(queries, rows)


@custom_gradient
def _row_products(queries, rows):
    def grad(upstream):
        return tf.matmul(upstream, rows), rows_grad(upstream, queries)

    return tf.matmul(queries, rows, transpose_b=True), grad


def rows_grad(upstream: tf.Tensor, queries: tf.Tensor) -> tf.Tensor:
    """Gradient of the rows, `upstream^T queries`, float32 `[n, dim]`.

    The library behind `tf.matmul` takes twice as long over a transposed left
    side as over this transpose and a plain product (measured with oneDNN).
    """
    transposed = library.ops.tfxclass_transpose(upstream)
    return tf.matmul(transposed, queries)


def all_products(queries: tf.Tensor, rows: ClassRows) -> tf.Tensor:
    """Logits of all classes of `ClassRows` of tensors, `[batch, classes]`."""
    kernel = bfloat16_rows.floats(rows.kernel)
    logits = row_products(queries, kernel)
    if rows.normalize:
        logits *= inverse_norms(kernel)
    return logits if rows.bias is None else logits + rows.bias
