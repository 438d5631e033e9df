"""Negatives that a hashing forest finds: the classes nearest to the batch."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.rows.blocks import Blocks
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.samplers.allocation import AdaptiveAllocation
from tfxclass.samplers.candidates import check_optional_int
from tfxclass.samplers.candidates import neighbors_a_row
from tfxclass.samplers.candidates import oversampling
from tfxclass.samplers.drift import check_rebuild_interval
from tfxclass.samplers.forest import Forest
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.samplers.sample_size import count_labels
from tfxclass.types import Config
from tfxclass.types import Scalar
from tfxclass.types import Variable

# Rows whose softmax is computed in full to choose the number of classes.
_ALLOCATION_ROWS = 32
# How many times the wanted classes a search gives, at most.
_MAX_OVERSAMPLING = 8


@keras.saving.register_keras_serializable("tfxclass")
class HashingForestSampler(IndexedSampler):
    """Labels, the nearest classes by a forest, and uniform samples.

    It is the sampler of `SelectiveSoftmax`. A step searches the forest for a
    fraction of the examples: those whose labels were searched for longest ago.
    Every example compares the classes that were found, the cached neighbors of
    its label and of one of the neighbors, and the labels of recent examples
    with similar features. The best eight are cached, so each step has neighbors
    of all examples (`NeighborCache`).

    Similar classes get at most `neighbor_fraction` of the non-label places. If
    there are more, the classes with the highest probability for an example
    stay. The rest of the sample is uniform. With `correct_fill`, the uniform
    samples stand for all classes that were not found, which makes the sum of
    exponentials an unbiased estimate. Without it, and with
    `neighbor_fraction=1`, the softmax is restricted to the sample, as in the
    paper.

    The first step builds a forest. A new forest is built in the background from
    a snapshot of the class vectors. Its trees replace the old ones one by one
    over `rebuild_interval` steps (on a GPU, all at the end). With `"auto"` a
    rebuild begins when the forest has drifted. To measure drift, the ten
    greatest logits of a few examples are computed exactly from time to time.
    The forest has drifted when it finds significantly less than nine tenths of
    what it found when it was new. Refreshes then take about 5 % of the training
    time, or 25 % if the forest is searched for all examples.

    Args:
        num_sampled: int, number of classes in a training step, labels included.
        num_trees: int. Defaults to 50, or to the number of trees that fit into
            2 GB, refresh included (24 for 10 million classes).
        leaf_size: int, largest number of classes in a leaf. Defaults to 100.
        num_neighbors: int, number of classes to look for, for each example. By
            default as many as fill the places reserved for similar classes,
            plus the labels.
        num_candidates: int, largest number of classes that a query scores,
            those that most trees agree on. None scores all that the trees
            return, as in the paper. Defaults to 64.
        query_fraction: float in (0, 1], fraction of the examples that the
            forest is searched for. 1 is all, as in the paper. Defaults to 1/16
            with `correct_fill`, and else 1. It is always 1 in shards, on
            parameter servers and on GPUs.
        rebuild_interval: int, in steps, or `"auto"`. Defaults to `"auto"`.
        neighbor_fraction: float in (0, 1], fraction of the non-label places
            that is reserved for similar classes. Defaults to 0.5.
        correct_fill: bool, whether the uniform samples stand for all classes
            that were not found.
        allocation: `AdaptiveAllocation` or None. Defaults to None.
        seed: int, seed of the sampling.

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
    option_names = (
        "num_trees",
        "leaf_size",
        "num_candidates",
        "num_neighbors",
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
        num_neighbors: int | None = None,
        correct_fill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, **kwargs)
        self.source = Forest(num_trees, leaf_size, num_candidates, self.seed)
        self.num_trees = self.source.num_trees
        self.leaf_size = self.source.leaf_size
        self.num_candidates = self.source.num_candidates
        self.num_neighbors = check_optional_int("num_neighbors", num_neighbors)
        self.rebuild_interval = check_rebuild_interval(rebuild_interval)
        self.correct_fill = self.estimates_sums = correct_fill
        if isinstance(allocation, dict):
            allocation = keras.saving.deserialize_keras_object(allocation)
        self.allocation = allocation
        may_cache = query_fraction is not None or correct_fill
        self.set_query_fraction(query_fraction, may_cache)

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        super().build(kernel_shape)
        self.num_allocated = self.add_state(
            "num_allocated", self.num_sampled, dtype="int64"
        )
        times = min(oversampling(self.num_sampled), _MAX_OVERSAMPLING)
        cache = self.neighbor_cache
        self.source.prepare(kernel_shape, self.normalize, cache, times)
        self.schedule = self.allocation or self.make_schedule(
            self.rebuild_interval,
            kernel_shape,
            self.source.build_nanoseconds(*kernel_shape, cache is not None),
        )

    def index_bytes(self, num_classes: int, dim: int) -> int:
        return self.source.index_bytes(
            num_classes, dim, self.searched_fraction(), self.vote_arrays()
        )

    def neighbors(
        self, queries: tf.Tensor, kernel: Variable, num_neighbors: Scalar
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, scores)` `[batch, num_neighbors]`, scores are logits."""
        return self.source.neighbors(queries, kernel, num_neighbors)

    def find(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        budget: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        wanted = neighbors_a_row(
            queries, target_ids, budget, self.num_neighbors, self.num_classes
        )
        step = tf.convert_to_tensor(self.step)
        return self.source.search(queries, target_ids, kernel, step, wanted)

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
            labels = tf.boolean_mask(target_ids, target_ids >= 0)
            active += tf.size(tf.unique(labels).y, tf.int64)
        return tf.minimum(active, tf.cast(most, tf.int64))

    def _allocate(self, step, queries, kernel):
        rows = ClassRows(tf.convert_to_tensor(kernel), normalize=self.normalize)
        logits = Blocks(queries[:_ALLOCATION_ROWS], rows).all_logits()
        gains = tf.math.top_k(tf.nn.softmax(logits), self.num_sampled).values
        return self.allocation.num_classes_for(step, gains)

    def get_config(self) -> Config:
        allocation = keras.saving.serialize_keras_object(self.allocation)
        return {**super().get_config(), "allocation": allocation}
