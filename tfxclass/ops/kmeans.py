"""Spherical k-means: rows by direction, whatever their norms.

The same result on any number of threads. `tf.errors.InvalidArgumentError` for
rows that are not finite, for none, and for numbers out of range.
"""

import tensorflow as tf

from tfxclass.ops import library
from tfxclass.types import Array

for _name in ("KMeans", "HalveGroups"):
    tf.no_gradient("Tfxclass>" + _name)


def clusters(rows: Array, num_clusters: int, seed: int = 0) -> tf.Tensor:
    """Which of about `num_clusters` clusters each row is in.

    Centres in two levels, as a `ClusterIndex` has them: about
    7 root(num_clusters) products a row, 10 s of a core for 1M rows of 128 in
    4,000 clusters.

    Args:
        rows: float32 or bfloat16 `[n, dim]`.
        num_clusters: int; of n rows at most n clusters are made, and some may
            be empty.
        seed: int.

    Returns:
        int64 `[n]`, in `[0, num_clusters)`.
    """
    return library.ops.tfxclass_k_means(rows, num_clusters, seed)


def halve_groups(
    rows: Array,
    ids: Array,
    sizes: Array,
    splits: Array,
    num_iterations: int,
    seed: int = 0,
) -> tf.Tensor:
    """Splits groups of rows in halves of equal size, by a 2-means each.

    Args:
        rows: float32 `[n, dim]`.
        ids: int64 `[m]`, rows of the groups, one group after the other.
        sizes: int64 `[groups]`, rows of each.
        splits: bool `[groups]`, which are split; the others stay as they are.
        num_iterations: int, most rounds of a 2-means.
        seed: int.

    Returns:
        int64 `[m]`: `ids` with the left half, `(size + 1) // 2` of the rows,
        first in each group.
    """
    return library.ops.tfxclass_halve_groups(
        rows, ids, sizes, splits, num_iterations, seed
    )
