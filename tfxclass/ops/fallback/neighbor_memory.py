"""Fallbacks of the cache of neighbors, in NumPy."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass import keras_internals
from tfxclass.ops.fallback.registry import Floats
from tfxclass.ops.fallback.registry import Id
from tfxclass.ops.fallback.registry import Ids
from tfxclass.ops.fallback.registry import InvalidInput
from tfxclass.ops.fallback.registry import check_finite
from tfxclass.ops.fallback.registry import fallback
from tfxclass.ops.fallback.registry import on_host
from tfxclass.ops.fallback.registry import rows_of

_NEVER = -1
_LEAST_RATE = 0.01
_MOST_COUNT = 1 << 20
_LAST = np.iinfo(np.int64).max


@fallback
def recall_neighbors(
    memory: Any,
    recent: Any,
    centres: Any,
    products: Floats,
    labels: Ids,
    num_asked: Id,
    step: Id,
) -> tuple[tf.Tensor, tf.Tensor]:
    """See `tfxclass.ops.neighbor_memory.recall`."""
    products.shape.assert_has_rank(2)
    labels.shape.assert_has_rank(1)
    inputs = [
        _read(memory),
        _read(recent, tf.int32, "recent"),
        _read(centres, tf.float32, "centres"),
        products,
        labels,
        num_asked,
        step,
    ]
    shapes = [[None], [products.shape[0], None], [None], [None]]
    asked, known, moved, places, changed = on_host(
        _recall,
        [tf.int64, tf.int64, tf.float32, tf.int64, tf.int32],
        inputs,
        [*shapes, [None, None, None]],
    )
    moved = tf.reshape(moved, tf.shape(inputs[2]))
    kept = [
        tf.raw_ops.AssignVariableOp(resource=centres, value=moved),
        tf.raw_ops.ResourceScatterUpdate(
            resource=recent, indices=places, updates=changed
        ),
    ]
    waits = [each for each in kept if each is not None]
    with tf.control_dependencies(waits):
        return tf.identity(asked), tf.identity(known)


def _recall(memory, recent, centres, products, labels, num_asked, step):
    _check_memory(memory)
    _check_recent(recent, centres, products, labels)
    count = int(num_asked)
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
    found, *changed = _exchange(recent, centres, products, labels, int(step))
    known = np.concatenate([own, theirs, found], axis=1)
    return order[:count].astype(np.int64), known, *changed


def _exchange(recent, centres, products, labels, step):
    """What buckets hold, and the centres, tables and buckets after it."""
    tables, buckets, places = recent.shape
    n, bits = len(products), buckets.bit_length() - 1
    centres = centres.ravel()
    if n:
        rate = max(1 / (max(step, 0) + 1), _LEAST_RATE)
        mean = products.astype(np.float64).mean(axis=0)
        with np.errstate(invalid="ignore"):  # an infinite centre
            moved = centres + rate * (mean - centres)
        centres = moved.astype(np.float32)
    above = (products > centres).reshape(n, tables, bits)
    codes = (above << np.arange(bits)).sum(axis=2)
    table = np.arange(tables)
    found = recent[table, codes].reshape(n, tables * places).astype(np.int64)
    recent = recent.copy()
    for r in range(n):
        for t in range(tables if labels[r] >= 0 else 0):
            bucket = recent[t, codes[r, t]]
            if labels[r] not in bucket:
                free = np.flatnonzero(bucket == -1)
                oldest = (step % 2**64 + r) % 2**64 % len(bucket)
                bucket[free[0] if len(free) else oldest] = labels[r]
    return found, centres, table, recent


def _check_recent(recent, centres, products, labels):
    shape = recent.shape
    if len(shape) != 3 or not recent.size or shape[1] & (shape[1] - 1):
        raise InvalidInput(
            "`recent` must be an int32 variable [tables, 2^bits, places]. "
            f"Received: int32 of shape {shape}"
        )
    columns = shape[0] * (shape[1].bit_length() - 1)
    if centres.size != columns:
        raise InvalidInput(
            f"`centres` must be a float32 variable [{columns}]. Received: "
            f"float32 of shape {centres.shape}"
        )
    if products.shape[1] != columns:
        raise InvalidInput(
            f"`products` must have {columns} columns. Received: shape "
            f"{products.shape}"
        )
    if len(labels) != len(products):
        raise InvalidInput(
            f"`labels` must have {len(products)} rows. Received: shape "
            f"{labels.shape}"
        )
    check_finite("products", products)
    if np.any((labels < -1) | (labels >= 2**31)):
        raise InvalidInput(
            f"`labels` must be in [-1, {2**31}). Received: {labels}"
        )


def _find(memory, labels):
    """The steps of the last searches, and the neighbours, -1 is none."""
    rows = memory[np.where(labels < 0, 0, labels) % len(memory)]
    is_own = (labels >= 0) & (rows[:, 0] == labels)
    last = np.where(is_own, rows[:, 1], _NEVER)
    return last, np.where(is_own[:, None], rows[:, 2:], -1)


@fallback
def rank_neighbors(
    memory: Any,
    kernel: Any,
    queries: Floats,
    target_ids: Ids,
    labels: Ids,
    known: Ids,
    asked: Ids,
    found: Ids,
    count: Id,
    step: Id,
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
    inputs += [known, asked, found, count, step]
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


def _read(variable, dtype=tf.int64, name="memory"):
    received = keras_internals.dtype_of_handle(variable)
    if received not in (None, dtype):
        raise InvalidInput(
            f"`{name}` must be an {dtype.name} variable. Received: "
            f"{received.name}"
        )
    return tf.raw_ops.ReadVariableOp(resource=variable, dtype=dtype)


def _check_memory(memory):
    if memory.ndim != 2 or memory.shape[0] < 1 or memory.shape[1] < 3:
        raise InvalidInput(
            "`memory` must be an int64 variable [slots, 2 + width]. Received: "
            f"int64 of shape {memory.shape}"
        )


def _rank(memory, *arrays):
    rows, queries, target_ids, labels, known = arrays[:5]
    asked, found, count, step, unit = arrays[5:]
    _check_memory(memory)
    count = int(count)
    if not 1 <= count <= _MOST_COUNT:
        raise InvalidInput(
            f"`count` must be in [1, {_MOST_COUNT}]. Received: {count}"
        )
    if rows.ndim != 2 or not rows.size or rows.dtype.itemsize > 4:
        raise InvalidInput(
            "`kernel` must be float32, or bfloat16, [num_classes, dim]. "
            f"Received: {rows.dtype} of shape {rows.shape}"
        )
    _check(rows, queries, target_ids, labels, known, asked, found)
    width = memory.shape[1] - 2
    shape = len(queries), count
    ids, shares = np.full(shape, -1, np.int64), np.zeros(shape, np.float32)
    searched = dict(zip(asked.tolist(), found))
    for r, query in enumerate(queries):
        more = searched.get(r, known[r, :0])
        ids[r], shares[r] = _rank_row(
            query, rows, target_ids[r], [*known[r], *more], shape[1], unit
        )
    last, _ = _find(memory, labels)
    last[asked] = step
    kept = np.full((len(queries), width), -1)
    kept[:, : min(count, width)] = ids[:, :width]
    first = _first_of_places(labels, len(memory))
    changed = np.column_stack([labels, last, kept])[first]
    # Only touched rows change: the memory has a row for each class.
    touched = dict(zip((labels[first] % len(memory)).tolist(), changed))
    column = int(step) % 2**64 % min(count, width)
    for label, near in zip(labels.tolist(), ids[:, column].tolist()):
        if label >= 0:
            _add_neighbor(memory, touched, near, label)
    after = np.array([*touched.values()], np.int64).reshape(-1, 2 + width)
    return ids, shares, np.array([*touched], np.int64), after


def _add_neighbor(memory, touched, label, new):
    """The row of `label` gets `new`: at its end, if it is full."""
    place = label % len(memory)
    row = touched.get(place, memory[place])
    if label < 0 or label == new or row[0] != label or new in row[2:]:
        return
    free = np.flatnonzero(row[2:-1] == -1)
    touched[place] = row.copy()
    touched[place][2 + free[0] if len(free) else -1] = new


def _first_of_places(labels, slots):
    """The first row of each place that labels have."""
    rows = np.flatnonzero(labels >= 0)
    _, first = np.unique(labels[rows] % slots, return_index=True)
    return rows[first]


def _rank_row(query, rows, targets, candidates, count, normalize):
    targets = np.unique(targets[targets >= 0])
    others = np.setdiff1d(np.array(candidates, np.int64), [-1, *targets])
    ids = np.concatenate([targets, others])
    logits = _score(query, rows, ids, normalize).astype(np.float64)
    counts = np.isfinite(logits)
    if not counts.any():
        return np.full(count, -1), np.zeros(count)
    masses = np.exp(np.where(counts, logits - logits[counts].max(), -np.inf))
    shares = masses / masses.sum()
    is_other = counts & (np.arange(len(ids)) >= len(targets))
    best = _best(ids[is_other], logits[is_other], count)
    place = {c: i for i, c in enumerate(ids.tolist())}
    return best, [shares[place[c]] if c >= 0 else 0.0 for c in best.tolist()]


def _score(query, rows, ids, normalize):
    """float32 `[ids]`: products, over the norms of the rows if asked."""
    rows = np.asarray(rows[ids], np.float32)
    scores = rows @ query
    if normalize:
        norms = np.linalg.norm(rows, axis=1)
        zero = np.zeros_like(scores)
        scores = np.divide(scores, norms, out=zero, where=norms > 0)
    # NaN is the lowest score: sorting needs an order.
    return np.where(np.isnan(scores), -np.inf, scores)


def _best(ids, scores, count):
    """int64 `[count]`: the best ids, equals by rising id, then -1."""
    order = np.lexsort((ids, -scores))[:count]
    missing = (0, count - len(order))
    return np.pad(ids[order], missing, constant_values=-1).astype(np.int64)


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
