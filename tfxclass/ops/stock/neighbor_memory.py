"""Twins of the memory of neighbours, in NumPy."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass import keras_internals
from tfxclass.ops.stock import ranking
from tfxclass.ops.stock.refreshing import rows_of
from tfxclass.ops.stock.twin import Floats
from tfxclass.ops.stock.twin import Ids
from tfxclass.ops.stock.twin import InvalidInput
from tfxclass.ops.stock.twin import check_finite
from tfxclass.ops.stock.twin import on_host
from tfxclass.ops.stock.twin import twin

_NEVER = -1
_LAST = np.iinfo(np.int64).max


@twin
def recall_neighbors(
    memory: Any, labels: Ids, num_asked: Ids, step: Ids
) -> tuple[tf.Tensor, tf.Tensor]:
    """See `tfxclass.ops.neighbor_memory.recall`."""
    labels.shape.assert_has_rank(1)
    inputs = [_read(memory), labels, num_asked, step]
    n = labels.shape[0]
    asked, known = on_host(
        _recall, [tf.int64, tf.int64], inputs, [[None], [n, None]]
    )
    return asked, known


def _recall(memory, labels, num_asked, step):
    _check_memory(memory)
    count = int(np.ravel(num_asked)[0])
    if not 0 <= count <= len(labels):
        raise InvalidInput(
            f"`num_asked` must be in [0, {len(labels)}]. Received: {count}"
        )
    last, own = _find(memory, labels)
    order = np.argsort(np.where(labels < 0, _LAST, last), kind="stable")
    column = int(step) % 2**64 % own.shape[1]
    _, theirs = _find(memory, own[:, column])
    again = (theirs[:, :, None] == own[:, None]).any(axis=2)
    theirs = np.where(again, -1, theirs)
    return order[:count].astype(np.int64), np.concatenate([own, theirs], 1)


def _find(memory, labels):
    """The steps of the last searches, and the neighbours, -1 is none."""
    rows = memory[np.where(labels < 0, 0, labels) % len(memory)]
    is_own = (labels >= 0) & (rows[:, 0] == labels)
    last = np.where(is_own, rows[:, 1], _NEVER)
    return last, np.where(is_own[:, None], rows[:, 2:], -1)


@twin
def rank_neighbors(
    memory: Any,
    kernel: Any,
    queries: Floats,
    target_ids: Ids,
    labels: Ids,
    known: Ids,
    asked: Ids,
    found: Ids,
    step: Ids,
    normalize: bool,
) -> tuple[tf.Tensor, tf.Tensor]:
    """See `tfxclass.ops.neighbor_memory.rank`."""
    for value in (queries, target_ids, known, found):
        value.shape.assert_has_rank(2)
    for value in (labels, asked):
        value.shape.assert_has_rank(1)

    def run(*arrays):
        return _rank(*arrays, normalize)

    inputs = [_read(memory), rows_of(kernel), queries, target_ids, labels]
    inputs += [known, asked, found, step]
    n = queries.shape[0]
    ids, shares, places, rows = on_host(
        run,
        [tf.int64, tf.float32, tf.int64, tf.int64],
        inputs,
        [[n, None], [n, None], [None], [None, None]],
    )
    kept = tf.raw_ops.ResourceScatterUpdate(
        resource=memory, indices=places, updates=rows
    )
    waits = [] if kept is None else [kept]
    with tf.control_dependencies(waits):
        return tf.identity(ids), tf.identity(shares)


def _read(memory):
    dtype = keras_internals.dtype_of_handle(memory)
    if dtype not in (None, tf.int64):
        raise InvalidInput(f"`memory` must be int64. Received: {dtype.name}")
    return tf.raw_ops.ReadVariableOp(resource=memory, dtype=tf.int64)


def _check_memory(memory):
    if memory.ndim != 2 or memory.shape[0] < 1 or memory.shape[1] < 3:
        raise InvalidInput(
            "`memory` must be an int64 variable [slots, 2 + width]. Received: "
            f"int64 of shape {memory.shape}"
        )


def _rank(memory, *arrays):
    rows, queries, target_ids, labels, known, asked, found, step, unit = arrays
    _check_memory(memory)
    if rows.ndim != 2 or not rows.size or rows.dtype.itemsize > 4:
        raise InvalidInput(
            "`kernel` must be float32, or bfloat16, [num_classes, dim]. "
            f"Received: {rows.dtype} of shape {rows.shape}"
        )
    _check(rows, queries, target_ids, labels, known, asked, found)
    width = memory.shape[1] - 2
    shape = len(queries), max(width, found.shape[1])
    ids, shares = np.full(shape, -1, np.int64), np.zeros(shape, np.float32)
    searched = dict(zip(asked.tolist(), found))
    for r, query in enumerate(queries):
        more = searched.get(r, known[r, :0])
        ids[r], shares[r] = _rank_row(
            query, rows, target_ids[r], [*known[r], *more], shape[1], unit
        )
    last, _ = _find(memory, labels)
    last[asked] = step
    changed = np.stack([labels, last], axis=1)
    changed = np.concatenate([changed, ids[:, :width]], axis=1)
    first = _first_of_places(labels, len(memory))
    return ids, shares, labels[first] % len(memory), changed[first]


def _first_of_places(labels, slots):
    """The first row of each place that labels have."""
    rows = np.flatnonzero(labels >= 0)
    _, first = np.unique(labels[rows] % slots, return_index=True)
    return rows[first]


def _rank_row(query, rows, targets, candidates, count, normalize):
    targets = np.unique(targets[targets >= 0])
    others = np.setdiff1d(np.array(candidates, np.int64), [-1, *targets])
    ids = np.concatenate([targets, others])
    logits = ranking.score(query, rows, ids, normalize).astype(np.float64)
    counts = np.isfinite(logits)
    if not counts.any():
        return np.full(count, -1), np.zeros(count)
    masses = np.exp(np.where(counts, logits - logits[counts].max(), -np.inf))
    shares = masses / masses.sum()
    is_other = counts & (np.arange(len(ids)) >= len(targets))
    best, _ = ranking.rank(ids[is_other], logits[is_other], count)
    place = {c: i for i, c in enumerate(ids.tolist())}
    return best, [shares[place[c]] if c >= 0 else 0.0 for c in best.tolist()]


def _check(rows, queries, target_ids, labels, known, asked, found):
    n = len(queries)
    for name, value, count in (
        ("target_ids", target_ids, n),
        ("labels", labels, n),
        ("known", known, n),
        ("found", found, len(asked)),
    ):
        if len(value) != count:
            raise InvalidInput(
                f"`{name}` must have {count} rows. Received: shape "
                f"{value.shape}"
            )
    if queries.shape[1] != rows.shape[1]:
        raise InvalidInput(
            f"`queries` must have {rows.shape[1]} columns, as `kernel` has. "
            f"Received: shape {queries.shape}"
        )
    check_finite("queries", queries)
    for name, ids, least, bound in (
        ("target_ids", target_ids, -1, len(rows)),
        ("known", known, -1, len(rows)),
        ("asked", asked, 0, n),
        ("found", found, -1, len(rows)),
    ):
        if np.any((ids < least) | (ids >= bound)):
            raise InvalidInput(
                f"`{name}` must be in [{least}, {bound}). Received: {ids}"
            )
