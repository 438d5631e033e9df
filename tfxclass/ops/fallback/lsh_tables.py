"""LSH tables in NumPy: custom_ops/core/lsh_tables.h.

A refresh hashes all rows, those that were not touched as well.
"""

from collections.abc import Callable

import numpy as np

from tfxclass.ops.fallback.hash_functions import HashOptions
from tfxclass.ops.fallback.hash_functions import codes_of
from tfxclass.ops.fallback.lsh_index import Tables
from tfxclass.ops.fallback.registry import wrapped

_MOST_RANGE_BITS = 18
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FAMILIES = ("simhash", "sparse_simhash")


def builder(
    hashing: HashOptions,
    inner_product: bool,
    bucket_size: int,
    redraw_interval: int,
) -> Callable[..., Tables]:
    """Function that builds tables of rows, with these options of the op."""
    hashing.check()

    def build(rows, latest) -> Tables:
        rows = np.asarray(rows, np.float32)
        generation = 0 if latest is None else int(latest["generation"]) + 1
        drawn = hashing
        if redraw_interval:
            times = generation // redraw_interval
            seed = wrapped(int(hashing.seed) + times * 1_000_003)
            drawn = hashing._replace(seed=seed)
        squares = np.sum(rows * rows, axis=1)
        greatest = squares.max() if inner_product else np.float32(0)
        index = {
            "shape": np.array(rows.shape),
            "generation": np.array(generation),
            "greatest": np.array(greatest, np.float32),
            "inner_product": np.array(inner_product),
            "hash": np.array([_FAMILIES.index(drawn.hash), *drawn[:2]]),
            "seed": np.array(int(drawn.seed), np.int64),
        }
        if inner_product:
            more = np.sqrt(np.maximum(greatest - squares, 0))
            rows = np.concatenate([rows, more[:, np.newaxis]], axis=1)
        return {**index, **_tables(index, codes_of(rows, drawn), bucket_size)}

    return build


def _hashing(index):
    family, num_hashes, num_tables = map(int, index["hash"][:3])
    return HashOptions(
        num_hashes, num_tables, _FAMILIES[family], int(index["seed"])
    )


def num_tables_of(index: Tables) -> int:
    """How many tables there are."""
    return int(index["hash"][2])


def _range_bits(index):
    count = int(index["shape"][0])
    most = min(_MOST_RANGE_BITS, (count - 1).bit_length() + 4)
    return min(_hashing(index).num_hashes, most)


def _bucket(index, codes):
    """Codes themselves, or hashes of them where they are longer."""
    range_bits = _range_bits(index)
    if _hashing(index).num_hashes <= range_bits:
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


def buckets_of(index: Tables, queries: np.ndarray) -> np.ndarray:
    """int64 [tables, queries]; the coordinate that makes norms equal is 0."""
    rows = queries.reshape(-1, queries.shape[-1])
    if index["inner_product"]:
        rows = np.pad(rows, ((0, 0), (0, 1)))
    return _bucket(index, codes_of(rows, _hashing(index)))


def votes_of(
    index: Tables, buckets: np.ndarray, tables: np.ndarray
) -> np.ndarray:
    """int64 [classes]: how many of these tables give each."""
    starts = index["starts"]
    found = [
        index["ids"][starts[t, b] : starts[t, b + 1]]
        for t, b in zip(tables, buckets)
    ]
    found = np.concatenate([np.zeros(0, np.int32), *found])
    return np.bincount(found, minlength=int(index["shape"][0]))


def most_votes(
    index: Tables, queries: np.ndarray, valid: np.ndarray
) -> np.ndarray:
    """The most votes that a query gives each class."""
    most = np.zeros(int(index["shape"][0]), np.int64)
    buckets = buckets_of(index, queries)
    tables = np.arange(num_tables_of(index))
    for query in np.flatnonzero(valid):
        most = np.maximum(most, votes_of(index, buckets[:, query], tables))
    return most


def kept_of(
    most: np.ndarray, pool: np.ndarray, room: int, num_tables: int, seed: int
) -> tuple[np.ndarray, np.int64, float]:
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
