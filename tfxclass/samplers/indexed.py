"""Base of the samplers with an index: a source, a schedule, and a cache."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfxclass import progress
from tfxclass.checks import check_fraction
from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.ops.index import query_threads
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.samplers.neighbor_cache import NeighborCache
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler
from tfxclass.samplers.sampler import count_labels
from tfxclass.samplers.sampler import step_nanoseconds
from tfxclass.samplers.schedule import Drift
from tfxclass.samplers.schedule import FixedSchedule
from tfxclass.types import Scalar
from tfxclass.types import Store
from tfxclass.types import Variable

# Limit of the classes whose logits decide: at 670,091 classes and a sample of
# 6,700, eight times these took 102 ms a step, and votes of hash tables 46.
_MAX_RERANKED = 4096
# Numbers in a class matrix whose first index may take over two seconds. What a
# graph prints must not depend on a clock.
_LARGE_MATRIX = 2**25


class IndexedSampler(Sampler):
    """Labels, similar classes that an index finds, and uniform samples.

    It refreshes its compiled `index` when its `schedule` (`FixedSchedule`,
    `Drift` or `AdaptiveAllocation`) says so, and saves it with the model. Its
    `source` (`Forest` or `Groups`) has the options of the index, and finds
    similar classes with it. A subclass makes them in its constructor or in
    `build`. It has `source` and `correct_fill`, or `index` and its own
    `sample`.

    With `may_cache` a step searches the index for a fraction of the rows, and
    takes the neighbors of the others from a `NeighborCache`. The cache lies on
    a CPU, and each process has its own. So it is not used with parameter
    servers, nor in shards, where most labels belong to other shards.

    Similar classes get at most `neighbor_fraction` of the non-label places.
    """

    has_gpu_half_ops = False
    #: The fraction of the rows that the index is searched for, unless it is
    #: given as `query_fraction`.
    default_query_fraction = 1.0
    #: How many times the classes that fit the index gives, at most.
    max_oversampling = 8
    index: Any = None
    source: Any = None
    schedule: Any = None
    neighbor_cache: Any = None
    query_fraction: float | None = None
    #: Whether a step may take neighbors that earlier steps found.
    may_cache = False
    is_on_servers = False
    #: Width of the class vectors; 0 before it is built.
    dim = 0
    #: Where the index lies.
    device: str | None = None

    def __init__(
        self,
        num_sampled: int | None = None,
        neighbor_fraction: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_sampled, **kwargs)
        self.neighbor_fraction = check_fraction(
            "neighbor_fraction", neighbor_fraction
        )

    @property
    def sample_overflow(self) -> bool:
        """Whether too many candidates are sampled. A cache ranks them."""
        return self.neighbor_cache is None

    def build_for(
        self, head_name: str, rows: ClassRows, num_negatives: int = 0
    ) -> None:
        self.device = placement.of_index(rows.kernel, self.has_gpu_ops)
        are_rows_on_gpu = placement.on_gpu(placement.device_of(rows.kernel))
        if are_rows_on_gpu and not self.is_on_gpu():
            raise ValueError(
                f"`sampler`, a {type(self).__name__}, has its index in host "
                "memory, which cannot read class vectors on a GPU. Fix: "
                'sampler="uniform"; "auto", "lsh" and "hashing_forest" work '
                f"with ops built for CUDA. Received: {self.device}"
            )
        super().build_for(head_name, rows, num_negatives)
        if self.searched_fraction() > 0:
            library.require_op(f"{self.index.prefix}_build")

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        self.num_classes, self.dim = kernel_shape
        self.step = self.add_state("step", 0, dtype="int64")
        self.gauge("fill_rate")
        servers = tf.distribute.ParameterServerStrategy
        self.is_on_servers = isinstance(tf.distribute.get_strategy(), servers)
        fraction = self.searched_fraction()
        if fraction < 1:
            # Its ops run on a CPU and read class vectors: it lies with them.
            with placement.on(self.device):
                self.neighbor_cache = NeighborCache(self, fraction)
        self.index = self.index or self.source.index
        self.index.device = self.device
        if self.source is not None:
            self.source.prepare(self)

    def make_schedule(
        self,
        rebuild_interval: int | str,
        refresh_nanoseconds: float,
        decay: float = 0.0,
    ) -> FixedSchedule | Drift:
        """A `FixedSchedule`, or a `Drift` with `"auto"`."""
        if not isinstance(rebuild_interval, str):
            return FixedSchedule(rebuild_interval, decay)
        return Drift(self, refresh_nanoseconds)

    def searched_fraction(self) -> float:
        """The fraction of the rows searched for; 1 on a GPU, as it is fast."""
        if self.is_on_servers or self.is_on_gpu() or not self.may_cache:
            return 1.0
        return self.query_fraction or self.default_query_fraction

    def oversampling(self) -> int:
        """How many times the classes that fit the index gives."""
        times = _MAX_RERANKED // self.num_sampled
        return max(1, min(self.max_oversampling, times))

    def is_on_gpu(self) -> bool:
        return "GPU" in (self.device or "")

    def for_rows(self, *sizes: Any, **options: Any) -> Sampler:
        copy = super().for_rows(*sizes, **options)
        # Most labels of a batch are in other shards, so a cache is no help.
        copy.query_fraction = 1.0
        return copy

    def index_bytes(self, num_classes: int, dim: int) -> int:
        # Each thread has an array of votes. A GPU has its own.
        num_threads = 0 if self.is_on_gpu() else query_threads()
        return self.source.index_bytes(
            num_classes, dim, self.searched_fraction(), num_threads
        )

    @property
    def persistent_weights(self) -> list[keras.Variable]:
        cache = self.neighbor_cache
        cached = {each.path for each in cache.weights} if cache else ()
        return [each for each in self.weights if each.path not in cached]

    def rebuild(self, kernel: Variable) -> None:
        """Builds the index of the class vectors as they are, now."""
        rows = kernel.shape[0]
        with progress.log_if_slow(f"Building an index of {rows:,} class rows"):
            self.index.build(kernel)

    def advance(
        self,
        queries: tf.Tensor,
        kernel: Variable,
        finds: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
    ) -> None:
        """Keeps the index fresh; called once in a step, before the search.

        `finds`, for `Drift.watch`, is by default the method of the source.
        """
        step = tf.convert_to_tensor(self.step)
        step_time = self.step_time(queries)
        refresh = self.schedule.refresh(step, step_time)
        self.announce_first_build(kernel)
        self.index.advance(kernel, step, **refresh)
        if isinstance(self.schedule, Drift):
            finds = finds or functools.partial(self.source.finds, kernel)
            lag = refresh["lag"]
            self.schedule.watch(step, step_time, lag, queries, kernel, finds)

    def num_active(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Scalar:
        """How many classes the step computes, an int or an int64 scalar."""
        return self.size_for(count_labels(target_ids))

    def sample(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Sample:
        num_sampled = self.num_active(queries, target_ids, kernel)
        self.advance(queries, kernel)
        budget = candidate_count(num_sampled, self.neighbor_fraction)
        step = tf.convert_to_tensor(self.step)
        found = self.source.find(
            queries, target_ids, kernel, budget, step, self.next_seed
        )
        return sample_with_candidates(
            self, target_ids, num_sampled, found, self.neighbor_fraction
        )

    def step_time(self, queries: tf.Tensor) -> tf.Tensor:
        """Nanoseconds of a training step, by a model: `step_nanoseconds`."""
        batch = tf.shape(queries, tf.int64)[0]
        return step_nanoseconds(batch, self.size_for(batch), self.dim)

    def announce_first_build(self, kernel: Variable) -> None:
        """Prints at the first step, on stderr, that a large index is built."""
        rows, dim = kernel.shape
        if rows * dim < _LARGE_MATRIX:
            return
        text = f"Building an index of {rows:,} class rows ..."
        announce = functools.partial(tf.print, text, output_stream=sys.stderr)
        tf.cond(tf.equal(self.step, 0), announce, tf.no_op)

    def update(self, kernel: Variable, touched_ids: tf.Tensor) -> None:
        self.step.assign_add(1)

    def save_own_variables(self, store: Store) -> None:
        super().save_own_variables(store)
        # The sampler of a head in shards is a pattern, and never built.
        if self.dim:
            for name, value in self.index.state().items():
                store["index_" + name] = value

    def load_own_variables(self, store: Store) -> None:
        if self.dim:
            names = self.index.state_names
            self.index.set_state({n: store["index_" + n][()] for n in names})
        super().load_own_variables(store)


def sample_with_candidates(
    sampler: Any,
    target_ids: tf.Tensor,
    num_sampled: Scalar,
    found: tuple[tf.Tensor, tf.Tensor],
    share: Scalar,
) -> Sample:
    """The labels of a batch, candidates, and a uniform fill.

    `found` are `(ids, scores)` of the candidates, -1 is padding. They get at
    most `share` of what labels leave. If there are too many,
    `sampler.sample_overflow` says whether they are sampled by the softmax of
    their scores, or cut by score.
    """
    ids, scores = found
    chosen = sampler.choose(
        target_ids,
        num_sampled=num_sampled,
        candidates=ids,
        scores=scores,
        candidate_share=share,
        sample_overflow=sampler.sample_overflow,
    )
    count = chosen.log_expected_count
    return Sample(
        chosen.ids,
        count if sampler.correct_fill else tf.zeros_like(count),
        chosen.positions,
    )


def count_distinct(target_ids: tf.Tensor) -> tf.Tensor:
    """How many labels a batch has, each counted once, int64 scalar."""
    ids = tf.unique(tf.reshape(target_ids, [-1])).y
    return tf.math.count_nonzero(ids >= 0)


def free_slots(target_ids: tf.Tensor, num_sampled: Scalar) -> tf.Tensor:
    """How many classes distinct labels leave to sample, int64 scalar."""
    count = tf.cast(num_sampled, tf.int64)
    return tf.maximum(count - count_distinct(target_ids), 0)


def candidate_count(count: Scalar, fraction: Scalar) -> tf.Tensor:
    """That fraction of a number of classes, int64 scalar."""
    # Below 1 it leaves one for the fill: without any the sum is no estimate.
    count = tf.cast(count, tf.int64)
    part = tf.math.ceil(fraction * tf.cast(count, tf.float32))
    left = tf.cast(fraction < 1, tf.int64)
    return tf.minimum(tf.cast(part, tf.int64), tf.maximum(count - left, 0))


def neighbors_a_row(
    queries: tf.Tensor,
    target_ids: tf.Tensor,
    candidate_budget: tf.Tensor,
    num_neighbors: int | None,
    num_classes: int,
) -> tf.Tensor:
    """`num_neighbors` to search for each row, or what fills the budget."""
    if num_neighbors is not None:
        return tf.constant(min(num_neighbors, num_classes), tf.int64)
    batch = tf.maximum(tf.shape(queries, tf.int64)[0], 1)
    wanted = tf.maximum(candidate_budget // batch, 1)
    # The nearest of a trained row are its own labels, on average.
    labels = tf.math.count_nonzero(target_ids >= 0)
    labels_a_row = 1 if target_ids.shape[1] == 1 else -(-labels // batch)
    return tf.minimum(wanted + labels_a_row, num_classes)


def is_among(ids: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """Which of `ids` `[n, k]` are among `others` `[n, m]` of their row."""
    return tf.reduce_any(ids[:, :, tf.newaxis] == others[:, tf.newaxis], axis=2)
