"""The mean directions of the features of classes, from data."""

import keras
import numpy as np
import tensorflow as tf

from tfxclass.data.batches import Batches
from tfxclass.growth.class_means import ClassMeans
from tfxclass.growth.class_means import directions
from tfxclass.layers.output_head import OutputHead
from tfxclass.layers.output_head import flatten
from tfxclass.losses.forward import mask_of
from tfxclass.losses.targets import as_targets


def class_means(
    encoder: keras.Model,
    head: OutputHead,
    batches: Batches,
    ids: np.ndarray,
    num_classes: int,
) -> ClassMeans:
    """`ClassMeans` of some classes in the batches.

    Args:
        encoder: model from the inputs to the features.
        head: the head that reads these.
        batches: `Batches`; labels of other classes are passed over.
        ids: int64 `[n]`, rising.
        num_classes: int, labels are below it.

    Raises:
        ValueError: labels that are no integers.
        InvalidArgumentError: labels out of range.
    """
    sums, counts = None, np.zeros(len(ids), np.int64)
    for batch in batches.after(0):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(batch)
        features = tf.convert_to_tensor(encoder(x, training=False))
        rows, numbers = _pairs(features, y, ids, num_classes)
        np.add.at(counts, numbers, 1)
        queries = [directions(q.numpy()) for q in _queries(head, features)]
        if sums is None:
            sums = [
                np.zeros((len(counts), q.shape[1]), np.float32) for q in queries
            ]
        for total, query in zip(sums, queries, strict=True):
            np.add.at(total, numbers, query[rows])
    return ClassMeans([directions(total) for total in sums], counts)


def _queries(head, features):
    features = flatten(features)
    if hasattr(head, "part_queries"):
        return head.part_queries(features)
    return [features]


def _pairs(features, labels, classes, num_classes):
    """Rows of a batch, and the place of the class of each."""
    targets = as_targets(
        labels,
        num_classes,
        tf.shape(features)[:-1],
        mask=mask_of(features),
    )
    ids = targets.ids.numpy()
    rows, columns = np.nonzero(np.isin(ids, classes))
    return rows, np.searchsorted(classes, ids[rows, columns])
