"""Base of the samplers that search an index of the class vectors."""

import sys
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfxclass import progress
from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.ops.index import query_threads
from tfxclass.samplers.neighbor_cache import NeighborCache
from tfxclass.samplers.neighbor_cache import label_of
from tfxclass.samplers.neighbor_cache import width_of
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Store
from tfxclass.types import Variable


class IndexedSampler(Sampler):
    """A sampler with an `index`, a `tfxclass.ops.index.RefreshingIndex`.

    It counts its steps, by which the index is refreshed, and saves the index
    with the model.

    A subclass with a `query_fraction` searches the index for that fraction of
    the rows, and takes the neighbors of the others from a `NeighborCache`.
    The cache lies on a CPU, and each process has its own. So it is not used
    where class vectors lie on parameter servers, nor in shards, where most
    labels of a batch belong to other shards.
    """

    is_exact = False
    has_gpu_half_ops = False
    index: Any = None
    neighbor_cache: NeighborCache | None = None
    #: The fraction of the rows that the index is searched for, unless it is
    #: given as `query_fraction`.
    default_query_fraction = 1.0
    query_fraction: float | None = None
    is_on_servers = False

    @property
    def has_gpu_ops(self) -> bool:
        return self.index.has_gpu_ops

    def prepare(self, num_classes: int) -> None:
        """Makes the index, if its sizes follow the number of classes."""

    def build_for(self, head: keras.layers.Layer) -> None:
        self.prepare(head.num_classes)
        self.index.device = placement.of_index(
            head.kernel, self.index.has_gpu_ops
        )
        super().build_for(head)
        if self.searches_index():
            library.require_op(f"{self.index.prefix}_build")

    def searches_index(self) -> bool:
        """Whether steps use the index; called once the sampler is built."""
        return True

    def rebuild(self, kernel: Variable) -> None:
        """Builds the index of the class vectors as they are, now."""
        rows = kernel.shape[0]
        with progress.log_if_slow(f"Building an index of {rows:,} class rows"):
            self.build_index(kernel)

    def build_index(self, kernel: Variable) -> None:
        """Builds the index; called by `rebuild`."""
        raise NotImplementedError

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        self.step = self.counter("step", 0)
        self.gauge("fill_rate")

    def check_query_fraction(self) -> None:
        """Raises ValueError unless `query_fraction` is None or in (0, 1]."""
        fraction = self.query_fraction
        if fraction is not None and not 0 < fraction <= 1:
            raise ValueError(
                f"`query_fraction` must be in (0, 1]. Received: {fraction}"
            )

    def build_cache(self, kernel_shape: tuple[int, ...]) -> None:
        """Makes the `neighbor_cache`, where one is used."""
        self.is_on_servers = _is_on_servers()
        if self.searched_fraction() < 1:
            # Its ops run on a CPU and read class vectors: it lies with them.
            with placement.on(self.index and self.index.device):
                self.neighbor_cache = NeighborCache(self, *kernel_shape)

    def searched_fraction(self) -> float:
        """The fraction of the examples for which a step searches the index.

        It is 1 on a GPU, which searches for all rows at once.
        """
        if self.is_on_servers or self.is_on_gpu() or not self.may_cache():
            return 1.0
        return self.query_fraction or self.default_query_fraction

    def for_rows(self, *sizes: Any, **options: Any) -> Sampler:
        copy = super().for_rows(*sizes, **options)
        # Most labels of a batch are in other shards, so a cache is no help.
        copy.query_fraction = 1.0
        return copy

    def may_cache(self) -> bool:
        """Whether neighbors that earlier steps found may be used."""
        return True

    def is_on_gpu(self) -> bool:
        return self.index is not None and "GPU" in (self.index.device or "")

    def vote_arrays(self) -> int:
        """Arrays of votes, one for each thread that searches the index.

        A GPU keeps votes in its own memory.
        """
        return 0 if self.is_on_gpu() else query_threads()

    @property
    def persistent_weights(self) -> list[keras.Variable]:
        cache = self.neighbor_cache
        cached = {each.path for each in cache.weights} if cache else ()
        return [each for each in self.weights if each.path not in cached]

    def search_with_cache(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        wanted: tf.Tensor,
        find: Callable[[tf.Tensor], tf.Tensor],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, shares)` `[n, k]`, k >= `wanted`; see `NeighborCache.search`.

        `find` searches the index for `searched_fraction()` of the rows.
        """
        step = tf.convert_to_tensor(self.step)
        return self.neighbor_cache.search(
            queries,
            target_ids,
            label_of(target_ids[:, self.num_negatives :], step),
            kernel,
            step,
            self._num_asked(queries),
            find,
            tf.maximum(wanted, width_of(self.num_classes)),
            self.similarity == "cosine",
        )

    def _num_asked(self, queries):
        """For how many rows the index is searched, int64 scalar."""
        fraction = self.searched_fraction()
        if fraction == 0:
            return tf.zeros([], tf.int64)
        rows = tf.cast(tf.shape(queries)[0], tf.float32)
        return tf.cast(tf.math.ceil(fraction * rows), tf.int64)

    def announce_first_build(self, kernel: Variable) -> None:
        """Prints at the first step, on stderr, that a large index is built.

        `fit` stands still meanwhile. Ops know no callbacks, and what a graph
        prints must not depend on a clock, so the size decides.
        """
        rows, dim = kernel.shape
        if rows * dim < _LARGE_MATRIX:
            return
        tf.cond(
            tf.equal(self.step, 0),
            lambda: tf.print(
                f"Building an index of {rows:,} class rows ...",
                output_stream=sys.stderr,
            ),
            tf.no_op,
        )

    def counter(self, name: str, value: int) -> keras.Variable:
        """An int64 weight."""
        return self.add_weight(
            name=name,
            shape=(),
            dtype="int64",
            trainable=False,
            initializer=keras.initializers.Constant(value),
        )

    def update(self, kernel: Variable, touched_ids: tf.Tensor) -> None:
        self.step.assign_add(1)

    def note_fill_rate(self, used: tf.Tensor) -> None:
        self.measured["fill_rate"].assign(used)

    def figures(self) -> dict[str, float]:
        count, seconds = self.index.times()
        built = {"rebuilds": float(count), "rebuild_seconds": seconds}
        return {**super().figures(), **built}

    def save_own_variables(self, store: Store) -> None:
        super().save_own_variables(store)
        for name, value in self.index.state().items():
            store["index_" + name] = value

    def load_own_variables(self, store: Store) -> None:
        names = self.index.state_names
        self.index.set_state({n: store["index_" + n][()] for n in names})
        super().load_own_variables(store)


# Numbers in a class matrix whose first index may take over two seconds.
_LARGE_MATRIX = 2**25
# Class vectors that k-means is trained on, for each center.
_ROWS_A_CENTRE = 64


def grouped_bytes(
    num_classes: int, dim: int, num_groups: int, is_trained: bool = True
) -> int:
    """Bytes of `num_groups` groups with a vector each, refresh included."""
    row = 4 * dim + 4
    groups = 8 * num_classes + row * num_groups
    # The sample that centers are trained on, copied.
    sample = min(_ROWS_A_CENTRE * num_groups, num_classes) * is_trained
    return 2 * groups + row * (num_classes + sample)


def _is_on_servers():
    strategy = tf.distribute.get_strategy()
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)
