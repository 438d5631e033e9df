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
    """The labels of the batch, the classes nearest to its features, a fill.

    An index of inverted lists: class rows by their nearest k-means centre. A
    step reads, for every row of the batch, the `num_probes` lists whose
    centres answer it most and scores their classes by the rows as they are;
    the rest of the sample is uniform, which keeps the estimate sound
    where the index is stale. A search costs a product a centre and one a class
    of the lists read, about `num_probes / num_clusters` of all.

    Every `rebuild_interval` steps new centres are begun from a snapshot of
    the class rows, in the background, and take their place a quarter of it
    later; then, every `update_interval` steps, the rows that steps touched are
    assigned again in the same way. The first step builds an index. Memory: two
    indexes of 8 bytes a class and a copy of the class matrix.

    Args:
        num_sampled: int, number of classes a step, labels included.
        num_clusters: int, by default four times the root of the classes.
        num_probes: int, lists read for a row of the batch.
        num_neighbors: int Q, classes taken for a row of the batch;
            by default as many as fill the candidates' part of the sample.
        update_interval: int, in steps.
        rebuild_interval: int, in steps; at least 4.
        neighbor_fraction: float in (0, 1], their part of what labels leave.
        correct_fill: whether the fill is weighted.
        seed: int.
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
