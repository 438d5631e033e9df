"""Negatives that a hashing forest finds: the classes nearest to the batch."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.ops.hashing_forest import HashingForest
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.class_rows import ClassRows
from tfxclass.samplers import renamed_arguments
from tfxclass.samplers.allocation import AdaptiveAllocation
from tfxclass.samplers.candidates import NeighborSampler
from tfxclass.samplers.drift import Drift
from tfxclass.samplers.drift import check_rebuild_interval
from tfxclass.samplers.forest_search import ForestSearch
from tfxclass.samplers.forest_search import check_forest_options
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.samplers.sample_size import count_labels
from tfxclass.types import Config
from tfxclass.types import Scalar
from tfxclass.types import Variable

# Rows whose softmax is computed in full to choose the number of classes.
_ALLOCATION_ROWS = 32


@keras.saving.register_keras_serializable("tfxclass")
class HashingForestSampler(NeighborSampler, IndexedSampler):
    """The labels of the batch, the classes nearest to its features, a fill.

    A step searches the forest for a fraction of the batch's rows, those whose
    labels were searched for longest ago. For all rows, the classes that were
    found are compared with the cached neighbors of the label and of one of its
    neighbors, and with the labels of recent rows with similar features. The
    best eight are cached, so each step has neighbors of all rows
    (`NeighborCache`). Where the union of all neighbors is more than
    `neighbor_fraction` of the classes that labels leave, the classes stay to
    which a row gives the most probability. The rest of the sample is uniform.
    `correct_fill` gives these classes the weight of all classes that they
    stand for, which makes the sum of exponentials an unbiased estimate.
    Without it, and with `neighbor_fraction=1`, the softmax is the paper's,
    restricted to the sample.

    The first step builds a forest of the class vectors as they are. A new
    forest is built in the background from a snapshot of the class vectors, and
    its trees replace the old ones one by one over `rebuild_interval` steps (on
    a GPU, all at the end). With `"auto"` a rebuild begins when the forest has
    drifted. That is measured by the ten greatest logits of a few rows, which
    are computed exactly now and then: the forest has drifted when it finds
    less than nine tenths of what it found when it was new, by more than
    chance. Refreshes then take about a twentieth of the time of the steps, or
    a quarter where the forest is searched for all rows.

    Args:
        num_sampled: int, number of classes a step, labels included.
        num_trees: int; by default 50, or as many as a forest of 2 GB has, its
            refresh included (24 at 10M classes).
        leaf_size: int, most rows of a cell.
        num_neighbors: int Q, classes looked for a row of the batch;
            by default as many as fill the candidates' part of the sample, and
            its labels.
        num_candidates: int, most classes that a query scores, those that most
            trees agree on; None scores all that the trees give, as the paper
            does.
        query_fraction: float in (0, 1], fraction of the rows that the forest is
            searched for; 1 is all rows, as in the paper. By default a
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

    default_query_fraction = 0.0625
    #: Arguments besides `num_sampled` and `seed`.
    option_names = (
        "num_trees",
        "leaf_size",
        "num_neighbors",
        "num_candidates",
        "rebuild_interval",
        "neighbor_fraction",
        "correct_fill",
        "allocation",
        "query_fraction",
    )

    def __init__(
        self,
        num_sampled: int | None = None,
        num_trees: int | None = None,
        leaf_size: int = 100,
        num_candidates: int | None = 64,
        rebuild_interval: int | str = "auto",
        allocation: AdaptiveAllocation | None = None,
        query_fraction: float | None = None,
        **kwargs: Any,
    ) -> None:
        earlier = renamed_arguments.take(
            type(self).__name__, self.renamed, kwargs
        )
        super().__init__(num_sampled, **kwargs)
        num_trees, leaf_size, num_candidates = check_forest_options(
            num_trees, leaf_size, num_candidates
        )
        if isinstance(allocation, dict):
            allocation = keras.saving.deserialize_keras_object(allocation)
        self.num_trees = num_trees
        self.leaf_size = leaf_size
        self.num_candidates = num_candidates
        self.rebuild_interval = check_rebuild_interval(rebuild_interval)
        self.allocation = allocation
        self.query_fraction = earlier.get("query_fraction", query_fraction)
        self.check_query_fraction()
        self.index = HashingForest()
        self.forest = ForestSearch(
            self, max_oversampling=8, allocation=allocation
        )

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        super().build(kernel_shape)
        self.num_active = self.counter("num_active", self.num_sampled)
        self.build_cache(kernel_shape)
        if self.neighbor_cache is not None:
            self.sample_overflow = False
        self.forest.build(kernel_shape)

    @property
    def drift(self) -> Drift | None:
        """What measures the recall; None with a fixed `rebuild_interval`."""
        return self.forest.drift

    def may_cache(self) -> bool:
        return self.query_fraction is not None or self.correct_fill

    def index_bytes(self, num_classes: int, dim: int) -> int:
        return self.forest.index_bytes(num_classes, dim)

    def searches_index(self) -> bool:
        return self.forest.is_used

    def build_index(self, kernel: Variable) -> None:
        self.forest.build_index(kernel)

    def refresh(self, queries: tf.Tensor, kernel: Variable) -> None:
        self.forest.refresh(queries, kernel)

    def neighbors(
        self, queries: tf.Tensor, kernel: Variable, num_neighbors: Scalar
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return self.forest.neighbors(queries, kernel, num_neighbors)

    def search(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        wanted: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return self.forest.search(queries, target_ids, kernel, wanted)

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
        options = {name: getattr(self, name) for name in self.option_names}
        options["allocation"] = self.allocation and (
            keras.saving.serialize_keras_object(self.allocation)
        )
        return {**super().get_config(), **options}
