"""Groups of class rows: built, kept fresh and asked by compiled ops."""

from typing import Any

import tensorflow as tf

from tfxclass.ops.index import RefreshingIndex
from tfxclass.ops.placement import handle_of
from tfxclass.types import Scalar
from tfxclass.types import Variable

for _name in ("ClusterMembers", "PcaHashMembers"):
    tf.no_gradient("Tfxclass>" + _name)


class RowGroups(RefreshingIndex):
    """Each row of a class matrix is in one group; a subclass says which."""

    def build(
        self,
        kernel: Variable,
        num_groups: Scalar,
        seed: Scalar = 0,
        normalize: bool = False,
    ) -> Any:
        """Builds from the rows as they are, now.

        Args:
            kernel: float32 variable `[num_classes, dim]`.
            num_groups: int, groups, or bits of `PCAHash`.
            seed: int. Same seed and rows, same groups.
            normalize: whether logits are cosines.

        Raises:
            InvalidArgumentError: rows that are not finite.
        """
        return self.op("build")(
            self.handle,
            handle_of(kernel),
            num_groups,
            seed,
            normalize=normalize,
        )

    def advance(
        self,
        kernel: Variable,
        step: Scalar,
        interval: Scalar,
        num_groups: Scalar,
        seed: Scalar,
        normalize: bool = False,
    ) -> Any:
        """Refreshes in the background as is due at `step`.

        Where nothing is under way, a refresh begins; it takes its place, and
        the next one may begin, exactly `interval` steps later.

        Args:
            kernel: float32 variable `[num_classes, dim]`.
            step, interval, num_groups, seed: int64 scalars.
            normalize: whether logits are cosines.
        """
        return self.op("advance")(
            self.handle,
            handle_of(kernel),
            step,
            interval,
            num_groups,
            seed,
            normalize=normalize,
        )

    def members(
        self, targets: tf.Tensor, limit: Scalar, seed: tf.Tensor
    ) -> tf.Tensor:
        """Classes in the groups that hold `targets`, these included.

        Args:
            targets: int64 tensor of any shape, -1 is padding.
            limit: int64 scalar; of more classes, `limit` are drawn uniformly
                without replacement.
            seed: int64 `[2]`.

        Returns:
            int64 `[n]`, distinct; empty before the first groups are ready.
        """
        return self.op("members")(self.handle, targets, limit, seed)


class PCAHash(RowGroups):
    """Rows by the signs of their projections on their principal axes."""

    prefix = "pca_hash"


class ClusterIndex(RowGroups):
    """Rows by their nearest centre of a spherical k-means."""

    prefix = "cluster"
