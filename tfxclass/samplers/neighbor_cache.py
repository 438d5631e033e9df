"""A cache of nearest neighbors: of each label, and near recent features."""

import math
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.ops import neighbor_memory
from tfxclass.ops import placement
from tfxclass.samplers.sampler import Sampler
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
        sampler: a sampler that is being built. It gets the weights, and is not
            used afterwards.
        num_classes: int.
        dim: int.
        fraction: float in [0, 1), the fraction of the rows that the sampler
            searches an index for.

    References:
        Dong et al., Efficient K-Nearest Neighbor Graph Construction for
        Generic Similarity Measures, WWW 2011 (neighbors of neighbors,
        reverse neighbors).
        Petrovic, Osborne and Lavrenko, Streaming First Story Detection with
        Application to Twitter, NAACL 2010 (tables of what was lately seen).
    """

    def __init__(
        self, sampler: Sampler, num_classes: int, dim: int, fraction: float
    ) -> None:
        self._fraction = fraction
        self._normalize = sampler.normalize
        self._first_label = sampler.num_negatives
        self._width = width_of(num_classes)
        slots = min(num_classes, _MOST_SLOTS)
        bits = bits_of(num_classes)
        # The class, the step of its last search, and the best, best first.
        remembered = slots, 2 + self._width
        self.weight = sampler.add_state("remembered", -1, remembered, "int64")
        tables = tables_of(num_classes)
        shape = tables, 1 << bits, _PLACES
        self.recent = sampler.add_state("recent", -1, shape, "int32")
        columns = tables * bits
        self.centres = sampler.add_state("centres", 0.0, (columns,))
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

    def recall(
        self, queries: tf.Tensor, target_ids: tf.Tensor, step: tf.Tensor
    ) -> "Recalled":
        """What is known of each row, and which rows to search an index for.

        Args:
            queries: float32 `[n, dim]`.
            target_ids: int64 `[n, p]`, -1 is padding.
            step: int64 scalar, the number of this step.
        """
        labels = label_of(target_ids[:, self._first_label :], step)
        with placement.colocate_with(self.weight):
            asked, known = neighbor_memory.recall(
                self.weight,
                self.recent,
                self.centres,
                queries @ self._planes,
                labels,
                self._num_asked(queries),
                step,
            )
        return Recalled(asked, known, labels, step)

    def _num_asked(self, queries):
        """For how many rows the index is searched, int64 scalar."""
        if self._fraction == 0:
            return tf.zeros([], tf.int64)
        rows = tf.cast(tf.shape(queries)[0], tf.float32)
        return tf.cast(tf.math.ceil(self._fraction * rows), tf.int64)

    def rank(
        self,
        recalled: "Recalled",
        found: tf.Tensor,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        count: tf.Tensor,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Compares each row with what is known of it, and caches the best.

        Args:
            recalled: what `recall` returned for these rows.
            found: int64 `[a, k]`, what an index found for the rows
                `recalled.asked`, -1 is padding.
            queries, target_ids: of `recall`.
            kernel: the class matrix.
            count: int64 scalar, how many neighbors to return for a row. There
                are eight at least, if there are as many classes.

        Returns:
            `(ids, shares)` `[n, count]`: classes that are no targets of the
            row, best first, then -1; and their probabilities by a softmax over
            the row's targets and all classes that it was compared with.
        """
        with placement.colocate_with(self.weight):
            return neighbor_memory.rank(
                self.weight,
                kernel,
                queries,
                target_ids,
                recalled.labels,
                recalled.known,
                recalled.asked,
                found,
                tf.maximum(count, self._width),
                recalled.step,
                self._normalize,
            )


class Recalled(NamedTuple):
    """What `NeighborCache.recall` knows of the rows of a batch.

    Attributes:
        asked: int64 `[a]`, the rows to search an index for.
        known: int64 `[n, k]`, cached classes for each row, -1 is padding.
        labels: int64 `[n]`, the label that a row is cached by, -1 is none.
        step: int64 scalar, the number of this step.
    """

    asked: Any
    known: Any
    labels: Any
    step: Any


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
