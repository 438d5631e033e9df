"""The dual variables of some rows, times their features: (Y - P)^T X."""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.ops import library
from tfxclass.recovery.rows import Rows
from tfxclass.rows import search
from tfxclass.rows.best import merge
from tfxclass.rows.blocks import Blocks


class Drawn(NamedTuple):
    """Classes that stand for all.

    Attributes:
        size: int, how many are drawn, uniformly and without replacement.
        random: of NumPy.
    """

    size: int
    random: np.random.Generator


def add_duals(
    total: np.ndarray,
    head: keras.layers.Layer,
    rows: Rows,
    drawn: Drawn | None = None,
) -> None:
    """Adds `(Y - P)^T diag(weights) X` of the rows to `total`.

    Args:
        total: float32 `[num_classes, dim]`.
        head: gives P, the probabilities of its classes.
        rows: `Rows`.
        drawn: `Drawn`: P is estimated from the labels of all rows and these
            classes. Those that are no label stand for the others, so each row's
            sum of exponentials is estimated without bias (`UniformSampler`).

    Raises:
        FloatingPointError: NaN or infinite logits, with their first row; then
            `total` is as it was.
    """
    parts = head.parts(rows.features)
    # A row's dual times its weight: the same as its features.
    weighted = rows.features * rows.weights[:, tf.newaxis]
    if drawn is not None:
        _add_drawn(total, parts, rows.targets, weighted, drawn)
    else:
        _add_all(total, parts, rows.targets, weighted)


def _add_all(total, parts, targets, weighted):
    found = [search.best_of_rows(queries, part, 1) for queries, part in parts]
    logsumexp = merge(found, 1).logsumexp[:, 0]
    _check_finite(logsumexp)
    # Every class as if none were a label; labels are added below.
    no_labels = tf.fill([len(weighted), 1], tf.constant(-1, tf.int64))
    for queries, part in parts:
        blocks = Blocks(queries, part.whole())
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
            added = tf.matmul(duals, weighted, transpose_a=True).numpy()
            total[first : first + len(added)] -= added
    _add_sparse(total, weighted, targets.ids, targets.weights)


def _add_drawn(total, parts, targets, weighted, drawn):
    ids, log_counts = _labels_and(drawn, targets.ids.numpy(), len(total))
    order, logits = [], []
    for queries, part in parts:
        local = part.local_ids(tf.constant(ids))
        here = np.flatnonzero(local >= 0)
        rows, bias = part.gather(tf.gather(local, here))
        product = tf.matmul(queries, rows, transpose_b=True)
        logits.append(product if bias is None else product + bias)
        order.append(here)
    order = np.concatenate(order)
    logits = tf.concat(logits, axis=1) - log_counts[order]
    logsumexp = tf.reduce_logsumexp(logits, axis=1)
    _check_finite(logsumexp)
    shares = tf.exp(logits - logsumexp[:, tf.newaxis])
    shares *= targets.is_labelled[:, tf.newaxis]
    total[ids[order]] -= tf.matmul(shares, weighted, transpose_a=True).numpy()
    _add_sparse(total, weighted, targets.ids, targets.weights)


def _labels_and(drawn, ids, num_classes):
    """`(ids, log_counts)`: distinct classes, and log of how often each is in.

    Less than 0 for one that stands for several.
    """
    labels = np.unique(ids[ids >= 0])
    count = min(drawn.size, num_classes)
    others = drawn.random.choice(num_classes, count, False, shuffle=False)
    others = np.setdiff1d(others, labels)
    share = len(others) / max(num_classes - len(labels), 1)
    log_counts = np.zeros(len(labels) + len(others), np.float32)
    if len(others):
        log_counts[len(labels) :] = np.log(share)
    return np.concatenate([labels, others]), log_counts


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
