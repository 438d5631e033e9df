"""Negatives from the groups of the labels: k-means and PCA hash."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.ops.row_groups import ClusterIndex
from tfxclass.ops.row_groups import PCAHash
from tfxclass.samplers.candidates import CandidateSampler
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.samplers.indexed import grouped_bytes
from tfxclass.types import Config
from tfxclass.types import Variable


class _GroupSampler(CandidateSampler, IndexedSampler):
    def __init__(
        self,
        num_sampled: int | None = None,
        rebuild_interval: int = 500,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, **kwargs)
        rebuild_interval = check_positive_int(
            "rebuild_interval", rebuild_interval
        )
        self.rebuild_interval = rebuild_interval

    def _num_groups(self):
        raise NotImplementedError

    def build_index(self, kernel: Variable) -> None:
        self.index.build(
            kernel,
            self._num_groups(),
            seed=self.seed or 0,
            normalize=self.similarity == "cosine",
        )

    def refresh(self, queries: tf.Tensor, kernel: Variable) -> None:
        self.announce_first_build(kernel)
        self.index.advance(
            kernel,
            tf.convert_to_tensor(self.step),
            self.rebuild_interval,
            self._num_groups(),
            seed=self.seed or 0,
            normalize=self.similarity == "cosine",
        )

    def candidates(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        candidate_budget: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        # The labels themselves are members, and take none of the budget.
        limit = candidate_budget + tf.size(target_ids, tf.int64)
        ids = self.index.members(
            target_ids, tf.maximum(limit, 1), self.next_seed()
        )
        return ids, tf.zeros_like(ids, tf.float32)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "rebuild_interval": self.rebuild_interval,
        }


@keras.saving.register_keras_serializable("tfxclass")
class KMeansSampler(_GroupSampler):
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

    def __init__(
        self,
        num_sampled: int | None = None,
        num_groups: int = 1024,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, **kwargs)
        num_groups = check_positive_int("num_groups", num_groups)
        self.num_groups = num_groups
        self.index = ClusterIndex()

    def _num_groups(self):
        return self.num_groups

    def index_bytes(self, num_classes: int, dim: int) -> int:
        return grouped_bytes(num_classes, dim, self.num_groups)

    def get_config(self) -> Config:
        return {**super().get_config(), "num_groups": self.num_groups}


@keras.saving.register_keras_serializable("tfxclass")
class PCAHashSampler(_GroupSampler):
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

    def __init__(
        self,
        num_sampled: int | None = None,
        num_bits: int = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, **kwargs)
        num_bits = check_positive_int("num_bits", num_bits)
        if num_bits > 30:
            raise ValueError(
                f"`num_bits` must be at most 30. Received: {num_bits}"
            )
        self.num_bits = num_bits
        self.index = PCAHash()

    def _num_groups(self):
        return self.num_bits

    def index_bytes(self, num_classes: int, dim: int) -> int:
        groups = min(1 << self.num_bits, num_classes)
        return grouped_bytes(num_classes, dim, groups, is_trained=False)

    def get_config(self) -> Config:
        return {**super().get_config(), "num_bits": self.num_bits}
