"""Negatives that a cluster index finds: the classes nearest to the batch."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.ops.row_groups import ClusterIndex
from tfxclass.samplers.candidates import NeighborSampler
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.samplers.indexed import grouped_bytes
from tfxclass.types import Config
from tfxclass.types import Scalar
from tfxclass.types import Variable


@keras.saving.register_keras_serializable("tfxclass")
class ClusterSampler(NeighborSampler, IndexedSampler):
    """Labels, the nearest classes by inverted lists, and uniform samples.

    Use it to find hard negatives with less memory than a forest. Class vectors
    are kept in lists, by their nearest k-means center. For each example, a step
    reads the `num_probes` lists with the greatest products with the features,
    and scores their classes with the current class vectors. The rest of the
    sample is uniform, so the estimate stays right if the index is out of date.
    A search costs one product for each center and for each class of the lists:
    about `num_probes / num_clusters` of all classes.

    Every `rebuild_interval` steps, new centers are computed in the background
    from a snapshot of the class vectors. They replace the old ones a quarter of
    the interval later. Every `update_interval` steps, the class vectors that
    were updated are assigned to lists again. The first step builds an index.
    Memory: two indexes of 8 bytes for each class, and a copy of the class
    matrix.

    Args:
        num_sampled: int, number of classes in a training step, labels included.
        num_clusters: int. Defaults to four times the square root of the number
            of classes.
        num_probes: int, number of lists that are read for each example.
            Defaults to 8.
        num_neighbors: int, number of classes that each example contributes. By
            default as many as fill the places reserved for similar classes.
        update_interval: int, in steps. Defaults to 50.
        rebuild_interval: int, in steps, at least 4. Defaults to 500.
        neighbor_fraction: float in (0, 1], fraction of the non-label places
            that is reserved for similar classes. Defaults to 0.5.
        correct_fill: bool, whether the uniform samples stand for all classes
            that were not found.
        seed: int, seed of the sampling.

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(
        1_000_000, sampler=tfxclass.samplers.ClusterSampler(4096)
    )
    ```
    """

    def __init__(
        self,
        num_sampled: int | None = None,
        num_clusters: int | None = None,
        num_probes: int = 8,
        update_interval: int = 50,
        rebuild_interval: int = 500,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, **kwargs)
        if num_clusters is not None:
            num_clusters = check_positive_int("num_clusters", num_clusters)
        num_probes = check_positive_int("num_probes", num_probes)
        update_interval = check_positive_int("update_interval", update_interval)
        rebuild_interval = check_positive_int(
            "rebuild_interval", rebuild_interval
        )
        if rebuild_interval < 4:
            raise ValueError(
                "`rebuild_interval` must be at least 4. Received: "
                f"{rebuild_interval}"
            )
        self.num_clusters = num_clusters
        self.num_probes = num_probes
        self.update_interval = update_interval
        self.rebuild_interval = rebuild_interval
        self.index = ClusterIndex()

    def index_bytes(self, num_classes: int, dim: int) -> int:
        clusters = self._num_clusters(num_classes)
        return grouped_bytes(num_classes, dim, clusters)

    def _num_clusters(self, num_classes):
        if self.num_clusters is not None:
            return self.num_clusters
        return max(round(4 * num_classes**0.5), 1)

    def build_index(self, kernel: Variable) -> None:
        clusters = self._num_clusters(self.num_classes)
        self.index.build(kernel, clusters, seed=self.seed or 0)

    def refresh(self, queries: tf.Tensor, kernel: Variable) -> None:
        step = tf.convert_to_tensor(self.step)
        since = step % self.rebuild_interval
        rebuild = tf.equal(since, 0)
        until_centres = tf.constant(self.rebuild_interval // 4, tf.int64)
        # The last update ends where the next centres are due.
        left = self.rebuild_interval - since
        update = tf.minimum(tf.constant(self.update_interval, tf.int64), left)
        self.announce_first_build(kernel)
        self.index.advance(
            kernel,
            step,
            tf.where(rebuild, until_centres, update),
            self._num_clusters(self.num_classes),
            seed=self.seed or 0,
            rebuild=rebuild,
        )

    def neighbors(
        self, queries: tf.Tensor, kernel: Variable, num_neighbors: Scalar
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return self.index.query(
            kernel,
            queries,
            num_neighbors,
            self.num_probes,
            normalize=self.similarity == "cosine",
        )

    def update(self, kernel: Variable, touched_ids: tf.Tensor) -> None:
        self.rows_moved(touched_ids)
        super().update(kernel, touched_ids)

    def rows_moved(self, ids: tf.Tensor) -> None:
        self.index.mark(ids)

    def get_config(self) -> Config:
        config = {
            name: getattr(self, name)
            for name in (
                "num_clusters",
                "num_probes",
                "update_interval",
                "rebuild_interval",
            )
        }
        return {**super().get_config(), **config}
