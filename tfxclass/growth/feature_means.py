"""The mean directions of the features of classes, from data."""

import keras
import numpy as np
import tensorflow as tf

from tfxclass import progress
from tfxclass.core.forward import flatten
from tfxclass.core.forward import mask_of
from tfxclass.core.targets import as_targets
from tfxclass.data.batches import Batches
from tfxclass.layers.output_head import OutputHead
from tfxclass.trees.class_means import ClassMeans
from tfxclass.trees.class_means import Seen
from tfxclass.trees.class_means import directions


def class_means(
    encoder: keras.Model,
    head: OutputHead,
    batches: Batches,
    ids: np.ndarray,
    num_classes: int,
) -> ClassMeans:
    """`ClassMeans` of the classes `ids`, int64 `[n]`, rising.

    The encoder computes features of the inputs, and the head reads these.
    Labels are below `num_classes`; other labels are passed over.
    """
    counts, seen = np.zeros(len(ids), np.int64), _Sums(num_classes)
    sums: list[np.ndarray] = []
    all_batches = progress.progress_iter(
        batches, "Computing the features of batches", batches.count
    )
    for batch in all_batches:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
        features = tf.convert_to_tensor(encoder(x, training=False))
        leading, mask = tf.shape(features)[:-1], mask_of(features)
        labels = as_targets(y, num_classes, leading, mask).ids.numpy()
        # Rows of the batch, and the place of the class of each.
        rows, columns = np.nonzero(np.isin(labels, ids))
        numbers = np.searchsorted(ids, labels[rows, columns])
        np.add.at(counts, numbers, 1)
        queries = [flatten(features)]
        if head.has_class_rows:
            queries = head.part_queries(queries[0])
        queries = [directions(q.numpy()) for q in queries]
        seen.add(queries, labels)
        if not sums:
            sums = [
                np.zeros((len(counts), q.shape[1]), np.float32) for q in queries
            ]
        for total, query in zip(sums, queries, strict=True):
            np.add.at(total, numbers, query[rows])
    of_parts = [directions(total) for total in sums]
    return ClassMeans(of_parts, counts, sums, seen.all())


class _Sums:
    """Makes a `Seen`, batch by batch."""

    def __init__(self, num_classes):
        self.rows, self.classes = 0, np.zeros(num_classes, bool)
        self.totals, self.seconds = [], []

    def add(self, queries, labels):
        has_class = np.any(labels >= 0, axis=1)
        self.rows += int(has_class.sum())
        self.classes[labels[labels >= 0]] = True
        queries = [q[has_class].astype(np.float64) for q in queries]
        totals = [q.sum(axis=0) for q in queries]
        seconds = [q.T @ q for q in queries]
        if self.totals:
            totals = list(map(np.add, self.totals, totals))
            seconds = list(map(np.add, self.seconds, seconds))
        self.totals, self.seconds = totals, seconds

    def all(self):
        classes = np.count_nonzero(self.classes)
        return Seen(self.rows, classes, self.totals, self.seconds)
