"""Negatives that a hashing forest finds: the classes nearest to the batch."""

import math
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.ops.hashing_forest import HashingForest
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.class_rows import ClassRows
from tfxclass.samplers.allocation import AdaptiveAllocation
from tfxclass.samplers.candidates import NeighborSampler
from tfxclass.samplers.drift import Drift
from tfxclass.samplers.drift import Refresh
from tfxclass.samplers.drift import batch_of
from tfxclass.samplers.drift import check_rebuild_interval
from tfxclass.samplers.forest_sizes import ForestSizes
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.samplers.masses import times_the_room
from tfxclass.samplers.remembered import width_of
from tfxclass.samplers.remembering import Remembering
from tfxclass.samplers.sample_size import count_labels
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Config
from tfxclass.types import Scalar
from tfxclass.types import Variable

# Rows whose softmax is computed in full to choose the number of classes.
_ALLOCATION_ROWS = 32


@keras.saving.register_keras_serializable("tfxclass")
class HashingForestSampler(
    ForestSizes, Remembering, NeighborSampler, IndexedSampler
):
    """The labels of the batch, the classes nearest to its features, a fill.

    A step queries the forest with a part of the batch's rows, those whose
    labels were searched for longest ago. What is found is compared with what
    is remembered of the label and of one of its neighbours, and with the labels
    of rows that lately had like features, and the best eight are kept: so a
    step has neighbours of all rows. All of it is united; where
    that is more than `neighbor_fraction` of the places that labels leave, those
    stay to which a row gives the most probability. The rest of the places is
    drawn uniformly, and `correct_fill` gives those classes the weight of all
    that they stand for, which makes the sum of exponentials an unbiased
    estimate; without it, and with `neighbor_fraction=1`, the softmax is the
    paper's, restricted to the set.

    The first step builds a forest of the rows as they are. A new one is begun
    from a snapshot of the class rows, in the background, and its trees take the
    old ones' places one by one over `rebuild_interval` steps (on a GPU, all at
    the end): when it has drifted, `"auto"`, or every `rebuild_interval` steps.
    It has drifted when it finds less than nine tenths as many as it did when it
    was new, and not by chance, of the ten greatest logits of a few rows,
    answered exactly now and then; refreshes then take about a twentieth of the
    time of the steps, a quarter where all rows are asked for.

    Args:
        num_sampled: int, number of classes a step, labels included.
        num_trees: int; by default 50, or as many as a forest of 2 GB has, its
            refresh included (24 at 10M classes).
        leaf_size: int, most rows of a cell.
        num_neighbors: int Q, classes looked for a row of the batch;
            by default as many as fill the neighbours' places, and its labels.
        num_candidates: int, most classes that a query scores, those that most
            trees agree on; None scores all that the trees give, as the paper
            does.
        query_share: float in (0, 1], part of the rows that the forest is
            queried with; 1 is all of them, as in the paper. By default a
            sixteenth with `correct_fill`, and else 1. Always 1 for shards, on
            parameter servers and on GPUs.
        rebuild_interval: int, in steps, or `"auto"`.
        neighbor_fraction: float in (0, 1], their part of what labels leave.
        correct_fill: whether the fill is weighted.
        allocation: `AdaptiveAllocation` or None.
        seed: int.

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018.
    """

    #: How many times the room a search gives at most.
    most_times = 8

    def __init__(
        self,
        num_sampled: int | None = None,
        num_trees: int | None = None,
        leaf_size: int = 100,
        num_candidates: int | None = 64,
        rebuild_interval: int | str = "auto",
        allocation: AdaptiveAllocation | None = None,
        query_share: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, **kwargs)
        if num_trees is not None:
            num_trees = check_positive_int("num_trees", num_trees)
        leaf_size = check_positive_int("leaf_size", leaf_size)
        if num_candidates is not None:
            num_candidates = check_positive_int(
                "num_candidates", num_candidates
            )
        if isinstance(allocation, dict):
            allocation = keras.saving.deserialize_keras_object(allocation)
        self.num_trees = num_trees
        self.leaf_size = leaf_size
        self.num_candidates = num_candidates
        self.rebuild_interval = check_rebuild_interval(rebuild_interval)
        self.allocation = allocation
        self.query_share = query_share
        self.check_share()
        self.drift = None
        self.index = HashingForest()

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        super().build(kernel_shape)
        self.num_active = self.counter("num_active", self.num_sampled)
        self.levels = math.log2(max(kernel_shape[0] / self.leaf_size, 2))
        self.build_memory(kernel_shape)
        if self.remembered is not None:
            self.sample_overflow = False
        is_auto = self.rebuild_interval == "auto" and self.allocation is None
        if is_auto and self.share_of_queries() > 0:
            num_classes, dim = kernel_shape
            self.drift = Drift(
                self, num_classes, dim, self.build_nanoseconds(*kernel_shape)
            )

    def for_rows(self, *sizes: Any, **options: Any) -> Sampler:
        copy = super().for_rows(*sizes, **options)
        # Most labels of a batch are in other shards: nothing to remember by.
        copy.query_share = 1.0
        return copy

    def searches_index(self) -> bool:
        return self.share_of_queries() > 0

    def build_index(self, kernel: Variable) -> None:
        if not self.searches_index():
            return
        num_trees, sketch = self.trees_and_sketch(*kernel.shape)
        self.index.build(
            kernel,
            num_trees,
            self.leaf_size,
            seed=self.seed or 0,
            sketch=sketch,
        )

    def refresh(self, queries: tf.Tensor, kernel: Variable) -> None:
        if not self.searches_index():
            return
        step = tf.convert_to_tensor(self.step)
        num_trees, sketch = self.trees_and_sketch(*kernel.shape)
        num_trees, refresh = self._schedule(step, batch_of(queries), num_trees)
        self.tell_first(kernel)
        self.index.advance(
            kernel,
            step,
            refresh.interval,
            num_trees,
            self.leaf_size,
            seed=self.seed or 0,
            lag=refresh.lag,
            drifted=refresh.drifted,
            sketch=sketch,
        )
        if self.drift is not None:
            self.drift.watch(
                step,
                queries,
                kernel,
                lambda probes, ids: self.finds(probes, ids, kernel),
            )

    def search(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        wanted: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if self.remembered is None:
            return super().search(queries, target_ids, kernel, wanted)
        # Several times the places: of what is found shares decide.
        times = min(times_the_room(self.num_sampled), self.most_times)
        wanted = tf.minimum(times * wanted, self.num_classes)
        least = tf.maximum(wanted, width_of(self.num_classes))

        def find(rows):
            if self.share_of_queries() == 0:
                return tf.zeros([0, 1], tf.int64)
            return self.neighbors(tf.gather(queries, rows), kernel, least)[0]

        return self.search_some(queries, target_ids, kernel, wanted, find)

    def finds(
        self, queries: tf.Tensor, ids: tf.Tensor, kernel: Variable
    ) -> tf.Tensor:
        """Which of `ids` `[n, k]` a search for k classes finds, bool."""
        found, _ = self.neighbors(queries, kernel, tf.shape(ids)[1])
        return tf.reduce_any(ids[:, :, tf.newaxis] == found[:, tf.newaxis], 2)

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

    def _schedule(self, step, batch, num_trees):
        num_trees = tf.constant(num_trees, tf.int64)
        if self.allocation is not None:
            num_trees, interval = self.allocation.forest_schedule(step)
            return num_trees, Refresh(interval, interval)
        if self.drift is not None:
            return num_trees, self.drift.steps(step, batch)
        interval = tf.constant(self.rebuild_interval, tf.int64)
        return num_trees, Refresh(interval, interval)

    def num_active_classes(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Scalar:
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
        most = tf.cast(self.size_for(count_labels(target_ids)), tf.int64)
        return tf.minimum(tf.maximum(active, labels), most)

    def _allocate(self, step, queries, kernel):
        rows = ClassRows(
            tf.convert_to_tensor(kernel), normalize=self.similarity == "cosine"
        )
        logits = Blocks(queries[:_ALLOCATION_ROWS], rows).all_logits()
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
                "query_share",
            )
        }
        allocation = self.allocation and keras.saving.serialize_keras_object(
            self.allocation
        )
        return {**super().get_config(), **config, "allocation": allocation}
