"""Twins of the hashing forest, in NumPy.

Directions are not rounded to 8 bits, and planes are drawn by other random
numbers: a forest of the same law (custom_ops/core/hashing_forest.h).
"""

from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass.ops.stock import ranking
from tfxclass.ops.stock.kmeans import normalized
from tfxclass.ops.stock.refreshing import Index
from tfxclass.ops.stock.refreshing import call
from tfxclass.ops.stock.refreshing import register_index
from tfxclass.ops.stock.refreshing import rows_of
from tfxclass.ops.stock.twin import Flags
from tfxclass.ops.stock.twin import Floats
from tfxclass.ops.stock.twin import Ids
from tfxclass.ops.stock.twin import InvalidInput
from tfxclass.ops.stock.twin import generator
from tfxclass.ops.stock.twin import twin

_ATTEMPTS = 4
_SKETCH_SEED = 0x5CE7C4
_NAME = "hashing forest"

register_index("forest", _NAME)


@twin
def forest_build(
    forest: Any,
    kernel: Any,
    num_trees: Ids,
    leaf_size: Ids,
    seed: Ids,
    sketch: int = 0,
) -> Any:
    """See `tfxclass.ops.hashing_forest.HashingForest.build`."""

    def run(index, rows, num_trees, leaf_size, seed):
        options = _options(num_trees, leaf_size, seed, sketch)
        index.build(rows, lambda rows, *_: _build(rows, *options))

    inputs = [rows_of(kernel), num_trees, leaf_size, seed]
    return tf.group(*call(forest, run, inputs))


@twin
def forest_advance(
    forest: Any,
    kernel: Any,
    step: Ids,
    interval: Ids,
    lag: Ids,
    drifted: Flags,
    num_trees: Ids,
    leaf_size: Ids,
    seed: Ids,
    sketch: int = 0,
) -> Any:
    """See `tfxclass.ops.hashing_forest.HashingForest.advance`."""

    def run(index, rows, step, interval, lag, drifted, *options):
        num_trees, leaf_size, seed = options
        options = _options(num_trees, leaf_size, (seed, step), sketch)
        steps = (int(step), int(interval), int(lag), bool(drifted))
        index.advance(rows, steps, lambda rows, *_: _build(rows, *options))

    inputs = [rows_of(kernel), step, interval, lag, drifted]
    inputs += [num_trees, leaf_size, seed]
    return tf.group(*call(forest, run, inputs))


@twin
def forest_query(
    forest: Any,
    kernel: Any,
    queries: Floats,
    num_neighbors: Ids,
    bucket: Ids,
    num_candidates: Ids,
    normalize: bool,
) -> list[tf.Tensor]:
    """See `tfxclass.ops.hashing_forest.HashingForest.query`."""

    def run(index, rows, queries, count, bucket, num_candidates):
        found = index.ready
        if found is None:
            return ranking.nothing(len(queries), count)
        ranking.check_queries(_NAME, queries, found["shape"], rows)
        ids, scores = ranking.nothing(len(queries), count)
        directions = _sketched(queries, found.get("sketch"))
        pools = _pool(found, directions, bucket or count)
        for i, pool in enumerate(pools):
            kept = _most_voted(np.concatenate(pool), num_candidates)
            of = ranking.score(queries[i], rows, kept, normalize)
            ids[i], scores[i] = ranking.rank(kept, of, count)
        return ids, scores

    inputs = [rows_of(kernel), queries, num_neighbors, bucket, num_candidates]
    shape = ranking.shape_of(queries, num_neighbors)
    return call(forest, run, inputs, [tf.int64, tf.float32], [shape, shape])


def _options(num_trees, leaf_size, seed, sketch):
    for name, value in (("num_trees", num_trees), ("leaf_size", leaf_size)):
        if value < 1:
            raise InvalidInput(f"`{name}` must be >= 1. Received: {value}")
    return int(num_trees), int(leaf_size), np.atleast_1d(seed), sketch


def _sketched(rows, planes):
    return rows if planes is None else rows @ planes.T


def _build(rows, num_trees, leaf_size, seed, sketch) -> Index:
    index = {"shape": np.array(rows.shape), "num_parts": np.array(num_trees)}
    rows = np.asarray(rows, np.float32)
    if 0 < sketch < rows.shape[1]:
        size = (sketch, rows.shape[1])
        planes = generator(_SKETCH_SEED).standard_normal(size)
        index["sketch"] = planes.astype(np.float32)
    rows = normalized(_sketched(rows, index.get("sketch")))
    for tree in range(num_trees):
        built = _build_tree(rows, leaf_size, generator(*seed, tree))
        for name, values in zip(("nodes", "ids", "planes"), built):
            index[f"{tree}.{name}"] = values
    return index


def _build_tree(rows, leaf_size, random):
    """Nodes (begin, end, left child, plane), -1 for none; ids; planes."""
    ids, planes = np.arange(len(rows)), []
    nodes = [[0, len(rows), -1, -1]]
    open_nodes = [0]
    while open_nodes:
        node = nodes[open_nodes.pop()]
        begin, end = node[:2]
        if end - begin <= leaf_size:
            continue
        plane, is_right = _divide(rows[ids[begin:end]], random)
        if plane is not None:
            node[3] = len(planes)
            planes.append(plane)
        part = ids[begin:end]
        ids[begin:end] = np.concatenate([part[~is_right], part[is_right]])
        middle = begin + np.count_nonzero(~is_right)
        node[2] = len(nodes)
        open_nodes += [len(nodes), len(nodes) + 1]
        nodes += [[begin, middle, -1, -1], [middle, end, -1, -1]]
    planes = np.array(planes, np.float32).reshape(-1, rows.shape[1])
    return np.array(nodes, np.int32), ids.astype(np.int32), planes


def _divide(rows, random):
    """A plane between two random rows, or None; which rows are right of it."""
    for _ in range(_ATTEMPTS):
        first, second = random.choice(len(rows), 2, replace=False)
        plane = rows[first] - rows[second]
        is_right = rows @ plane >= 0
        if plane.any() and 0 < np.count_nonzero(is_right) < len(rows):
            return plane, is_right
    # Rows that coincide, or nearly: halves keep cells within leaf_size.
    return None, np.arange(len(rows)) >= len(rows) // 2


def _pool(index, queries, bucket):
    """For each query a list: the ids of the cell of each tree."""
    pools = [[np.zeros(0, np.int64)] for _ in queries]
    for tree in range(int(index["num_parts"])):
        nodes, ids = index[f"{tree}.nodes"], index[f"{tree}.ids"]
        cells = _walk(nodes, index[f"{tree}.planes"], queries, bucket)
        for pool, cell in zip(pools, cells):
            begin, end = nodes[cell, :2]
            pool.append(ids[begin:end])
    return pools


def _walk(nodes, planes, queries, bucket):
    """The last node with at least `bucket` rows on the way of each query."""
    cell = np.zeros(len(queries), np.int64)
    walking = np.ones(len(queries), bool)
    while True:
        child = nodes[cell, 2]
        walking &= child >= 0
        if not walking.any():
            return cell
        plane = nodes[cell, 3]
        right = np.ones(len(queries), bool)
        by_plane = walking & (plane >= 0)
        sides = np.einsum(
            "ij,ij->i", queries[by_plane], planes[plane[by_plane]]
        )
        right[by_plane] = sides >= 0
        below = child + right
        walking &= nodes[below, 1] - nodes[below, 0] >= bucket
        cell = np.where(walking, below, cell)


def _most_voted(pool, num_candidates):
    """Distinct ids; where too many, those that most trees agree on."""
    ids, first, votes = np.unique(pool, return_index=True, return_counts=True)
    if 0 < num_candidates < len(ids):
        order = np.lexsort((first, -votes))[:num_candidates]
        ids = ids[order]
    return ids.astype(np.int64)
