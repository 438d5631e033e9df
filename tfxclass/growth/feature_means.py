"""The mean directions of the features of classes, from data."""

import keras
import numpy as np
import tensorflow as tf

from tfxclass import progress
from tfxclass.core.forward import flatten
from tfxclass.core.targets import as_targets
from tfxclass.data.batches import Batches
from tfxclass.keras_internals import get_mask
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
    counts, num_rows = np.zeros(len(ids), np.int64), 0
    is_seen = np.zeros(num_classes, bool)
    # Each part of the head has sums by class, sums, and second moments.
    sums: list[np.ndarray] = []
    totals: list[np.ndarray] = []
    seconds: list[np.ndarray] = []
    all_batches = progress.progress_iter(
        batches, "Computing the features of batches", batches.count
    )
    for batch in all_batches:
        x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
        features = tf.convert_to_tensor(encoder(x, training=False))
        leading, mask = tf.shape(features)[:-1], get_mask(features)
        labels = as_targets(y, num_classes, leading, mask).ids.numpy()
        # Rows of the batch, and the place of the class of each.
        rows, columns = np.nonzero(np.isin(labels, ids))
        numbers = np.searchsorted(ids, labels[rows, columns])
        np.add.at(counts, numbers, 1)
        has_class = np.any(labels >= 0, axis=1)
        num_rows += int(has_class.sum())
        is_seen[labels[labels >= 0]] = True
        queries = [flatten(features)]
        if head.has_class_rows:
            queries = head.part_queries(queries[0])
        queries = [directions(q.numpy()) for q in queries]
        if not sums:
            widths = [q.shape[1] for q in queries]
            sums = [np.zeros((len(ids), n), np.float32) for n in widths]
            totals = [np.zeros(n) for n in widths]
            seconds = [np.zeros((n, n)) for n in widths]
        for part, query in enumerate(queries):
            np.add.at(sums[part], numbers, query[rows])
            wide = query[has_class].astype(np.float64)
            totals[part] += wide.sum(axis=0)
            seconds[part] += wide.T @ wide
    seen = Seen(num_rows, int(is_seen.sum()), totals, seconds)
    of_parts = [directions(total) for total in sums]
    return ClassMeans(of_parts, counts, sums, seen)
