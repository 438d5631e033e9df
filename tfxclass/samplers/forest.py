"""A source: the classes nearest to a batch, by a hashing forest."""

import math

import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.ops.hashing_forest import HashingForest
from tfxclass.samplers import neighbor_cache
from tfxclass.samplers.candidates import check_optional_int
from tfxclass.samplers.drift import Refresh
from tfxclass.samplers.neighbor_cache import NeighborCache
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


class Forest:
    """A source: the classes nearest to each row of a batch.

    Args:
        num_trees: int, or None for as many as fit.
        leaf_size: int, largest number of classes in a leaf.
        num_candidates: int, largest number of classes that a query scores, or
            None for all.
        seed: int or None.

    Raises:
        ValueError: an option is no positive integer.
    """

    def __init__(
        self,
        num_trees: int | None,
        leaf_size: int,
        num_candidates: int | None,
        seed: int | None,
    ) -> None:
        self.num_trees = check_optional_int("num_trees", num_trees)
        self.leaf_size = check_positive_int("leaf_size", leaf_size)
        self.num_candidates = check_optional_int(
            "num_candidates", num_candidates
        )
        self.index = HashingForest()
        self._seed = seed or 0

    def levels(self, num_classes: int) -> float:
        """Depth of a tree."""
        return math.log2(max(num_classes / self.leaf_size, 2))

    def build_nanoseconds(
        self, num_classes: int, dim: int, is_cached: bool
    ) -> float:
        """Roughly how long one core builds a forest."""
        num_trees, sketch = self.trees_and_sketch(num_classes, dim, is_cached)
        of_row = self.levels(num_classes) * (2 + (sketch or dim) / 20)
        return num_trees * num_classes * of_row

    def query_nanoseconds(
        self, num_classes: int, dim: int, is_cached: bool
    ) -> float:
        """Roughly how long one core searches for one row."""
        num_trees, _ = self.trees_and_sketch(num_classes, dim, is_cached)
        walk = num_trees * (100 + self.levels(num_classes) * (20 + dim / 16))
        return walk + (self.num_candidates or 10 * self.leaf_size) * 100

    def trees_and_sketch(
        self, num_classes: int, dim: int, is_cached: bool
    ) -> tuple[int, int]:
        """`(num_trees, sketch)`, ints: chosen where they are not given.

        In a forest that would take more than 2 GB, trees split `sketch`
        projections of the class vectors instead of the class vectors, and
        there are fewer trees if their number was not given. `sketch` is 0
        where there is no projection.

        Args:
            num_classes, dim: ints.
            is_cached: bool, whether a `NeighborCache` takes a part of the 2 GB.
        """
        num_trees = self.num_trees or _NUM_TREES
        sizes = num_classes, dim, is_cached
        if self._bytes_of(*sizes, num_trees, 0) <= _MAX_BYTES:
            return num_trees, 0
        is_on_gpu = "GPU" in (self.index.device or "")
        sketch = _SKETCH if dim > _SKETCH and not is_on_gpu else 0
        if self.num_trees is None:
            fixed, with_one = (
                self._bytes_of(*sizes, n, sketch) for n in (0, 1)
            )
            room = (_MAX_BYTES - fixed) // (with_one - fixed)
            num_trees = min(max(room, _MIN_TREES), num_trees)
        return num_trees, sketch

    def _bytes_of(self, num_classes, dim, is_cached, num_trees, sketch):
        # Cells come out half full; a node has 16 bytes, a plane 16-bit
        # numbers and 8 bytes.
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
        """Bytes of the forest and of the neighbor cache, refresh included.

        Args:
            num_classes, dim: ints.
            fraction: float, fraction of the rows that search the forest.
            num_threads: int, threads that search it, which have a byte for
                each class.
        """
        if fraction == 0:
            return neighbor_cache.bytes_of(num_classes, dim)
        sizes = num_classes, dim, fraction < 1
        votes = max(num_threads - 1, 0) * num_classes
        return self._bytes_of(*sizes, *self.trees_and_sketch(*sizes)) + votes

    def prepare(
        self,
        kernel_shape: tuple[int, ...],
        normalize: bool,
        cache: NeighborCache | None,
        oversampling: int,
    ) -> None:
        """Sets what is known once a sampler is built.

        Args:
            kernel_shape: `(num_classes, dim)`.
            normalize: bool, whether logits are cosines.
            cache: `NeighborCache`, or None.
            oversampling: int, how many times the wanted classes a search gives
                where there is a cache. Their probabilities decide which of
                them stay.
        """
        self._num_classes, self._cache = kernel_shape[0], cache
        self._normalize, self._oversampling = normalize, oversampling
        size, dim = kernel_shape
        self._sizes = self.trees_and_sketch(size, dim, cache is not None)

    def build(self, kernel: Variable) -> None:
        """Builds a forest of the class vectors as they are, now."""
        num_trees, sketch = self._sizes
        self.index.build(
            kernel, num_trees, self.leaf_size, seed=self._seed, sketch=sketch
        )

    def advance(
        self, kernel: Variable, step: tf.Tensor, refresh: Refresh
    ) -> None:
        """Builds or refreshes the forest where `refresh` says so."""
        num_trees, sketch = self._sizes
        if refresh.num_trees is not None:
            num_trees = refresh.num_trees
        self.index.advance(
            kernel,
            step,
            refresh.interval,
            tf.cast(num_trees, tf.int64),
            self.leaf_size,
            seed=self._seed,
            lag=refresh.lag,
            drifted=refresh.drifted,
            sketch=sketch,
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
            normalize=self._normalize,
        )

    def finds(
        self, kernel: Variable, queries: tf.Tensor, ids: tf.Tensor
    ) -> tf.Tensor:
        """Which of `ids` `[n, k]` a search for k classes finds, bool."""
        found, _ = self.neighbors(queries, kernel, tf.shape(ids)[1])
        return tf.reduce_any(ids[:, :, tf.newaxis] == found[:, tf.newaxis], 2)

    def search(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        step: tf.Tensor,
        wanted: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Neighbors by the forest, and by the cache if there is one.

        Args:
            queries, target_ids, kernel: of `Sampler.sample`.
            step: int64 scalar, the number of this step.
            wanted: int64 scalar, classes for each row.

        Returns:
            `(ids, scores)` `[batch, k]`, -1 is padding.
        """
        if self._cache is None:
            return self.neighbors(queries, kernel, wanted)
        wanted = tf.minimum(self._oversampling * wanted, self._num_classes)
        recalled = self._cache.recall(queries, target_ids, step)
        width = neighbor_cache.width_of(self._num_classes)
        asked = tf.gather(queries, recalled.asked)
        found, _ = self.neighbors(asked, kernel, tf.maximum(wanted, width))
        return self._cache.rank(
            recalled, found, queries, target_ids, kernel, wanted
        )
