"""Fallbacks of LSH tables, in NumPy (`lsh_tables`)."""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxclass.ops.fallback import lsh_tables
from tfxclass.ops.fallback.hash_functions import HashOptions
from tfxclass.ops.fallback.lsh_index import call
from tfxclass.ops.fallback.registry import Flags
from tfxclass.ops.fallback.registry import Floats
from tfxclass.ops.fallback.registry import Ids
from tfxclass.ops.fallback.registry import InvalidInput
from tfxclass.ops.fallback.registry import fallback
from tfxclass.ops.fallback.registry import rows_of


class LSHFound(NamedTuple):
    """The outputs of a query."""

    candidates: tf.Tensor
    probed: tf.Tensor
    least_votes: tf.Tensor
    last_fraction: tf.Tensor
    pool: tf.Tensor
    norm: tf.Tensor


@fallback
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
    del incremental, bin_size
    hashing = HashOptions(num_hashes, num_tables, hash)
    hashing.check()
    options = (inner_product, bucket_size, redraw_interval)

    def run(of, rows, seed):
        of.build(
            rows, lsh_tables.builder(hashing._replace(seed=seed), *options)
        )

    return tf.group(*call(index, run, [rows_of(kernel), seed]))


@fallback
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
    del incremental, bin_size
    hashing = HashOptions(num_hashes, num_tables, hash)
    hashing.check()
    options = (inner_product, bucket_size, redraw_interval)

    def run(of, rows, seed, step, interval, lag, drifted):
        steps = (int(step), int(interval), int(lag), bool(drifted))
        build = lsh_tables.builder(hashing._replace(seed=seed), *options)
        of.advance(rows, steps, build)

    inputs = [rows_of(kernel), seed, step, interval, lag, drifted]
    return tf.group(*call(index, run, inputs))


@fallback
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
        most = lsh_tables.most_votes(of.ready, queries, valid)
        pool = np.flatnonzero(most)
        _check_ids("targets", targets, of.ready, -1)
        distinct = np.unique(targets[targets >= 0])
        most[distinct] = 0
        room = min(max(num_sampled - len(distinct), 0), max_candidates)
        candidates, least, fraction = lsh_tables.kept_of(
            most,
            pool,
            int(room),
            lsh_tables.num_tables_of(of.ready),
            seed[0] ^ seed[1],
        )
        size = np.count_nonzero(most[pool])
        norm = np.sqrt(of.ready["greatest"])
        probed = np.arange(lsh_tables.num_tables_of(of.ready))
        return candidates, probed, least, *_found(fraction, size, norm)

    inputs = [queries, valid, targets, num_sampled, max_candidates, seed]
    types = [tf.int64, tf.int64, tf.int64, tf.float32, tf.int64, tf.float32]
    shapes = [[None], [None], [], [], [], []]
    return LSHFound(*call(index, run, inputs, types, shapes))


def _found(fraction, pool, norm):
    return np.float32(fraction), np.int64(pool), np.float32(norm)


@fallback
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
        if np.any(
            (probed < 0) | (probed >= lsh_tables.num_tables_of(of.ready))
        ):
            raise InvalidInput(f"`probed` must be tables. Received: {probed}")
        buckets = lsh_tables.buckets_of(of.ready, queries)
        for i, (sample, query) in enumerate(np.ndindex(valid.shape)):
            if valid[sample, query]:
                votes = lsh_tables.votes_of(
                    of.ready, buckets[probed, i], probed
                )
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
