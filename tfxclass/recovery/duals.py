"""The dual variables of some rows, times their features: (Y - P)^T X."""

import keras
import numpy as np
import tensorflow as tf

from tfxclass.losses import softmax
from tfxclass.ops import library
from tfxclass.recovery.rows import Rows
from tfxclass.rows import products
from tfxclass.rows import search
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.read import whole


def add_duals(
    total: np.ndarray, head: keras.layers.Layer, rows: Rows, top_k: int | None
) -> None:
    """Adds `(Y - P)^T diag(weights) X` of the rows to `total`.

    Args:
        total: float32 `[num_classes, dim]`.
        head: gives P, the probabilities of its classes.
        rows: `Rows`.
        top_k: int, probabilities kept of a row; None keeps all.

    Raises:
        FloatingPointError: NaN or infinite logits, with their first row; then
            `total` is as it was.
    """
    parts = head.parts(rows.features)
    # A row's dual times its weight: the same as its features.
    weighted = rows.features * rows.weights[:, tf.newaxis]
    if top_k is None:
        _add_all(total, parts, rows.targets, weighted)
    else:
        _add_top_k(total, parts, rows.targets, weighted, top_k)


def _add_all(total, parts, targets, weighted):
    found = [search.best(queries, part, 1) for queries, part in parts]
    logsumexp = search.merge(found, 1).logsumexp[:, 0]
    _check_finite(logsumexp)
    # Every class as if none were a label; labels are added below.
    no_labels = tf.fill([len(weighted), 1], tf.constant(-1, tf.int64))
    for queries, part in parts:
        blocks = Blocks(queries, whole(part))
        size, count = int(blocks.size), int(blocks.num_classes)
        for start in range(0, count, size):
            duals = library.ops.tfxclass_softmax_block_grad(
                blocks.logits(start),
                no_labels,
                tf.zeros_like(no_labels, tf.float32),
                start,
                tf.cast(logsumexp, tf.float32),
                targets.is_labelled,
            )
            first = part.first + start
            added = products.rows_grad(duals, weighted).numpy()
            total[first : first + len(added)] -= added
    _add_sparse(total, weighted, targets.ids, targets.weights)


def _add_top_k(total, parts, targets, weighted, top_k):
    found = search.merge(
        [search.best(queries, part, top_k) for queries, part in parts], top_k
    )
    _check_finite(found.logsumexp[:, 0])
    labelled = targets.is_labelled[:, tf.newaxis]
    probabilities = softmax.probabilities(found.logits, found.logsumexp)
    _add_sparse(total, weighted, found.ids, -probabilities * labelled)
    _add_sparse(total, weighted, targets.ids, targets.weights)


def _add_sparse(total, weighted, ids, duals):
    """Adds `duals[b, j] * weighted[b]` at row `ids[b, j]`."""
    ids, duals = ids.numpy(), duals.numpy()
    row, column = np.nonzero(ids >= 0)
    touched, place = np.unique(ids[row, column], return_inverse=True)
    order = np.lexsort((row, place))
    matrix = tf.SparseTensor(
        np.stack([place[order], row[order]], axis=1),
        duals[row, column][order],
        (len(touched), len(ids)),
    )
    added = tf.sparse.sparse_dense_matmul(matrix, weighted)
    total[touched] += added.numpy()


def _check_finite(logsumexp):
    rows = np.flatnonzero(~np.isfinite(logsumexp))
    if len(rows):
        raise FloatingPointError(int(rows[0]))
