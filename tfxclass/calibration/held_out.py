"""Held-out rows as a head sees them: features and labels."""

from collections.abc import Iterator
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass import progress
from tfxclass.checks import check_batch
from tfxclass.core.forward import flatten
from tfxclass.data.batches import pair_of_arrays
from tfxclass.inference.graph import encoder_of
from tfxclass.inference.graph import inputs_as_given
from tfxclass.layers import head_step
from tfxclass.layers.class_head import ClassHead
from tfxclass.types import Array

_BATCH = 256


class HeldOut(NamedTuple):
    """A head, and the rows of which it is asked.

    Attributes:
        head: the head that ends the model.
        batches: list of `(features, ids)`: float32 `[rows, dim]`, int64
            `[rows, p]`, padded with -1. Rows without labels are left out.
    """

    head: ClassHead
    batches: list[tuple[tf.Tensor, tf.Tensor]]

    def answers(self, k: int) -> Iterator[tuple[np.ndarray, ...]]:
        """`(ids, scores, labels)` of each batch; `[rows, k]`, `[rows, p]`."""
        best = tf.function(lambda x: self.head.top_k(x, k))
        batches = progress.progress_iter(
            self.batches, "Answering held-out batches", len(self.batches)
        )
        for features, labels in batches:
            ids, scores = best(features)
            yield ids.numpy(), scores.numpy(), labels.numpy()


def held_out(
    model: keras.Model, data: tf.data.Dataset | tuple[Array, Array]
) -> HeldOut:
    """The rows of `data`; their features are kept, `[rows, dim]` floats.

    Raises:
        ValueError: no single head, one whose scores are not probabilities of
            plain logits, or no row with a label.
    """
    inputs, features, head = encoder_of(model)
    _check_head(head)
    encoder = keras.Model(inputs_as_given(model, inputs), features)
    found = []
    for x, y in progress.progress_iter(
        _batches(data), "Computing held-out batches"
    ):
        encoded = encoder(x, training=False)
        ids = head_step.targets(head, encoded, y).ids
        is_labelled = tf.reduce_any(ids >= 0, axis=1)
        rows = flatten(encoded)
        if tf.reduce_any(is_labelled):
            found.append(
                tuple(tf.boolean_mask(v, is_labelled) for v in (rows, ids))
            )
    if not found:
        raise ValueError("`data` must have rows with labels. Received: none.")
    return HeldOut(head, found)


def _batches(data):
    if isinstance(data, tf.data.Dataset):
        return map(check_batch, data)
    data = pair_of_arrays(data)
    return tf.data.Dataset.from_tensor_slices(data).batch(_BATCH)


def _check_head(head):
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
