"""Negatives from the groups of the labels: k-means and PCA hash."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.ops.index import ClusterIndex
from tfxclass.ops.index import PCAHash
from tfxclass.ops.index import RowGroups
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.samplers.schedule import FixedSchedule
from tfxclass.samplers.schedule import Refresh
from tfxclass.types import Scalar
from tfxclass.types import Variable

# Class vectors that k-means is trained on, for each center.
_ROWS_A_CENTRE = 64


class Groups:
    """A source: the classes in the groups of the labels.

    `num_groups` is the number of groups, or of bits of a `PCAHash`.
    """

    def __init__(
        self, kind: type[RowGroups], num_groups: int, seed: int | None
    ) -> None:
        self.index = kind(num_groups=num_groups, seed=seed or 0)

    def prepare(self, sampler: IndexedSampler) -> None:
        """Takes whether logits are cosines."""
        self.index.options["normalize"] = sampler.normalize

    def find(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        budget: tf.Tensor,
        step: tf.Tensor,
        next_seed: Callable[[], tf.Tensor],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, scores)` `[n]` of classes in the groups of the labels."""
        del queries, kernel, step
        # The labels themselves are members, and take none of the budget.
        limit = budget + tf.size(target_ids, tf.int64)
        ids = self.index.members(target_ids, tf.maximum(limit, 1), next_seed())
        return ids, tf.zeros_like(ids, tf.float32)

    def index_bytes(
        self, num_classes: int, dim: int, fraction: float, num_threads: int
    ) -> int:
        """Bytes of groups with a vector each, refresh included."""
        del fraction, num_threads
        row, sample = 4 * dim + 4, 0
        num_groups = self.index.options["num_groups"]
        if isinstance(self.index, ClusterIndex):
            # The class vectors that centers are trained on, copied.
            sample = min(_ROWS_A_CENTRE * num_groups, num_classes)
        else:
            num_groups = min(1 << num_groups, num_classes)
        groups = 8 * num_classes + row * num_groups
        return 2 * groups + row * (num_classes + sample)


class _GroupSchedule(FixedSchedule):
    """A `FixedSchedule` of an index whose lag is always the interval."""

    def refresh(self, step: Scalar, step_time: Scalar) -> Refresh:
        return {"interval": super().refresh(step, step_time)["interval"]}


@keras.saving.register_keras_serializable("tfxclass")
class KMeansSampler(IndexedSampler):
    """Labels, classes of the labels' clusters, and uniform samples.

    Use it to reproduce the paper's comparison, with `correct_fill=False` and
    `neighbor_fraction=1.0`. Class vectors are clustered by direction. The
    negatives are the classes in the clusters of the batch's labels, sampled
    uniformly if there are too many. The first step builds the clusters. Every
    `rebuild_interval` steps new ones are begun, to be used as many steps later.

    Args:
        num_sampled, seed: as in `Sampler`.
        num_groups: int, clusters, at most as many as classes. Defaults to 1024.
        rebuild_interval: int, in steps. Defaults to 500.
        neighbor_fraction, correct_fill: as in `HashingForestSampler`.

    References:
        See `HashingForestSampler`.
    """

    has_gpu_ops = False

    def __init__(
        self,
        num_sampled: int | None = None,
        num_groups: int = 1024,
        rebuild_interval: int = 500,
        correct_fill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, **kwargs)
        self.num_groups = check_positive_int("num_groups", num_groups)
        self.schedule = _GroupSchedule(rebuild_interval)
        self.rebuild_interval = self.schedule.interval
        self.correct_fill = self.estimates_sums = correct_fill
        self.source = Groups(ClusterIndex, self.num_groups, self.seed)


@keras.saving.register_keras_serializable("tfxclass")
class PCAHashSampler(IndexedSampler):
    """Labels, classes with the labels' PCA codes, and uniform samples.

    Use it and refresh it as `KMeansSampler`. Bit i of a class's code says
    whether its projection on principal axis i is at least the mean's. (The
    paper takes the sign.) The negatives are the classes with the codes of the
    batch's labels, sampled uniformly if there are too many.

    Args:
        num_bits: int in [1, 30], at most the width of the class vectors.
            Defaults to 10.
        num_sampled, seed, rebuild_interval, neighbor_fraction, correct_fill: as
            in `KMeansSampler`.

    References:
        See `HashingForestSampler`.
    """

    has_gpu_ops = False

    def __init__(
        self,
        num_sampled: int | None = None,
        num_bits: int = 10,
        rebuild_interval: int = 500,
        correct_fill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, **kwargs)
        self.num_bits = check_positive_int("num_bits", num_bits)
        check_value("num_bits", num_bits, num_bits <= 30, "at most 30")
        self.schedule = _GroupSchedule(rebuild_interval)
        self.rebuild_interval = self.schedule.interval
        self.correct_fill = self.estimates_sums = correct_fill
        self.source = Groups(PCAHash, self.num_bits, self.seed)
