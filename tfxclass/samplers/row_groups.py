"""Negatives from the groups of the labels: k-means and PCA hash."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.ops.row_groups import ClusterIndex
from tfxclass.ops.row_groups import PCAHash
from tfxclass.ops.row_groups import RowGroups
from tfxclass.samplers.drift import FixedSchedule
from tfxclass.samplers.drift import Refresh
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.types import Variable

# Class vectors that k-means is trained on, for each center.
_ROWS_A_CENTRE = 64


class Groups:
    """A source: the classes in the groups of the labels.

    Args:
        index: `RowGroups`.
        num_groups: int, groups, or bits of `PCAHash`.
        seed: int or None.
        normalize: bool, whether logits are cosines.
    """

    def __init__(
        self,
        index: RowGroups,
        num_groups: int,
        seed: int | None,
        normalize: bool,
    ) -> None:
        self.index = index
        self._num_groups = num_groups
        self._options: dict[str, Any] = {
            "seed": seed or 0,
            "normalize": normalize,
        }

    def build(self, kernel: Variable) -> None:
        """Builds the groups of the class vectors as they are, now."""
        self.index.build(kernel, self._num_groups, **self._options)

    def advance(
        self, kernel: Variable, step: tf.Tensor, refresh: Refresh
    ) -> None:
        """Builds or refreshes the groups where `refresh` says so."""
        self.index.advance(
            kernel, step, refresh.interval, self._num_groups, **self._options
        )

    def members(
        self, target_ids: tf.Tensor, budget: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Classes in the groups of the labels: of `IndexedSampler.find`."""
        # The labels themselves are members, and take none of the budget.
        limit = budget + tf.size(target_ids, tf.int64)
        ids = self.index.members(target_ids, tf.maximum(limit, 1), seed)
        return ids, tf.zeros_like(ids, tf.float32)


def _bytes_of(num_classes, dim, num_groups, is_trained):
    """Bytes of groups with a vector each, refresh included."""
    row = 4 * dim + 4
    groups = 8 * num_classes + row * num_groups
    # The sample that centers are trained on, copied.
    sample = min(_ROWS_A_CENTRE * num_groups, num_classes) * is_trained
    return 2 * groups + row * (num_classes + sample)


@keras.saving.register_keras_serializable("tfxclass")
class KMeansSampler(IndexedSampler):
    """Labels, classes of the labels' clusters, and uniform samples.

    Use it to reproduce the paper's comparison. Class vectors are clustered by
    direction. The negatives are the classes in the clusters of the batch's
    labels, sampled uniformly if there are too many. The first step clusters the
    class vectors. Every `rebuild_interval` steps a new clustering is begun in
    the background, and replaces the old one `rebuild_interval` steps later.

    Args:
        num_sampled: int, number of classes in a training step, labels included.
        num_groups: int, number of clusters, at most the number of classes.
            Defaults to 1024.
        rebuild_interval: int, in steps. Defaults to 500.
        neighbor_fraction: float in (0, 1], fraction of the non-label places
            that is reserved for similar classes. Defaults to 0.5.
        correct_fill: bool, whether the uniform samples stand for all classes
            that were not found.
        seed: int, seed of the sampling.

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018.
    """

    has_gpu_ops = False
    option_names = (
        "num_groups",
        "rebuild_interval",
        "neighbor_fraction",
        "correct_fill",
    )

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
        self.rebuild_interval = check_positive_int(
            "rebuild_interval", rebuild_interval
        )
        self.correct_fill = self.estimates_sums = correct_fill
        self.schedule = FixedSchedule(self.rebuild_interval)

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        self.source = Groups(
            ClusterIndex(), self.num_groups, self.seed, self.normalize
        )
        super().build(kernel_shape)

    def find(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        budget: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return self.source.members(target_ids, budget, self.next_seed())

    def index_bytes(self, num_classes: int, dim: int) -> int:
        return _bytes_of(num_classes, dim, self.num_groups, is_trained=True)


@keras.saving.register_keras_serializable("tfxclass")
class PCAHashSampler(IndexedSampler):
    """Labels, classes with the labels' PCA codes, and uniform samples.

    Use it to reproduce the paper's comparison. The code of a class is the signs
    of its vector's projections on the `num_bits` principal axes. The negatives
    are the classes with the codes of the batch's labels, sampled uniformly if
    there are too many. Codes are refreshed as in `KMeansSampler`.

    Args:
        num_sampled: int, number of classes in a training step, labels included.
        num_bits: int in [1, 30], at most the width of the class vectors.
            Defaults to 10.
        rebuild_interval: int, in steps. Defaults to 500.
        neighbor_fraction: float in (0, 1], fraction of the non-label places
            that is reserved for similar classes. Defaults to 0.5.
        correct_fill: bool, whether the uniform samples stand for all classes
            that were not found.
        seed: int, seed of the sampling.

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018.
    """

    has_gpu_ops = False
    option_names = (
        "num_bits",
        "rebuild_interval",
        "neighbor_fraction",
        "correct_fill",
    )

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
        if num_bits > 30:
            raise ValueError(
                f"`num_bits` must be at most 30. Received: {num_bits}"
            )
        self.rebuild_interval = check_positive_int(
            "rebuild_interval", rebuild_interval
        )
        self.correct_fill = self.estimates_sums = correct_fill
        self.schedule = FixedSchedule(self.rebuild_interval)

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        self.source = Groups(
            PCAHash(), self.num_bits, self.seed, self.normalize
        )
        super().build(kernel_shape)

    def find(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        budget: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return self.source.members(target_ids, budget, self.next_seed())

    def index_bytes(self, num_classes: int, dim: int) -> int:
        groups = min(1 << self.num_bits, num_classes)
        return _bytes_of(num_classes, dim, groups, is_trained=False)
