"""What the samplers share that keep an index of the class rows."""

import sys
from typing import Any

import keras
import tensorflow as tf

from tfxclass import progress
from tfxclass.ops import placement
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Store
from tfxclass.types import Variable


class IndexedSampler(Sampler):
    """A sampler with an `index`, a `tfxclass.ops.index.RefreshingIndex`.

    It counts its steps, by which the index is refreshed, and saves the index
    with the model.
    """

    is_exact = False
    has_gpu_half_ops = False
    index: Any = None

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

    def rebuild(self, kernel: Variable) -> None:
        """Builds the index of the rows as they are, now."""
        rows = kernel.shape[0]
        with progress.told(f"Building an index of {rows:,} class rows"):
            self.build_index(kernel)

    def build_index(self, kernel: Variable) -> None:
        """What `rebuild` does in each kind of index."""
        raise NotImplementedError

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        self.step = self.counter("step", 0)
        self.gauge("places_used")

    def tell_first(self, kernel: Variable) -> None:
        """Says at the first step, on stderr, that a large index is built.

        `fit` stands still meanwhile. (Ops know no callbacks, and what a graph
        prints must not depend on a clock: so it goes by the size.)
        """
        rows, dim = kernel.shape
        if rows * dim < _MANY_NUMBERS:
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

    def note_places(self, used: tf.Tensor) -> None:
        self.measured["places_used"].assign(used)

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


# In a class matrix whose first index may take over two seconds.
_MANY_NUMBERS = 2**25
# Rows that k-means is trained on, for each centre.
_ROWS_A_CENTRE = 64


def grouped_bytes(
    num_classes: int, dim: int, num_groups: int, is_trained: bool = True
) -> int:
    """Bytes of `num_groups` groups with a vector each, refresh included."""
    row = 4 * dim + 4
    groups = 8 * num_classes + row * num_groups
    # The sample that centres are trained on, copied.
    sample = min(_ROWS_A_CENTRE * num_groups, num_classes) * is_trained
    return 2 * groups + row * (num_classes + sample)
