"""Held-out rows as a head sees them: features and labels."""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass import progress
from tfxclass.calibration.label_thresholds import Pairs
from tfxclass.checks import check_batch
from tfxclass.core.forward import flatten
from tfxclass.data.batches import Batches
from tfxclass.inference.graph import encoder_of
from tfxclass.inference.graph import inputs_as_given
from tfxclass.layers.class_head import ClassHead
from tfxclass.types import Array

_BATCH = 256


class HeldOut(NamedTuple):
    """A head, and the rows of which it is asked.

    Batches are `(features, ids)`: float32 `[rows, dim]`, int64 `[rows, p]`,
    padded with -1. Rows without labels are left out.
    """

    head: ClassHead
    batches: list[tuple[tf.Tensor, tf.Tensor]]

    def pairs(self, k: int) -> Pairs:
        """The k best classes of each row."""
        best = tf.function(lambda x: self.head.top_k(x, k))
        batches = progress.progress_iter(
            self.batches, "Answering held-out batches", len(self.batches)
        )
        positives = np.zeros(self.head.num_classes, np.int64)
        found = []
        for features, labels in batches:
            ids, scores = (x.numpy() for x in best(features))
            labels = labels.numpy()
            np.add.at(positives, labels[labels >= 0], 1)
            same = ids[:, :, np.newaxis] == labels[:, np.newaxis, :]
            kept, hits = ids >= 0, same.any(axis=2)
            found.append((ids[kept], scores[kept], hits[kept]))
        ids, scores, hits = (np.concatenate(x) for x in zip(*found))
        return Pairs(ids, scores, hits, positives)


def held_out(
    model: keras.Model, data: tf.data.Dataset | tuple[Array, Array]
) -> HeldOut:
    """The rows of `data`; their features are kept, `[rows, dim]` floats.

    A ValueError is raised for heads whose scores are not probabilities of plain
    logits, and for data without a label.
    """
    inputs, features, head = encoder_of(model)
    if not isinstance(head, ClassHead) or not head.has_plain_logits:
        raise ValueError(
            "Calibration needs a head with one class vector for each class, "
            f"and a softmax or sigmoid. Received: {type(head).__name__}"
        )
    if head.activation is None:
        raise ValueError(
            "Calibration needs probabilities. Received: the head "
            f"{head.name!r} with activation=None"
        )
    encoder = keras.Model(inputs_as_given(model, inputs), features)
    found = []
    batches = Batches("data", data, _BATCH)
    for batch in progress.progress_iter(
        batches, "Computing held-out batches", batches.count
    ):
        x, y = check_batch(batch)
        encoded = encoder(x, training=False)
        ids = head.targets(encoded, y).ids
        is_labelled = tf.reduce_any(ids >= 0, axis=1)
        if tf.reduce_any(is_labelled):
            rows = flatten(encoded)
            found.append((rows[is_labelled], ids[is_labelled]))
    if not found:
        raise ValueError("`data` must have rows with labels. Received: none.")
    return HeldOut(head, found)
