"""Neighbours that were found before, by the label they were found for."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tfxclass.ops import neighbor_memory
from tfxclass.rows import placement
from tfxclass.types import Variable

# Neighbours that are kept of a class, and classes that have a place.
_WIDTH = 8
_MOST_SLOTS = 1 << 20


def width_of(num_classes: int) -> int:
    """Neighbours that are kept of a class."""
    return min(num_classes, _WIDTH)


def bytes_of(num_classes: int) -> int:
    """Bytes of a `Remembered`."""
    slots = min(num_classes, _MOST_SLOTS)
    return 8 * slots * (2 + width_of(num_classes))


class Remembered:
    """The best that searches for rows of each class have found.

    Rows of one label have much the same neighbours, and these change slowly:
    a step that searches for the few rows whose labels were searched for
    longest ago, and takes the others' from here, has neighbours of all. From
    2^20 classes on several share a place. On a CPU.

    Args:
        sampler: a sampler that is being built; gets the weight.
        num_classes: int.
    """

    def __init__(self, sampler: keras.layers.Layer, num_classes: int) -> None:
        slots = min(num_classes, _MOST_SLOTS)
        # The class, the step of its last search, and the best, best first.
        self.weight = sampler.add_weight(
            name="remembered",
            shape=(slots, 2 + width_of(num_classes)),
            dtype="int64",
            trainable=False,
            initializer=keras.initializers.Constant(-1),
        )

    def search(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        labels: tf.Tensor,
        kernel: Variable,
        step: tf.Tensor,
        num_asked: tf.Tensor,
        find: Callable[[tf.Tensor], tf.Tensor],
        normalize: bool,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """What was found for all rows, now or before; the best are kept.

        Beside what is known of a row's label is what is known of one of these
        neighbours: a neighbour's neighbour is likely to be one.

        Args:
            queries: float32 `[n, dim]`.
            target_ids: int64 `[n, p]`, -1 is padding.
            labels: int64 `[n]`, what is remembered by, -1 is none.
            kernel: the class matrix.
            step: int64 scalar, the number of this step.
            num_asked: int64 scalar, for how many rows to search.
            find: ids `[a, k]` that a search for some rows finds, -1 is
                padding.
            normalize: whether class rows are.

        Returns:
            `(ids, shares)` `[n, m]`: classes that are no targets of the row,
            best first, then -1; and what a softmax over its targets and all
            that it was compared with gives each.

        References:
            Dong et al., Efficient K-Nearest Neighbor Graph Construction for
            Generic Similarity Measures, WWW 2011 (neighbours of neighbours).
        """
        with placement.beside(self.weight):
            asked, known = neighbor_memory.recall(
                self.weight, labels, num_asked, step
            )
        found = find(tf.gather(queries, asked))
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
                step,
                normalize,
            )
