"""Negatives that a hashing forest finds: the classes nearest to the batch."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.ops.hashing_forest import HashingForest
from tfxclass.rows.class_rows import ClassRows
from tfxclass.rows.products import all_products
from tfxclass.samplers.allocation import AdaptiveAllocation
from tfxclass.samplers.candidates import NeighborSampler
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.types import Config
from tfxclass.types import Scalar
from tfxclass.types import Variable

# Rows whose softmax is computed in full to choose the number of classes.
_ALLOCATION_ROWS = 32


@keras.saving.register_keras_serializable("tfxclass")
class HashingForestSampler(NeighborSampler, IndexedSampler):
    """The labels of the batch, the classes nearest to its features, a fill.

    A step queries the forest with every row of the batch; what it finds is
    united; where that is more than `neighbor_fraction` of the places, it is
    sampled by probability. The rest of the places is drawn uniformly, and
    `correct_fill` gives those classes the weight of all that they stand for,
    which makes the sum of exponentials an unbiased estimate; without it, and
    with `neighbor_fraction=1`, the softmax is the paper's, restricted to the
    set.

    Every `rebuild_interval` steps a new forest is begun from a snapshot of
    the class rows, in the background, and takes the old one's place
    `rebuild_interval` steps later. Before the first one is ready, classes are
    drawn uniformly.

    Args:
        num_sampled: int, number of classes a step, labels included.
        num_trees: int.
        leaf_size: int, most rows of a cell.
        num_neighbors: int Q, classes looked for a row of the batch;
            by default as many as fill the neighbours' places.
        num_candidates: int, most classes that a query scores, those that most
            trees agree on; None scores all that the trees give, as the paper
            does.
        rebuild_interval: int, in steps.
        neighbor_fraction: float in (0, 1], most places for neighbours.
        correct_fill: whether the fill is weighted.
        allocation: `AdaptiveAllocation` or None.
        seed: int.

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018.
    """

    def __init__(
        self,
        num_sampled: int,
        num_trees: int = 50,
        leaf_size: int = 100,
        num_candidates: int | None = 64,
        rebuild_interval: int = 500,
        allocation: AdaptiveAllocation | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, **kwargs)
        check_positive_int("num_trees", num_trees)
        check_positive_int("leaf_size", leaf_size)
        check_positive_int("rebuild_interval", rebuild_interval)
        if num_candidates is not None:
            check_positive_int("num_candidates", num_candidates)
        if isinstance(allocation, dict):
            allocation = keras.saving.deserialize_keras_object(allocation)
        self.num_trees = num_trees
        self.leaf_size = leaf_size
        self.num_candidates = num_candidates
        self.rebuild_interval = rebuild_interval
        self.allocation = allocation
        self.index = HashingForest()

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        super().build(kernel_shape)
        self.num_active = self.counter("num_active", self.num_sampled)

    def index_bytes(self, num_classes: int, dim: int) -> int:
        # Cells come out half full; a node has 16 bytes, a plane 16-bit
        # numbers and 8 bytes. The copy is in floats and in 16 bits.
        cells = 2 * num_classes // self.leaf_size + 1
        tree = 4 * num_classes + cells * (2 * 16 + 2 * dim + 8)
        return 2 * self.num_trees * tree + num_classes * (6 * dim + 8)

    def rebuild(self, kernel: Variable) -> None:
        """Builds a forest of the rows as they are, now."""
        self.index.build(
            kernel, self.num_trees, self.leaf_size, seed=self.seed or 0
        )

    def refresh(self, kernel: Variable) -> None:
        step = tf.convert_to_tensor(self.step)
        num_trees, interval = self._schedule(step)
        self.index.advance(
            kernel,
            step,
            interval,
            num_trees,
            self.leaf_size,
            seed=self.seed or 0,
        )

    def neighbors(
        self, queries: tf.Tensor, kernel: Variable, num_neighbors: Scalar
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, scores)` `[batch, Q]` of the forest, scores are logits."""
        num_neighbors = tf.cast(num_neighbors, tf.int64)
        num_candidates = tf.zeros([], tf.int64)  # score all
        if self.num_candidates is not None:
            num_candidates = tf.maximum(num_neighbors, self.num_candidates)
        return self.index.query(
            kernel,
            queries,
            num_neighbors,
            num_candidates=num_candidates,
            normalize=self.similarity == "cosine",
        )

    def _schedule(self, step):
        if self.allocation is None:
            return (
                tf.constant(self.num_trees, tf.int64),
                tf.constant(self.rebuild_interval, tf.int64),
            )
        return self.allocation.forest_schedule(step)

    def num_active_classes(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> tf.Tensor:
        if self.allocation is None:
            return super().num_active_classes(queries, target_ids, kernel)
        step = tf.convert_to_tensor(self.step)
        starts = tf.equal(step % self.allocation.phase_steps, 0)
        active = tf.cond(
            starts,
            lambda: self._allocate(step, queries, kernel),
            lambda: tf.convert_to_tensor(self.num_active),
        )
        self.num_active.assign(active)
        labels = tf.size(target_ids, tf.int64)
        return tf.minimum(tf.maximum(active, labels), self.num_sampled)

    def _allocate(self, step, queries, kernel):
        rows = ClassRows(
            tf.convert_to_tensor(kernel), normalize=self.similarity == "cosine"
        )
        logits = all_products(queries[:_ALLOCATION_ROWS], rows)
        gains = tf.math.top_k(tf.nn.softmax(logits), self.num_sampled).values
        return self.allocation.num_classes_for(step, gains)

    def get_config(self) -> Config:
        config = {
            name: getattr(self, name)
            for name in (
                "num_trees",
                "leaf_size",
                "num_candidates",
                "rebuild_interval",
            )
        }
        allocation = self.allocation and keras.saving.serialize_keras_object(
            self.allocation
        )
        return {**super().get_config(), **config, "allocation": allocation}
