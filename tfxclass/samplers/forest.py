"""Negatives that a hashing forest finds: the classes nearest to the batch."""

import math
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_fraction
from tfxclass.checks import check_optional_int
from tfxclass.checks import check_positive_int
from tfxclass.ops.index import HashingForest
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.samplers import neighbor_cache
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.samplers.indexed import count_distinct
from tfxclass.samplers.indexed import is_among
from tfxclass.samplers.indexed import neighbors_a_row
from tfxclass.samplers.sampler import count_labels
from tfxclass.samplers.schedule import AdaptiveAllocation
from tfxclass.samplers.schedule import check_rebuild_interval
from tfxclass.types import Config
from tfxclass.types import Scalar
from tfxclass.types import Variable

# Trees of a forest, where the index has room for so many.
_NUM_TREES = 50
_MIN_TREES = 8
# Limit of the bytes of an index, its refresh included.
_MAX_BYTES = 2 * 10**9
# Projections per tree where whole directions would take more bytes.
_SKETCH = 32
# Trees that are built ahead of their turn, or side by side by the first step.
_TREES_AHEAD = 2
# Rows whose softmax is computed in full to choose the number of classes.
_ALLOCATION_ROWS = 32


class Forest:
    """The source of a `HashingForestSampler`, which has its arguments."""

    def __init__(
        self,
        num_trees: int | None,
        leaf_size: int,
        num_candidates: int | None,
        num_neighbors: int | None,
        seed: int | None,
    ) -> None:
        self.num_trees = check_optional_int("num_trees", num_trees)
        self.leaf_size = check_positive_int("leaf_size", leaf_size)
        self.num_candidates = check_optional_int(
            "num_candidates", num_candidates
        )
        self.num_neighbors = check_optional_int("num_neighbors", num_neighbors)
        self.index = HashingForest(leaf_size=self.leaf_size, seed=seed or 0)

    def _levels(self):
        """Depth of a tree, float."""
        return math.log2(max(self._num_classes / self.leaf_size, 2))

    def build_nanoseconds(self) -> float:
        """Roughly how long one core builds a forest."""
        num_trees, sketch = self._sizes
        of_row = self._levels() * (2 + (sketch or self._dim) / 20)
        return num_trees * self._num_classes * of_row

    def query_nanoseconds(self) -> float:
        """Roughly how long one core searches for one row."""
        of_tree = 100 + self._levels() * (20 + self._dim / 16)
        scored = self.num_candidates or 10 * self.leaf_size
        return self._sizes[0] * of_tree + scored * 100

    def trees_and_sketch(
        self, num_classes: int, dim: int, is_cached: bool
    ) -> tuple[int, int]:
        """`(num_trees, sketch)`, ints.

        In a forest that would take more than 2 GB, with its cache, trees split
        `sketch` projections of the class vectors (0 for none), and there are
        fewer trees if their number was not given.
        """
        num_trees = self.num_trees or _NUM_TREES
        sizes = num_classes, dim, is_cached
        if self._bytes_of(*sizes, num_trees, 0) <= _MAX_BYTES:
            return num_trees, 0
        is_on_gpu = "GPU" in (self.index.device or "")
        sketch = _SKETCH if dim > _SKETCH and not is_on_gpu else 0
        if self.num_trees is None:
            fixed, one = (self._bytes_of(*sizes, n, sketch) for n in (0, 1))
            room = (_MAX_BYTES - fixed) // (one - fixed)
            num_trees = min(max(room, _MIN_TREES), num_trees)
        return num_trees, sketch

    def _bytes_of(self, num_classes, dim, is_cached, num_trees, sketch):
        # Cells are half full; a node has 16 bytes, a plane 2 a number and 8.
        width = -(-(sketch or dim) // 16) * 16
        cells = 2 * num_classes // self.leaf_size + 1
        tree = 4 * num_classes + cells * (2 * 16 + 2 * width + 8)
        # While it is built: where each row is, and the directions of all. The
        # votes of one thread: trees do not depend on the number of threads.
        built = _TREES_AHEAD * (tree + 4 * num_classes)
        fixed = num_classes * (width + 2)
        if is_cached:
            fixed += neighbor_cache.bytes_of(num_classes, dim)
        return num_trees * tree + built + fixed

    def index_bytes(
        self, num_classes: int, dim: int, fraction: float, num_threads: int
    ) -> int:
        """Bytes, with cache and refresh, and one for each class and thread."""
        if fraction == 0:
            return neighbor_cache.bytes_of(num_classes, dim)
        sizes = num_classes, dim, fraction < 1
        votes = max(num_threads - 1, 0) * num_classes
        return self._bytes_of(*sizes, *self.trees_and_sketch(*sizes)) + votes

    def prepare(self, sampler: IndexedSampler) -> None:
        """Takes what a sampler knows when it is built; does not keep it."""
        self._num_classes, self._dim = sampler.num_classes, sampler.dim
        self._normalize = sampler.normalize
        self._cache = sampler.neighbor_cache
        # So many times the wanted classes go to a cache, and their
        # probabilities decide which of them stay.
        self._oversampling = sampler.oversampling()
        self._sizes = self.trees_and_sketch(
            self._num_classes, self._dim, self._cache is not None
        )
        num_trees, sketch = self._sizes
        self.index.options |= {"num_trees": num_trees, "sketch": sketch}

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
            normalize=self._normalize,
        )

    def finds(
        self, kernel: Variable, queries: tf.Tensor, ids: tf.Tensor
    ) -> tf.Tensor:
        """Which of `ids` `[n, k]` a search for k classes finds, bool."""
        found, _ = self.neighbors(queries, kernel, tf.shape(ids)[1])
        return is_among(ids, found)

    def find(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        budget: tf.Tensor,
        step: tf.Tensor,
        next_seed: Callable[[], tf.Tensor] | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, scores)` `[batch, k]` of similar classes; -1 is padding."""
        del next_seed
        wanted = neighbors_a_row(
            queries, target_ids, budget, self.num_neighbors, self._num_classes
        )
        if self._cache is None:
            return self.neighbors(queries, kernel, wanted)

        def search(rows, count):
            return self.neighbors(tf.gather(queries, rows), kernel, count)[0]

        wanted *= self._oversampling
        return self._cache.find(
            queries, target_ids, kernel, wanted, step, search
        )


@keras.saving.register_keras_serializable("tfxclass")
class HashingForestSampler(IndexedSampler):
    """Labels, the nearest classes by a forest, and uniform samples.

    It is the sampler of `SelectiveSoftmax`. A step searches the forest for a
    fraction of the examples: those whose labels were searched for longest ago.
    The others take their neighbors from a `NeighborCache`.

    If there are more similar classes than places, the classes with the highest
    probability for an example stay. With `query_fraction=1` they are sampled by
    exp of their greatest logit in the batch, so examples with long features get
    more classes. The rest of the sample is uniform.

    The first step builds a forest. A new forest is built in the background from
    a snapshot of the class vectors. Its trees replace the old ones one by one
    over `rebuild_interval` steps (on a GPU, all at the end). With `"auto"` a
    rebuild begins when the forest finds significantly less than nine tenths of
    what it found when it was new, among the ten greatest logits of a few
    examples. Rebuilds then take about 5 % of the training time, or 25 % if the
    forest is searched for all examples.

    Args:
        num_sampled, seed: as in `Sampler`.
        num_trees: int. Defaults to 50, or to the number of trees that fit into
            2 GB, refresh included (24 for 10 million classes).
        leaf_size: int, largest number of classes in a leaf. Defaults to 100.
        num_neighbors: int, number of classes to look for, for each example. By
            default as many as fill the places for similar classes.
        num_candidates: int, largest number of classes that a query scores, by
            votes of trees. None scores all, as in the paper. Defaults to 64.
        query_fraction: float in (0, 1], fraction of the examples that the
            forest is searched for. 1 is all, as in the paper. Defaults to 1/16
            with `correct_fill`, and else 1. It is always 1 in shards, on
            parameter servers and on GPUs.
        rebuild_interval: int, in steps, or `"auto"`. Defaults to `"auto"`.
        neighbor_fraction: float in (0, 1], fraction of the non-label places
            that is reserved for similar classes. Defaults to 0.5.
        correct_fill: bool, whether the uniform samples stand for all classes
            that were not found, which makes the sum of exponentials an unbiased
            estimate. Without it, and with `neighbor_fraction=1`, the softmax is
            restricted to the sample. Defaults to True.
        allocation: `AdaptiveAllocation` or None. Defaults to None.

    Example:

    ```python
    sampler = tfxclass.samplers.HashingForestSampler(4096, num_trees=20)
    head = tfxclass.layers.SampledSoftmax(1_000_000, sampler=sampler)
    ```

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018.
    """

    default_query_fraction = 0.0625

    def __init__(
        self,
        num_sampled: int | None = None,
        num_trees: int | None = None,
        leaf_size: int = 100,
        num_candidates: int | None = 64,
        rebuild_interval: int | str = "auto",
        allocation: AdaptiveAllocation | None = None,
        query_fraction: float | None = None,
        num_neighbors: int | None = None,
        correct_fill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, **kwargs)
        self.rebuild_interval = check_rebuild_interval(rebuild_interval)
        self.correct_fill = self.estimates_sums = correct_fill
        if isinstance(allocation, dict):
            allocation = keras.saving.deserialize_keras_object(allocation)
        self.allocation = allocation
        self.source = forest = Forest(
            num_trees, leaf_size, num_candidates, num_neighbors, self.seed
        )
        self.num_trees, self.leaf_size = forest.num_trees, forest.leaf_size
        self.num_candidates = forest.num_candidates
        self.num_neighbors = forest.num_neighbors
        if query_fraction is not None:
            check_fraction("query_fraction", query_fraction)
        self.query_fraction = query_fraction
        self.may_cache = query_fraction is not None or correct_fill

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        super().build(kernel_shape)
        self.num_allocated = self.add_state(
            "num_allocated", self.num_sampled, dtype="int64"
        )
        self.schedule = self.allocation or self.make_schedule(
            self.rebuild_interval, self.source.build_nanoseconds()
        )

    def num_active(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Scalar:
        most = self.size_for(count_labels(target_ids))
        if self.allocation is None:
            return most
        step = tf.convert_to_tensor(self.step)
        starts = tf.equal(step % self.allocation.phase_steps, 0)
        active = tf.cond(
            starts,
            lambda: self._allocate(step, queries, kernel),
            lambda: tf.convert_to_tensor(self.num_allocated),
        )
        self.num_allocated.assign(active)
        if not self.allocation.include_labels:
            active += count_distinct(target_ids)
        return tf.minimum(active, tf.cast(most, tf.int64))

    def _allocate(self, step, queries, kernel):
        rows = ClassRows(tf.convert_to_tensor(kernel), normalize=self.normalize)
        logits = Blocks(queries[:_ALLOCATION_ROWS], rows).all_logits()
        gains = tf.math.top_k(tf.nn.softmax(logits), self.num_sampled).values
        return self.allocation.num_classes_for(step, gains)

    def get_config(self) -> Config:
        allocation = keras.saving.serialize_keras_object(self.allocation)
        return {**super().get_config(), "allocation": allocation}
