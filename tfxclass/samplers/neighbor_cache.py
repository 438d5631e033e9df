"""A cache of nearest neighbors: of each label, and near recent features."""

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.ops.placement import handle_of
from tfxclass.types import Variable

# Cached neighbors of a class, and classes that have an entry.
_WIDTH = 8
_MOST_SLOTS = 1 << 20
# Tables of recent labels, with few classes and with many, whose rows are rarer;
# labels a bucket; and bits of the most buckets of a table.
_FEW_TABLES, _MANY_TABLES = 4, 16
_MANY_CLASSES = 1 << 14
_PLACES = 4
_MOST_BITS = 18

for _op in ("RankNeighbors", "RecallNeighbors"):
    tf.no_gradient(f"Tfxclass>{_op}")


def width_of(num_classes: int) -> int:
    """Cached neighbors of a class."""
    return min(num_classes, _WIDTH)


def tables_and_bits(num_classes: int) -> tuple[int, int]:
    """Tables of recent labels, and bits of their codes: a place for each."""
    tables = _MANY_TABLES if num_classes >= _MANY_CLASSES else _FEW_TABLES
    bits = math.ceil(math.log2(max(num_classes / _PLACES, 2)))
    return tables, min(bits, _MOST_BITS)


def bytes_of(num_classes: int, dim: int) -> int:
    """Bytes of a `NeighborCache`."""
    slots = min(num_classes, _MOST_SLOTS)
    tables, bits = tables_and_bits(num_classes)
    recent = 4 * tables * _PLACES << bits
    planes = 4 * tables * bits * (dim + 1)
    return 8 * slots * (2 + width_of(num_classes)) + recent + planes


def nanoseconds_of(num_classes: int, dim: int) -> float:
    """Roughly how long the search for one row takes on one core."""
    tables, bits = tables_and_bits(num_classes)
    products = tables * bits * dim / 20
    compared = tables * _PLACES + 2 * width_of(num_classes)
    return products + compared * (30 + dim / 8)


class NeighborCache:
    """The nearest neighbors of each class so far, and labels of recent rows.

    Rows of one label have similar neighbors, which change slowly. So a row is
    compared with the cached neighbors of its label and of one of these, and
    with the labels of recent rows with similar features. Hash tables find such
    rows: a bucket is a code of the signs of random projections, less their
    running means. The best eight are cached. One of them, another in each step,
    gets the row's label as its neighbor, since neighbors are mutual. From 2^20
    classes on several share an entry.

    A sampler may search an index as well, for a `fraction` in [0, 1) of the
    rows: those whose labels were searched for longest ago. Under a strategy
    each worker reads and writes the copy of its first replica. The `sampler`
    gets the weights, and is not kept.

    References:
        Dong et al., Efficient K-Nearest Neighbor Graph Construction for
        Generic Similarity Measures, WWW 2011 (neighbors of neighbors,
        reverse neighbors).
        Petrovic, Osborne and Lavrenko, Streaming First Story Detection with
        Application to Twitter, NAACL 2010 (tables of what was lately seen).
    """

    def __init__(self, sampler: Any, fraction: float) -> None:
        num_classes, dim = sampler.num_classes, sampler.dim
        self._fraction, self._num_classes = fraction, num_classes
        self._has_ops = library.has_op("recall_neighbors")
        self._normalize = sampler.normalize
        self._first_label = sampler.num_negatives
        self._width = width_of(num_classes)
        slots = min(num_classes, _MOST_SLOTS)
        tables, bits = tables_and_bits(num_classes)
        # The class, the step of its last search, and the best, best first.
        remembered = slots, 2 + self._width
        self.weight = sampler.add_state("remembered", -1, remembered, "int64")
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
        """The cached neighbors of labels `[n]`; int64 `[n, width]`, -1 pads."""
        slots = self.weight.shape[0]
        rows = tf.gather(self.weight, tf.maximum(labels, 0) % slots)
        is_own = rows[:, :1] == labels[:, tf.newaxis]
        return tf.where(is_own, rows[:, 2:], -1)

    def find(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        count: tf.Tensor,
        step: tf.Tensor,
        search: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Compares each row with what is known of it, and caches the best.

        `count` neighbors are wanted for a row, and eight returned at least.
        `search` gets some rows, int64 `[a]`, and this number. It returns what
        an index finds, int64 `[a, k]`.

        Returns `(ids, shares)` `[n, count]`: classes that are no targets of the
        row, best first, then -1; and their probabilities among the row's
        targets and all classes that it was compared with.
        """
        labels = label_of(target_ids[:, self._first_label :], step)
        count = tf.maximum(tf.minimum(count, self._num_classes), self._width)
        if not self._has_ops:
            # No neighbors are known.
            shape = tf.stack([tf.size(labels, tf.int64), count])
            return tf.fill(shape, tf.constant(-1, tf.int64)), tf.zeros(shape)
        memory = handle_of(self.weight)
        rows = tf.cast(tf.shape(queries)[0], tf.float32)
        with placement.colocate_with(self.weight):
            # Rows to search an index for, and the known classes of each. The op
            # takes the labels into the tables, and moves the running means.
            asked, known = library.ops.tfxclass_recall_neighbors(
                memory,
                handle_of(self.recent),
                handle_of(self.centres),
                queries @ self._planes,
                labels,
                tf.cast(tf.math.ceil(self._fraction * rows), tf.int64),
                step,
            )
        found = tf.zeros([0, 1], tf.int64)
        if search is not None:
            found = search(asked, count)
        with placement.colocate_with(self.weight):
            return library.ops.tfxclass_rank_neighbors(
                memory,
                handle_of(kernel),
                queries,
                target_ids,
                labels,
                known,
                asked,
                found,
                count,
                step,
                normalize=self._normalize,
            )


def label_of(target_ids: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
    """One label of each row `[n, p]`, each step another one; int64 `[n]`."""
    if target_ids.shape[1] == 1:
        return target_ids[:, 0]
    # Neighbouring ids have orders of their own at each step.
    order = (target_ids * 40503 + step * 2654435761) % 65521
    order = tf.where(target_ids >= 0, order, -1)
    chosen = tf.argmax(order, axis=1)
    return tf.gather(target_ids, chosen, axis=1, batch_dims=1)
