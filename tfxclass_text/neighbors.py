"""Votes of the nearest texts that were learned from."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.types import Config
from tfxclass.types import Shape
from tfxclass_text.linear_ops import SparseWeights
from tfxclass_text.sparse_linear import from_weights
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import from_pairs
from tfxclass_text.text_features import add_weight

#: Texts that vote, and shares of the votes to choose from.
NEIGHBORS, SHARES = 30, tuple(w / (1 + w) for w in (0.05, 0.1, 0.2, 0.4, 0.8))
# Cosines are raised to this: the nearest count for most.
_POWER = 8
# Heaviest terms of a text that it is found by: lists stay short.
_TERMS = 64


@keras.saving.register_keras_serializable("tfxclass")
class NeighborVotes(keras.layers.Layer):
    """Probabilities, mixed with the tags of the nearest texts.

    The result is `(1 - share) probability + share vote`, float32
    `[batch, num_labels]`. The `num_neighbors` nearest texts by cosine vote for
    their tags. Their weights are cosine^8, and sum up to 1.

    The outputs of `similarity`, a `SparseLinear`, are the cosines of a unit
    vector with each text. `num_pairs` are the labels of all texts. It is called
    with `ids`, `values` and `compiled` of a `SparseLinear`, and probabilities.
    """

    def __init__(
        self,
        similarity: keras.layers.Layer | Config,
        num_labels: int,
        num_pairs: int,
        num_neighbors: int,
        share: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        if isinstance(similarity, dict):
            similarity = keras.saving.deserialize_keras_object(similarity)
        self.similarity = similarity
        self.num_labels, self.num_pairs = num_labels, num_pairs
        self.num_neighbors, self.share = num_neighbors, share
        self.supports_jit = False
        texts = self.similarity.num_labels
        self.splits = add_weight(self, "splits", (texts + 1,), "int64")
        self.labels = add_weight(self, "labels", (num_pairs,), "int64")
        self.built = True

    def call(
        self,
        ids: tf.Tensor,
        values: tf.Tensor,
        probabilities: tf.Tensor,
        compiled: bool = False,
    ) -> tf.Tensor:
        votes = self.votes(ids, values, compiled)
        probabilities = tf.cast(probabilities, tf.float32)
        return (1 - self.share) * probabilities + self.share * votes

    def votes(
        self, ids: tf.Tensor, values: tf.Tensor, compiled: bool = False
    ) -> tf.Tensor:
        """float32 `[batch, num_labels]`."""
        cosines = self.similarity(ids, values, compiled=compiled)
        texts, weights = self.nearest(cosines)
        size, count = tf.unstack(tf.shape(texts, tf.int64))
        texts, weights = tf.reshape(texts, [-1]), tf.reshape(weights, [-1])
        splits = tf.convert_to_tensor(self.splits)
        places = tf.ragged.range(
            tf.gather(splits, texts), tf.gather(splits, texts + 1)
        )
        owner = places.value_rowids()
        labels = tf.gather(
            tf.convert_to_tensor(self.labels), places.flat_values
        )
        at = owner // count * self.num_labels + labels
        votes = tf.math.unsorted_segment_sum(
            tf.gather(weights, owner), at, size * self.num_labels
        )
        return tf.reshape(votes, [size, self.num_labels])

    def nearest(self, cosines: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """`(texts, weights)` of those that vote, int64 and float32 [batch, n].

        The cosines, `[batch, texts]`, may all be multiplied by a number.
        """
        count = min(self.num_neighbors, self.similarity.num_labels)
        cosines, texts = tf.math.top_k(cosines, count)
        best = tf.maximum(cosines[:, :1], 0.0)
        weights = tf.nn.relu(tf.math.divide_no_nan(cosines, best)) ** _POWER
        total = tf.reduce_sum(weights, axis=1, keepdims=True)
        weights = tf.math.divide_no_nan(weights, total)
        return tf.cast(texts, tf.int64), weights

    def compute_output_shape(
        self, ids_shape: Shape, values_shape: Shape, probabilities_shape: Shape
    ) -> Shape:
        return probabilities_shape

    def get_config(self) -> Config:
        names = "num_labels", "num_pairs", "num_neighbors", "share"
        own = {x: getattr(self, x) for x in names}
        own["similarity"] = keras.saving.serialize_keras_object(self.similarity)
        return super().get_config() | own


def build_neighbor_votes(
    data: LabeledRows, num_neighbors: int, share: float = SHARES[1]
) -> NeighborVotes:
    """A `NeighborVotes` of texts and their labels."""
    rows, labels, num_features, num_labels = data
    rows = rows.heaviest(_TERMS)
    owner = rows.row_ids()
    squares = np.bincount(owner, rows.values**2, minlength=len(rows))
    values = rows.values / np.sqrt(np.maximum(squares, 1e-12))[owner]
    # By feature, the texts that have it.
    splits, texts, values = from_pairs(num_features, rows.ids, owner, values)
    directions = SparseWeights(
        splits, texts.astype(np.int32), values, np.zeros(len(rows), np.float32)
    )
    layer = NeighborVotes(
        from_weights(directions, len(rows), name="similarity"), num_labels,
        len(labels.ids), num_neighbors, share, name="nearest-texts",
    )  # fmt: skip
    layer.splits.assign(labels.splits)
    layer.labels.assign(labels.ids)
    return layer
