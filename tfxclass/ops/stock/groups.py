"""Twins of the groups of class rows, in NumPy: cluster index and PCA hash.

A cluster index has its centres from plain passes over a sample and over all
rows, not in two levels; rows that moved get their nearest centre.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass.ops.stock import kmeans
from tfxclass.ops.stock import ranking
from tfxclass.ops.stock.refreshing import call
from tfxclass.ops.stock.refreshing import register_index
from tfxclass.ops.stock.refreshing import rows_of
from tfxclass.ops.stock.twin import Flags
from tfxclass.ops.stock.twin import Floats
from tfxclass.ops.stock.twin import Ids
from tfxclass.ops.stock.twin import InvalidInput
from tfxclass.ops.stock.twin import generator
from tfxclass.ops.stock.twin import twin

_MOST_GROUPS = {"cluster index": 2**31 - 1, "PCA hash": 30}


def _cluster(rows, latest, touched, num_groups, seed, normalize, rebuild):
    del normalize
    rows = np.asarray(rows, np.float32)
    norms = np.linalg.norm(rows, axis=1)
    if latest is None or rebuild or np.any(latest["shape"] != rows.shape):
        directions = kmeans.normalized(rows)
        centres, group_of = kmeans.cluster(directions, num_groups, seed)
        reach = np.zeros(len(centres), np.float32)
    else:
        centres, reach = latest["centres"], latest["reach"].copy()
        group_of = latest["group_of"].copy()
        touched = touched[touched < len(rows)]
        moved = kmeans.normalized(rows[touched])
        group_of[touched] = kmeans.nearest(moved, centres)
    np.maximum.at(reach, group_of, norms)
    return {**_groups(rows, group_of), "centres": centres, "reach": reach}


def _principal(rows, latest, touched, num_groups, seed, normalize, rebuild):
    """Signs of the projections on the axes of greatest variance."""
    del latest, touched, rebuild, seed
    rows = np.asarray(rows, np.float32)
    of = kmeans.normalized(rows) if normalize else rows
    mean = of.mean(axis=0, dtype=np.float64)
    centred = of - mean.astype(np.float32)
    covariance = (centred.T @ centred).astype(np.float64)
    axes = np.linalg.eigh(covariance)[1][:, ::-1][:, :num_groups]
    bits = centred @ axes.astype(np.float32) >= 0
    codes = bits @ (1 << np.arange(bits.shape[1]))
    return _groups(rows, np.unique(codes, return_inverse=True)[1])


def _groups(rows, group_of):
    group_of = np.asarray(group_of, np.int64)
    return {"shape": np.array(rows.shape), "group_of": group_of}


def _members_of(index, groups):
    """Rows of these groups, in their order."""
    found = [np.flatnonzero(index["group_of"] == group) for group in groups]
    return np.concatenate([np.zeros(0, np.int64), *found])


def _register(prefix, name, build_groups):
    register_index(prefix, name)

    def builder(num_groups, seed, normalize, rebuild=True):
        most = _MOST_GROUPS[name]
        if not 1 <= num_groups <= most:
            raise InvalidInput(
                f"`num_groups` of a {name} must be at least 1 and at most "
                f"{most}. Received: {num_groups}"
            )
        return lambda *given: build_groups(
            *given, int(num_groups), int(seed), normalize, rebuild
        )

    def build(
        index: Any, kernel: Any, num_groups: Ids, seed: Ids, normalize: bool
    ) -> Any:
        def run(of, rows, num_groups, seed):
            of.build(rows, builder(num_groups, seed, normalize))

        inputs = [rows_of(kernel), num_groups, seed]
        return tf.group(*call(index, run, inputs))

    def advance(
        index: Any,
        kernel: Any,
        step: Ids,
        interval: Ids,
        num_groups: Ids,
        rebuild: Flags,
        seed: Ids,
        normalize: bool,
    ) -> Any:
        def run(of, rows, step, interval, num_groups, rebuild, seed):
            steps = (int(step), int(interval), int(interval), False)
            seed = int(seed) * 1_000_003 + int(step)
            options = (num_groups, seed, normalize, bool(rebuild))
            of.advance(rows, steps, builder(*options))

        inputs = [rows_of(kernel), step, interval, num_groups, rebuild, seed]
        return tf.group(*call(index, run, inputs))

    def members(index: Any, targets: Ids, limit: Ids, seed: Ids) -> tf.Tensor:
        def run(of, targets, limit, seed):
            if limit < 1:
                raise InvalidInput(f"`limit` must be >= 1. Received: {limit}")
            if of.ready is None:
                return (np.zeros(0, np.int64),)
            group_of = of.ready["group_of"]
            if np.any((targets < -1) | (targets >= len(group_of))):
                raise InvalidInput(
                    f"`targets` must be in [-1, {len(group_of)}). Received: "
                    f"{targets}"
                )
            groups = group_of[targets[targets >= 0]]
            found = _members_of(of.ready, dict.fromkeys(groups.tolist()))
            if len(found) > limit:
                random = generator(*seed)
                found = random.choice(found, int(limit), replace=False)
            return (found,)

        return call(index, run, [targets, limit, seed], [tf.int64], [[None]])[0]

    for made in (build, advance, members):
        made.__name__ = f"{prefix}_{made.__name__}"
        twin(made)


_register("cluster", "cluster index", _cluster)
_register("pca_hash", "PCA hash", _principal)


@twin
def cluster_query(
    index: Any,
    kernel: Any,
    queries: Floats,
    num_neighbors: Ids,
    num_probes: Ids,
    normalize: bool,
) -> list[tf.Tensor]:
    """See `tfxclass.ops.row_groups.ClusterIndex.query`."""

    def run(of, rows, queries, count, num_probes):
        if of.ready is None:
            return ranking.nothing(len(queries), count)
        ranking.check_queries("cluster index", queries, of.ready["shape"], rows)
        order = np.argsort(of.ready["group_of"], kind="stable")
        sizes = np.bincount(
            of.ready["group_of"], minlength=len(of.ready["centres"])
        )
        lists = np.split(order, np.cumsum(sizes)[:-1])
        reach = 1.0 if normalize else of.ready["reach"]
        products = (queries @ of.ready["centres"].T) * reach
        ids, scores = ranking.nothing(len(queries), count)
        for i, of_query in enumerate(products):
            probes = np.argsort(-of_query, kind="stable")[:num_probes]
            found = np.concatenate([lists[probe] for probe in probes])
            scored = ranking.score(queries[i], rows, found, normalize)
            ids[i], scores[i] = ranking.rank(found, scored, count)
        return ids, scores

    inputs = [rows_of(kernel), queries, num_neighbors, num_probes]
    shape = ranking.shape_of(queries, num_neighbors)
    return call(index, run, inputs, [tf.int64, tf.float32], [shape, shape])
