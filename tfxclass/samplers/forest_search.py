"""The hashing forest of a sampler: its size, its refresh and its search."""

import math

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.samplers import neighbor_cache
from tfxclass.samplers.allocation import AdaptiveAllocation
from tfxclass.samplers.candidates import oversampling
from tfxclass.samplers.drift import Drift
from tfxclass.samplers.drift import Refresh
from tfxclass.samplers.drift import batch_of
from tfxclass.types import Scalar
from tfxclass.types import Variable

# Trees of a forest, where the index has room for so many.
_NUM_TREES = 50
_MIN_TREES = 8
# Limit of the bytes of an index, its refresh included.
_MAX_BYTES = 2 * 10**9
# Projections per tree where whole directions would take more bytes.
_SKETCH = 32
# Trees that are built before the ones in front of them are swapped in, and
# those that are built side by side by the first step.
_TREES_AHEAD = 2


class ForestSearch:
    """Searches the hashing forest of a sampler, and keeps it fresh.

    Args:
        sampler: an `IndexedSampler` whose `index` is a `HashingForest`. It has
            the attributes `num_trees`, `leaf_size`, `num_candidates` and
            `rebuild_interval`.
        max_oversampling: int. Where there is a `NeighborCache`, a search gives
            at most so many times the classes that are wanted; their
            probabilities decide which of them stay.
        allocation: `AdaptiveAllocation` or None.

    Attributes:
        drift: `Drift` that decides when the forest is refreshed; None where
            that happens at fixed intervals, or where no forest is used.
    """

    drift: Drift | None = None

    def __init__(
        self,
        sampler: keras.layers.Layer,
        max_oversampling: int,
        allocation: AdaptiveAllocation | None = None,
    ) -> None:
        self._sampler = sampler
        self._max_oversampling = max_oversampling
        self._allocation = allocation

    @property
    def is_used(self) -> bool:
        """Whether any row is searched for in the forest."""
        return self._sampler.searched_fraction() > 0

    def build(self, kernel_shape: tuple[int, int]) -> None:
        """Makes what watches the forest; `build` of the sampler calls it."""
        interval = self._sampler.rebuild_interval
        is_auto = interval == "auto" and self._allocation is None
        if is_auto and self.is_used:
            nanoseconds = self.build_nanoseconds(*kernel_shape)
            self.drift = Drift(self._sampler, *kernel_shape, nanoseconds)

    def levels(self, num_classes: int) -> float:
        """Depth of a tree."""
        return math.log2(max(num_classes / self._sampler.leaf_size, 2))

    def build_nanoseconds(self, num_classes: int, dim: int) -> float:
        """Roughly how long one core builds a forest."""
        num_trees, sketch = self.trees_and_sketch(num_classes, dim)
        of_row = self.levels(num_classes) * (2 + (sketch or dim) / 20)
        return num_trees * num_classes * of_row

    def trees_and_sketch(self, num_classes: int, dim: int) -> tuple[int, int]:
        """`(num_trees, sketch)`, ints: chosen where they are not given.

        In a forest that would take more than 2 GB, trees split `sketch`
        projections of the class vectors instead of the class vectors, and
        there are fewer trees if their number was not given. `sketch` is 0
        where there is no projection.
        """
        given = self._sampler.num_trees
        num_trees = given or _NUM_TREES
        sizes = num_classes, dim
        if self._bytes_of(*sizes, num_trees, 0) <= _MAX_BYTES:
            return num_trees, 0
        can_project = dim > _SKETCH and not self._sampler.is_on_gpu()
        sketch = _SKETCH if can_project else 0
        if given is None:
            fixed, with_one = (
                self._bytes_of(*sizes, n, sketch) for n in (0, 1)
            )
            room = (_MAX_BYTES - fixed) // (with_one - fixed)
            num_trees = min(max(room, _MIN_TREES), num_trees)
        return num_trees, sketch

    def _bytes_of(self, num_classes, dim, num_trees, sketch):
        # Cells come out half full; a node has 16 bytes, a plane 16-bit
        # numbers and 8 bytes.
        width = -(-(sketch or dim) // 16) * 16
        cells = 2 * num_classes // self._sampler.leaf_size + 1
        tree = 4 * num_classes + cells * (2 * 16 + 2 * width + 8)
        # While it is built: where each row is, and the directions of all. The
        # votes of one thread: trees do not depend on the number of threads.
        built = _TREES_AHEAD * (tree + 4 * num_classes)
        fixed = num_classes * (width + 2)
        if self._sampler.searched_fraction() < 1:
            fixed += neighbor_cache.bytes_of(num_classes, dim)
        return num_trees * tree + built + fixed

    def index_bytes(self, num_classes: int, dim: int) -> int:
        """Bytes of the forest and of the neighbor cache.

        They include a refresh, and the votes of all threads of this process: a
        byte for each class.
        """
        if not self.is_used:
            return neighbor_cache.bytes_of(num_classes, dim)
        sizes = self.trees_and_sketch(num_classes, dim)
        votes = max(self._sampler.vote_arrays() - 1, 0) * num_classes
        return self._bytes_of(num_classes, dim, *sizes) + votes

    def build_index(self, kernel: Variable) -> None:
        """Builds a forest of the class vectors as they are, now."""
        if not self.is_used:
            return
        num_trees, sketch = self.trees_and_sketch(*kernel.shape)
        self._sampler.index.build(
            kernel,
            num_trees,
            self._sampler.leaf_size,
            seed=self._sampler.seed or 0,
            sketch=sketch,
        )

    def refresh(self, queries: tf.Tensor, kernel: Variable) -> None:
        """Keeps the forest fresh; called before each search."""
        if not self.is_used:
            return
        sampler = self._sampler
        step = tf.convert_to_tensor(sampler.step)
        num_trees, sketch = self.trees_and_sketch(*kernel.shape)
        num_trees, refresh = self._schedule(step, batch_of(queries), num_trees)
        sampler.announce_first_build(kernel)
        sampler.index.advance(
            kernel,
            step,
            refresh.interval,
            num_trees,
            sampler.leaf_size,
            seed=sampler.seed or 0,
            lag=refresh.lag,
            drifted=refresh.drifted,
            sketch=sketch,
        )
        if self.drift is not None:
            self.drift.watch(
                step,
                queries,
                kernel,
                lambda probes, ids: self._finds(probes, ids, kernel),
            )

    def _schedule(self, step, batch, num_trees):
        num_trees = tf.constant(num_trees, tf.int64)
        if self._allocation is not None:
            num_trees, interval = self._allocation.forest_schedule(step)
            return num_trees, Refresh(interval, interval)
        if self.drift is not None:
            return num_trees, self.drift.steps(step, batch)
        interval = tf.constant(self._sampler.rebuild_interval, tf.int64)
        return num_trees, Refresh(interval, interval)

    def _finds(self, queries, ids, kernel):
        """Which of `ids` `[n, k]` a search for k classes finds, bool."""
        found, _ = self.neighbors(queries, kernel, tf.shape(ids)[1])
        return tf.reduce_any(ids[:, :, tf.newaxis] == found[:, tf.newaxis], 2)

    def neighbors(
        self, queries: tf.Tensor, kernel: Variable, num_neighbors: Scalar
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, scores)` `[batch, Q]` of the forest, scores are logits."""
        num_neighbors = tf.cast(num_neighbors, tf.int64)
        num_candidates = tf.zeros([], tf.int64)  # score all
        if self._sampler.num_candidates is not None:
            num_candidates = tf.maximum(
                num_neighbors, self._sampler.num_candidates
            )
        return self._sampler.index.query(
            kernel,
            queries,
            num_neighbors,
            num_candidates=num_candidates,
            normalize=self._sampler.similarity == "cosine",
        )

    def search(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        wanted: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Neighbors by the forest, by the sampler's cache, or by both.

        Args:
            queries, target_ids, kernel: of `Sampler.sample`.
            wanted: int64 scalar, classes for each row.

        Returns:
            `(ids, scores)` `[batch, k]`, -1 is padding.
        """
        sampler = self._sampler
        if sampler.neighbor_cache is None:
            return self.neighbors(queries, kernel, wanted)
        # More classes than are wanted: probabilities decide which ones stay.
        times = oversampling(sampler.num_sampled)
        times = min(times, self._max_oversampling)
        wanted = tf.minimum(times * wanted, sampler.num_classes)
        width = neighbor_cache.width_of(sampler.num_classes)
        at_least = tf.maximum(wanted, width)

        def find(rows):
            if not self.is_used:
                return tf.zeros([0, 1], tf.int64)
            return self.neighbors(tf.gather(queries, rows), kernel, at_least)[0]

        return sampler.search_with_cache(
            queries, target_ids, kernel, wanted, find
        )


def check_forest_options(
    num_trees: int | None, leaf_size: int, num_candidates: int | None
) -> tuple[int | None, int, int | None]:
    """The options as ints; None where that is allowed.

    Raises:
        ValueError: an option is no positive integer.
    """
    if num_trees is not None:
        num_trees = check_positive_int("num_trees", num_trees)
    leaf_size = check_positive_int("leaf_size", leaf_size)
    if num_candidates is not None:
        num_candidates = check_positive_int("num_candidates", num_candidates)
    return num_trees, leaf_size, num_candidates
