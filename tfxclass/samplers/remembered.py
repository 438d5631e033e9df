"""Neighbours by what was seen before: of a label, and near a row's features."""

import math
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfxclass.ops import neighbor_memory
from tfxclass.ops import placement
from tfxclass.types import Variable

# Neighbours that are kept of a class, and classes that have a place.
_WIDTH = 8
_MOST_SLOTS = 1 << 20
# Tables of recent labels, with few classes and with many, of which rows come by
# more rarely; labels a bucket; and the most buckets of a table.
_FEW_TABLES, _MANY_TABLES = 4, 16
_MANY_CLASSES = 1 << 14
_PLACES = 4
_MOST_BITS = 18


def width_of(num_classes: int) -> int:
    """Neighbours that are kept of a class."""
    return min(num_classes, _WIDTH)


def tables_of(num_classes: int) -> int:
    """Tables of recent labels."""
    return _MANY_TABLES if num_classes >= _MANY_CLASSES else _FEW_TABLES


def bits_of(num_classes: int) -> int:
    """Of a table's codes: with them a table has a place for each class."""
    bits = math.ceil(math.log2(max(num_classes / _PLACES, 2)))
    return min(bits, _MOST_BITS)


def bytes_of(num_classes: int, dim: int) -> int:
    """Bytes of a `Remembered`."""
    slots = min(num_classes, _MOST_SLOTS)
    tables, bits = tables_of(num_classes), bits_of(num_classes)
    recent = 4 * tables * _PLACES << bits
    planes = 4 * tables * bits * (dim + 1)
    return 8 * slots * (2 + width_of(num_classes)) + recent + planes


def nanoseconds_of(num_classes: int, dim: int) -> float:
    """What a row's search takes on one core, roughly."""
    tables = tables_of(num_classes)
    products = tables * bits_of(num_classes) * dim / 20
    compared = tables * _PLACES + 2 * width_of(num_classes)
    return products + compared * (30 + dim / 8)


class Remembered:
    """The best neighbours of each class so far, and labels of recent rows.

    Rows of one label have much the same neighbours, and these change slowly: a
    row is compared with what is remembered of its label, with what is
    remembered of one of these neighbours, since a neighbour's neighbour is
    likely to be one, and with the labels of rows that lately had features like
    its own, by hash tables (`neighbor_memory.recall`). The best eight are
    remembered, and with one of them, each step another one, the row's label,
    since what is near is so in both directions. Nothing is built, and nothing
    is older than the last row of its label. A sampler may search an index for
    some rows as well, whose labels were searched for longest ago.

    From 2^20 classes on several share a place. On a CPU; under a strategy the
    copy of a worker's first replica is the one that is read and written.

    Args:
        sampler: a sampler that is being built; gets the weights.
        num_classes: int.
        dim: int.

    References:
        Dong et al., Efficient K-Nearest Neighbor Graph Construction for
        Generic Similarity Measures, WWW 2011 (neighbours of neighbours,
        reverse neighbours).
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

    def kept(self, labels: tf.Tensor) -> tf.Tensor:
        """What is remembered of each label, padded with -1.

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
        """What was found for all rows, now or before; the best are kept.

        Args:
            queries: float32 `[n, dim]`.
            target_ids: int64 `[n, p]`, -1 is padding.
            labels: int64 `[n]`, what is remembered by, -1 is none.
            kernel: the class matrix.
            step: int64 scalar, the number of this step.
            num_asked: int64 scalar, for how many rows to search an index.
            find: ids `[a, k]` that a search for so many rows of `queries`,
                int64 `[a]`, finds, -1 is padding.
            count: int64 scalar, how many to return for a row.
            normalize: whether class rows are.

        Returns:
            `(ids, shares)` `[n, count]`: classes that are no targets of the
            row, best first, then -1; and what a softmax over its targets and
            all that it was compared with gives each.
        """
        with placement.beside(self.weight):
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
        with placement.beside(self.weight):
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
