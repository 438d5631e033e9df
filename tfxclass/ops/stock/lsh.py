"""Twins of LSH tables, in NumPy: custom_ops/core/lsh_tables.h.

A refresh hashes all rows, those that were not touched as well.
"""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxclass.ops.stock.hash_functions import HashOptions
from tfxclass.ops.stock.hash_functions import codes_of
from tfxclass.ops.stock.refreshing import Index
from tfxclass.ops.stock.refreshing import call
from tfxclass.ops.stock.refreshing import register_index
from tfxclass.ops.stock.refreshing import rows_of
from tfxclass.ops.stock.twin import Flags
from tfxclass.ops.stock.twin import Floats
from tfxclass.ops.stock.twin import Ids
from tfxclass.ops.stock.twin import InvalidInput
from tfxclass.ops.stock.twin import twin

_MOST_RANGE_BITS = 18
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FAMILIES = ("simhash", "sparse_simhash", "dwta")

register_index("lsh", "set of LSH tables")


class LSHFound(NamedTuple):
    """The outputs of a query."""

    candidates: tf.Tensor
    probed: tf.Tensor
    least_votes: tf.Tensor
    last_fraction: tf.Tensor
    pool: tf.Tensor
    norm: tf.Tensor


@twin
def lsh_build(
    index: Any,
    kernel: Any,
    seed: Ids,
    num_hashes: int,
    num_tables: int,
    hash: str = "simhash",
    bin_size: int = 8,
    inner_product: bool = False,
    incremental: bool = True,
    bucket_size: int = 0,
    redraw_interval: int = 0,
) -> Any:
    """See `tfxclass.ops.lsh.LSHTables.build`."""
    del incremental
    hashing = HashOptions(num_hashes, num_tables, hash, bin_size)
    options = (inner_product, bucket_size, redraw_interval)

    def run(of, rows, seed):
        of.build(rows, _builder(hashing._replace(seed=seed), *options))

    return tf.group(*call(index, run, [rows_of(kernel), seed]))


@twin
def lsh_advance(
    index: Any,
    kernel: Any,
    seed: Ids,
    step: Ids,
    interval: Ids,
    lag: Ids,
    drifted: Flags,
    num_hashes: int,
    num_tables: int,
    hash: str = "simhash",
    bin_size: int = 8,
    inner_product: bool = False,
    incremental: bool = True,
    bucket_size: int = 0,
    redraw_interval: int = 0,
) -> Any:
    """See `tfxclass.ops.lsh.LSHTables.advance`."""
    del incremental
    hashing = HashOptions(num_hashes, num_tables, hash, bin_size)
    options = (inner_product, bucket_size, redraw_interval)

    def run(of, rows, seed, step, interval, lag, drifted):
        steps = (int(step), int(interval), int(lag), bool(drifted))
        build = _builder(hashing._replace(seed=seed), *options)
        of.advance(rows, steps, build)

    inputs = [rows_of(kernel), seed, step, interval, lag, drifted]
    return tf.group(*call(index, run, inputs))


@twin
def lsh_query(
    index: Any,
    queries: Floats,
    valid: Flags,
    targets: Ids,
    num_sampled: Ids,
    max_candidates: Ids,
    seed: Ids,
) -> LSHFound:
    """See `tfxclass.ops.lsh.LSHTables.query`."""

    def run(of, queries, valid, targets, num_sampled, max_candidates, seed):
        _check_queries(of.ready, queries, valid)
        none = np.zeros(0, np.int64)
        if of.ready is None:
            return none, none, np.int64(1), *_found(1.0, 0, 0.0)
        most = _most_votes(of.ready, queries, valid)
        pool = np.flatnonzero(most)
        _check_ids("targets", targets, of.ready, -1)
        distinct = np.unique(targets[targets >= 0])
        most[distinct] = 0
        room = min(num_sampled - len(distinct), max_candidates)
        candidates, least, fraction = _kept(
            most, pool, int(room), _num_tables(of.ready), seed[0] ^ seed[1]
        )
        size = np.count_nonzero(most[pool])
        norm = np.sqrt(of.ready["greatest"])
        probed = np.arange(_num_tables(of.ready))
        return candidates, probed, least, *_found(fraction, size, norm)

    inputs = [queries, valid, targets, num_sampled, max_candidates, seed]
    types = [tf.int64, tf.int64, tf.int64, tf.float32, tf.int64, tf.float32]
    shapes = [[None], [None], [], [], [], []]
    return LSHFound(*call(index, run, inputs, types, shapes))


def _found(fraction, pool, norm):
    return np.float32(fraction), np.int64(pool), np.float32(norm)


@twin
def lsh_members(
    index: Any,
    queries: Floats,
    valid: Flags,
    probed: Ids,
    least_votes: Ids,
    ids: Ids,
) -> tf.Tensor:
    """See `tfxclass.ops.lsh.LSHTables.members`."""

    def run(of, queries, valid, probed, least_votes, ids):
        _check_queries(of.ready, queries, valid)
        mask = np.zeros((len(queries), len(ids)), bool)
        if of.ready is None:
            return (mask,)
        _check_ids("ids", ids, of.ready)
        if np.any((probed < 0) | (probed >= _num_tables(of.ready))):
            raise InvalidInput(f"`probed` must be tables. Received: {probed}")
        buckets = _buckets_of(of.ready, queries)
        for i, (sample, query) in enumerate(np.ndindex(valid.shape)):
            if valid[sample, query]:
                votes = _votes(of.ready, buckets[probed, i], probed)
                mask[sample] |= votes[ids] >= least_votes
        return (mask,)

    inputs = [queries, valid, probed, least_votes, ids]
    shape = [queries.shape[0], ids.shape[0]]
    return call(index, run, inputs, [tf.bool], [shape])[0]


def _check_queries(index, queries, valid):
    if queries.ndim != 3 or valid.shape != queries.shape[:2]:
        raise InvalidInput(
            "`valid` must have the first two dimensions of `queries`, "
            f"{queries.shape}. Received: shape {valid.shape}"
        )
    if index is not None and queries.shape[2] != index["shape"][1]:
        shape = tuple(int(n) for n in index["shape"])
        raise InvalidInput(
            f"The tables are for a kernel of shape {shape}. Received: queries "
            f"of shape {queries.shape}"
        )


def _check_ids(name, ids, index, lowest=0):
    count = int(index["shape"][0])
    if np.any((ids < lowest) | (ids >= count)):
        raise InvalidInput(
            f"`{name}` must be in [{lowest}, {count}). Received: {ids}"
        )


def _builder(hashing, inner_product, bucket_size, redraw_interval):
    hashing.check()

    def build(rows, latest, touched) -> Index:
        del touched
        rows = np.asarray(rows, np.float32)
        generation = 0 if latest is None else int(latest["generation"]) + 1
        drawn = hashing
        if redraw_interval:
            times = generation // redraw_interval
            drawn = hashing._replace(seed=int(hashing.seed) + times * 1_000_003)
        squares = np.sum(rows * rows, axis=1)
        greatest = squares.max() if inner_product else np.float32(0)
        index = {
            "shape": np.array(rows.shape),
            "generation": np.array(generation),
            "greatest": np.array(greatest, np.float32),
            "inner_product": np.array(inner_product),
            "hash": np.array(
                [_FAMILIES.index(drawn.hash), *drawn[:2], drawn.bin_size]
            ),
            "seed": np.array(int(drawn.seed), np.int64),
        }
        if inner_product:
            more = np.sqrt(np.maximum(greatest - squares, 0))
            rows = np.concatenate([rows, more[:, np.newaxis]], axis=1)
        return {**index, **_tables(index, codes_of(rows, drawn), bucket_size)}

    return build


def _hashing(index):
    family, num_hashes, num_tables, bin_size = map(int, index["hash"])
    return HashOptions(
        num_hashes, num_tables, _FAMILIES[family], bin_size, int(index["seed"])
    )


def _num_tables(index):
    return int(index["hash"][2])


def _range_bits(index):
    count = int(index["shape"][0])
    most = min(_MOST_RANGE_BITS, (count - 1).bit_length() + 4)
    return min(_hashing(index).bits, most)


def _bucket(index, codes):
    """Codes themselves, or hashes of them where they are longer."""
    range_bits = _range_bits(index)
    if _hashing(index).bits <= range_bits:
        return codes.astype(np.int64)
    hashed = codes.astype(np.uint64) * _GOLDEN
    return (hashed >> np.uint64(64 - range_bits)).astype(np.int64)


def _tables(index, codes, bucket_size):
    """Ids of each table by bucket, rising within one."""
    buckets = _bucket(index, codes)
    starts, ids = [], []
    for table, of_table in enumerate(buckets):
        order = np.argsort(of_table, kind="stable")
        if bucket_size:
            order = _cut(of_table, bucket_size, int(index["seed"]), table)
        places = np.arange((1 << _range_bits(index)) + 1)
        starts.append(np.searchsorted(of_table[order], places) + len(ids))
        ids.extend(order.tolist())
    return {
        "starts": np.array(starts, np.int64),
        "ids": np.array(ids, np.int32),
    }


def _cut(buckets, size, seed, table):
    """Ids by bucket, of each the `size` with the least priorities."""
    ids = np.arange(len(buckets))
    order = np.lexsort((_priority(seed, table, ids), buckets))
    sorted_buckets = buckets[order]
    first = np.searchsorted(sorted_buckets, sorted_buckets)
    kept = np.sort(order[ids - first < size])
    return kept[np.argsort(buckets[kept], kind="stable")]


def _priority(seed, table, ids):
    with np.errstate(over="ignore"):
        x = np.uint64(seed & (2**64 - 1)) + (
            np.uint64(table << 32) | ids.astype(np.uint64)
        )
        x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        return x ^ x >> np.uint64(31)


def _buckets_of(index, queries):
    """int64 [tables, queries]; the coordinate that makes norms equal is 0."""
    rows = queries.reshape(-1, queries.shape[-1])
    if index["inner_product"]:
        rows = np.pad(rows, ((0, 0), (0, 1)))
    return _bucket(index, codes_of(rows, _hashing(index)))


def _votes(index, buckets, tables):
    """int64 [classes]: how many of these tables give each."""
    starts = index["starts"]
    found = [
        index["ids"][starts[t, b] : starts[t, b + 1]]
        for t, b in zip(tables, buckets)
    ]
    found = np.concatenate([np.zeros(0, np.int32), *found])
    return np.bincount(found, minlength=int(index["shape"][0]))


def _most_votes(index, queries, valid):
    """The most votes that a query gives each class."""
    most = np.zeros(int(index["shape"][0]), np.int64)
    buckets = _buckets_of(index, queries)
    tables = np.arange(_num_tables(index))
    for query in np.flatnonzero(valid):
        most = np.maximum(most, _votes(index, buckets[:, query], tables))
    return most


def _kept(most, pool, room, num_tables, seed):
    """Candidates, least votes, and the fraction kept of those with as many."""
    with_votes = np.bincount(most[pool], minlength=num_tables + 1)
    least, above = max(num_tables, 1), 0
    while least > 1 and above + with_votes[least] < room:
        above += with_votes[least]
        least -= 1
    kept = max(min(room - above, with_votes[least]), 0)
    last = pool[most[pool] == least]
    order = np.argsort(_priority(int(seed), 0, last))[:kept]
    candidates = np.concatenate([pool[most[pool] > least], last[order]])
    fraction = kept / len(last) if len(last) else 1.0
    return candidates.astype(np.int64), np.int64(least), fraction
