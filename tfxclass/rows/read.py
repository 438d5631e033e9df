"""Reads of class vectors and their biases."""

import tensorflow as tf

from tfxclass.ops import placement
from tfxclass.ops.stored_rows import StoredRows
from tfxclass.rows import products
from tfxclass.rows.class_rows import ClassRows


def gather(
    rows: ClassRows, ids: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Some rows; their gradients are row-sparse.

    Args:
        rows: `ClassRows`.
        ids: int64 of any shape, rows of `kernel`.

    Returns:
        `(kernel, bias)`: float32 `[..., dim]`, normalised if need be, and
        `[...]` or None.
    """
    kernel = placement.gather(rows.kernel, ids)
    if rows.normalize:
        kernel = products.normalize(kernel)
    if rows.bias is None:
        return kernel, None
    return kernel, placement.gather(rows.bias, ids)


def whole(rows: ClassRows) -> ClassRows:
    """`ClassRows` of tensors without padding."""

    def read(variable):
        if variable is None:
            return None
        if isinstance(variable, StoredRows):
            return variable.read()
        with placement.on(rows.device):
            values = tf.convert_to_tensor(variable)
        # The gradient of a slice is a copy.
        if rows.size is None or rows.size == values.shape[0]:
            return values
        return values[: rows.size]

    return rows._replace(kernel=read(rows.kernel), bias=read(rows.bias))
