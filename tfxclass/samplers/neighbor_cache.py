"""A cache of nearest neighbors: of each label, and near recent features."""

import math
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfxclass.ops import neighbor_memory
from tfxclass.ops import placement
from tfxclass.types import Variable

# Cached neighbors of a class, and classes that have an entry.
_WIDTH = 8
_MOST_SLOTS = 1 << 20
# Tables of recent labels, with few classes and with many, of which rows come by
# more rarely; labels a bucket; and the most buckets of a table.
_FEW_TABLES, _MANY_TABLES = 4, 16
_MANY_CLASSES = 1 << 14
_PLACES = 4
_MOST_BITS = 18


def width_of(num_classes: int) -> int:
    """Cached neighbors of a class."""
    return min(num_classes, _WIDTH)


def tables_of(num_classes: int) -> int:
    """Tables of recent labels."""
    return _MANY_TABLES if num_classes >= _MANY_CLASSES else _FEW_TABLES


def bits_of(num_classes: int) -> int:
    """Bits of a table's codes, so that each class has a place."""
    bits = math.ceil(math.log2(max(num_classes / _PLACES, 2)))
    return min(bits, _MOST_BITS)


def bytes_of(num_classes: int, dim: int) -> int:
    """Bytes of a `NeighborCache`."""
    slots = min(num_classes, _MOST_SLOTS)
    tables, bits = tables_of(num_classes), bits_of(num_classes)
    recent = 4 * tables * _PLACES << bits
    planes = 4 * tables * bits * (dim + 1)
    return 8 * slots * (2 + width_of(num_classes)) + recent + planes


def nanoseconds_of(num_classes: int, dim: int) -> float:
    """Roughly how long the search for one row takes on one core."""
    tables = tables_of(num_classes)
    products = tables * bits_of(num_classes) * dim / 20
    compared = tables * _PLACES + 2 * width_of(num_classes)
    return products + compared * (30 + dim / 8)


class NeighborCache:
    """The nearest neighbors of each class so far, and labels of recent rows.

    Rows of one label have similar neighbors, and these change slowly. So a row
    is compared with the cached neighbors of its label, with the cached
    neighbors of one of these neighbors (a neighbor's neighbor is likely to be
    a neighbor), and with the labels of recent rows whose features were similar,
    which hash tables give (`neighbor_memory.recall`). The best eight are
    cached. One of them, another one in each step, gets the row's label as its
    own neighbor, since neighbors are mutual. Nothing is built, and no entry is
    older than the last row of its label. A sampler may search an index for
    some rows as well, those whose labels were searched for longest ago.

    From 2^20 classes on several classes share an entry. The cache lies on a
    CPU. Under a strategy each worker reads and writes the copy of its first
    replica.

    Args:
        sampler: a sampler that is being built; gets the weights.
        num_classes: int.
        dim: int.

    References:
        Dong et al., Efficient K-Nearest Neighbor Graph Construction for
        Generic Similarity Measures, WWW 2011 (neighbors of neighbors,
        reverse neighbors).
        Petrovic, Osborne and Lavrenko, Streaming First Story Detection with
        Application to Twitter, NAACL 2010 (tables of what was lately seen).
    """

    def __init__(
        self, sampler: keras.layers.Layer, num_classes: int, dim: int
    ) -> None:
        def weight(name, shape, dtype, value):
            return sampler.add_weight(
                name=name,
                shape=shape,
                dtype=dtype,
                trainable=False,
                initializer=keras.initializers.Constant(value),
            )

        slots = min(num_classes, _MOST_SLOTS)
        bits = bits_of(num_classes)
        shape = slots, 2 + width_of(num_classes)
        # The class, the step of its last search, and the best, best first.
        self.weight = weight("remembered", shape, "int64", -1)
        tables = tables_of(num_classes)
        shape = tables, 1 << bits, _PLACES
        self.recent = weight("recent", shape, "int32", -1)
        columns = tables * bits
        self.centres = weight("centres", (columns,), "float32", 0.0)
        random = np.random.RandomState((sampler.seed or 0) % 2**32)
        self._planes = random.normal(size=(dim, columns)).astype(np.float32)

    @property
    def weights(self) -> list[keras.Variable]:
        return [self.weight, self.recent, self.centres]

    def neighbors(self, labels: tf.Tensor) -> tf.Tensor:
        """The cached neighbors of each label, padded with -1.

        Args:
            labels: int64 `[n]`, -1 is none.

        Returns:
            int64 `[n, width]`.
        """
        slots = self.weight.shape[0]
        rows = tf.gather(self.weight, tf.maximum(labels, 0) % slots)
        is_own = rows[:, :1] == labels[:, tf.newaxis]
        return tf.where(is_own, rows[:, 2:], -1)

    def search(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        labels: tf.Tensor,
        kernel: Variable,
        step: tf.Tensor,
        num_asked: tf.Tensor,
        find: Callable[[tf.Tensor], tf.Tensor],
        count: tf.Tensor,
        normalize: bool,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Finds neighbors of all rows, and caches the best.

        Args:
            queries: float32 `[n, dim]`.
            target_ids: int64 `[n, p]`, -1 is padding.
            labels: int64 `[n]`, the label that a row is cached by, -1 is none.
            kernel: the class matrix.
            step: int64 scalar, the number of this step.
            num_asked: int64 scalar, for how many rows to search an index.
            find: a function that searches the index for some rows of
                `queries`, given as int64 `[a]`. It returns ids, int64
                `[a, k]`, -1 is padding.
            count: int64 scalar, how many neighbors to return for a row.
            normalize: whether to normalize class vectors.

        Returns:
            `(ids, shares)` `[n, count]`: classes that are no targets of the
            row, best first, then -1; and their probabilities by a softmax over
            the row's targets and all classes that it was compared with.
        """
        with placement.colocate_with(self.weight):
            asked, known = neighbor_memory.recall(
                self.weight,
                self.recent,
                self.centres,
                queries @ self._planes,
                labels,
                num_asked,
                step,
            )
        found = find(asked)
        with placement.colocate_with(self.weight):
            return neighbor_memory.rank(
                self.weight,
                kernel,
                queries,
                target_ids,
                labels,
                known,
                asked,
                found,
                count,
                step,
                normalize,
            )


def label_of(target_ids: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """One label of each row, each step another one; int64 `[n]`, -1 is none.

    Args:
        target_ids: int64 `[n, p]`, -1 is padding.
        step: int64 scalar.
    """
    if target_ids.shape[1] == 1:
        return target_ids[:, 0]
    # Neighbouring ids have orders of their own at each step.
    order = (target_ids * 40503 + step * 2654435761) % 65521
    order = tf.where(target_ids >= 0, order, -1)
    chosen = tf.argmax(order, axis=1)
    return tf.gather(target_ids, chosen, axis=1, batch_dims=1)
