"""Neighbours that were found before, by the label they were found for."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tfxclass.keras_internals import tf_variable
from tfxclass.rows import placement
from tfxclass.types import Scalar

# Neighbours that are kept of a class, and classes that have a place.
_WIDTH = 8
_MOST_SLOTS = 1 << 20


def width_of(num_classes: int) -> int:
    """Neighbours that are kept of a class."""
    return min(num_classes, _WIDTH)


def bytes_of(num_classes: int) -> int:
    """Bytes of a `Remembered`."""
    slots = min(num_classes, _MOST_SLOTS) + 1
    return 8 * slots * (2 + width_of(num_classes))


class Remembered:
    """What the last search for a row of each class found.

    Rows of one label have much the same neighbours, and these change slowly:
    a step that searches for the few rows whose labels were searched for
    longest ago, and takes the others' from here, has neighbours of all. From
    2^20 classes on several share a place.

    Args:
        sampler: a sampler that is being built; gets the weight.
        num_classes: int.
    """

    def __init__(self, sampler: keras.layers.Layer, num_classes: int) -> None:
        self._slots = min(num_classes, _MOST_SLOTS)
        self._width = width_of(num_classes)
        # The class, the step of its search, and what was found. The last row
        # is of rows without a label.
        self.weight = sampler.add_weight(
            name="remembered",
            shape=(self._slots + 1, 2 + self._width),
            dtype="int64",
            trainable=False,
            initializer=keras.initializers.Constant(-1),
        )

    def search(
        self,
        queries: tf.Tensor,
        labels: tf.Tensor,
        step: tf.Tensor,
        num_asked: tf.Tensor,
        find: Callable[[tf.Tensor], tf.Tensor],
        wanted: Scalar,
    ) -> tf.Tensor:
        """What was found for all rows, now or before, int64 `[m]`.

        Args:
            queries: float32 `[n, dim]`.
            labels: int64 `[n]`, -1 is none.
            step: int64 scalar, the number of this step.
            num_asked: int32 scalar, for how many rows to search.
            find: ids `[n, k]` that a search for some rows finds, best first,
                -1 is padding; k is `width_of(num_classes)` at least.
            wanted: int64 scalar, how many of them, and of what is known.
        """
        steps, known = self.recall(labels)
        order = tf.argsort(steps, stable=True)
        new = order[:num_asked]
        found = find(tf.gather(queries, new))
        self.note(tf.gather(labels, new), step, found)
        known = tf.gather(known, order[num_asked:])
        parts = [tf.reshape(x[:, :wanted], [-1]) for x in (found, known)]
        return tf.concat(parts, axis=0)

    def recall(self, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """What is known for rows of these labels.

        Args:
            labels: int64 `[n]`, -1 is none.

        Returns:
            `(steps, ids)`, int64 `[n]` and `[n, width]`: of the search, -1
            where there was none, and what it found, best first, padded with
            -1. A row without a label has no loss: its step is the last.
        """
        with placement.beside(self.weight):
            # Of the variable: a full read would copy it, after a scatter.
            kept = tf.gather(tf_variable(self.weight), self._places(labels))
        kept = tf.where(kept[:, :1] == labels[:, tf.newaxis], kept, -1)
        steps = tf.where(labels >= 0, kept[:, 1], tf.int64.max)
        return steps, kept[:, 2:]

    def _places(self, labels):
        return tf.where(labels >= 0, labels % self._slots, self._slots)

    def note(self, labels: tf.Tensor, step: Scalar, ids: tf.Tensor) -> None:
        """Keeps what a search at `step` found.

        Args:
            labels: int64 `[n]`, -1 is none.
            step: int64 scalar.
            ids: int64 `[n, k]`, of `search`.
        """
        about = tf.stack([labels, tf.fill(tf.shape(labels), step)], axis=1)
        kept = tf.concat([about, ids[:, : self._width]], axis=1)
        places, of_row = tf.unique(self._places(labels))
        # One row a place, in whatever order a scatter is done.
        rows = tf.math.unsorted_segment_min(
            tf.range(tf.size(labels)), of_row, tf.size(places)
        )
        kept = tf.ensure_shape(tf.gather(kept, rows), [None, 2 + self._width])
        with placement.beside(self.weight):
            tf_variable(self.weight).scatter_update(
                tf.IndexedSlices(kept, places)
            )
