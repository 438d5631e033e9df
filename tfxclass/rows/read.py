"""The one door to class rows: brought up to date, then read.

An optimizer with `catch_up=True` leaves rows behind that no step touched.
Whoever reads rows here gets them, and their biases, as the dense optimizer
would have them.
"""

import tensorflow as tf

from tfxclass.ops import placement
from tfxclass.ops.stored_rows import StoredRows
from tfxclass.rows import catching_up
from tfxclass.rows import products
from tfxclass.rows.class_rows import ClassRows


def settle(rows: ClassRows, ids: tf.Tensor | None = None) -> None:
    """Brings the rows `ids` of `ClassRows`, or all, up to date."""
    for variable in (rows.kernel, rows.bias):
        if variable is not None:
            catching_up.catch_up(variable, ids)


def gather(
    rows: ClassRows, ids: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Some rows, settled; their gradients are row-sparse.

    Args:
        rows: `ClassRows`.
        ids: int64 of any shape, rows of `kernel`.

    Returns:
        `(kernel, bias)`: float32 `[..., dim]`, normalised if need be, and
        `[...]` or None.
    """
    settle(rows, ids)
    kernel = placement.gather(rows.kernel, ids)
    if rows.normalize:
        kernel = products.normalize(kernel)
    if rows.bias is None:
        return kernel, None
    return kernel, placement.gather(rows.bias, ids)


def whole(rows: ClassRows) -> ClassRows:
    """`ClassRows` of tensors without padding, as they are.

    Settle first, unless nothing is made of them.
    """

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
