"""Groups of class rows: built, kept fresh and asked by compiled ops."""

import tensorflow as tf

from tfxclass.ops.index import RefreshingIndex
from tfxclass.types import Scalar

for _name in ("ClusterMembers", "PcaHashMembers"):
    tf.no_gradient("Tfxclass>" + _name)


class RowGroups(RefreshingIndex):
    """Each row of a class matrix is in one group; a subclass says which.

    `build` and `advance` take `num_groups` (bits of `PCAHash`) and `seed`,
    ints, and `normalize`, whether logits are cosines. A refresh is begun where
    none is under way, and takes its place `interval` steps later.
    """

    def __init__(self) -> None:
        super().__init__()
        self.options = {"normalize": False}

    def members(
        self, targets: tf.Tensor, limit: Scalar, seed: tf.Tensor
    ) -> tf.Tensor:
        """Classes in the groups that hold `targets`, these included.

        `targets` are int64 of any shape, -1 is padding. Of more than `limit`
        classes, an int64 scalar, so many are drawn uniformly without
        replacement. Distinct int64 `[n]`; none before the first groups are
        ready.
        """
        return self.op("members")(self.handle, targets, limit, seed)


class PCAHash(RowGroups):
    """Rows by the signs of their projections on their principal axes."""

    prefix = "pca_hash"


class ClusterIndex(RowGroups):
    """Rows by their nearest centre of a spherical k-means."""

    prefix = "cluster"
