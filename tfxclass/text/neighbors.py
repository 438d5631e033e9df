"""Votes of the nearest texts that were learned from."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.ops.linear import SparseWeights
from tfxclass.text.sparse_linear import from_weights
from tfxclass.text.sparse_rows import SparseRows
from tfxclass.text.sparse_rows import from_pairs
from tfxclass.types import Config
from tfxclass.types import Shape

#: Texts that vote, and what their votes weigh beside a probability of 1.
NEIGHBORS, WEIGHT = 30, 0.1
#: Shares of the votes to choose from.
SHARES = tuple(w / (1 + w) for w in (0.05, WEIGHT, 0.2, 0.4, 0.8))
# Cosines are raised to this: the nearest count for most.
_POWER = 8
# Heaviest terms of a text that it is found by: lists stay short.
_TERMS = 64
_BATCH = 64


@keras.saving.register_keras_serializable("tfxclass")
class NeighborVotes(keras.layers.Layer):
    """Probabilities, mixed with the tags of the nearest texts.

    `(1 - share) probability + share vote`, where a tag's vote is the weight
    of the texts with it among the `num_neighbors` nearest by cosine; weights
    are cosine^8, and sum up to 1. Stock TensorFlow ops; `Tagger` makes it.

    Args:
        num_features: int.
        num_labels: int.
        similarity: `tfxclass.text.SparseLinear` whose outputs are the cosines
            with each text.
        num_pairs: int, labels of all texts.
        num_neighbors: int.
        share: float in [0, 1].
        **kwargs: `keras.layers.Layer`'s arguments.

    Call arguments:
        ids: int64 `[batch, n]`.
        values: float32 `[batch, n]`; where they are 0 there is no feature.
        probabilities: float32 `[batch, num_labels]`.

    Output shape:
        `[batch, num_labels]`.
    """

    def __init__(
        self,
        similarity: keras.layers.Layer | Config,
        num_labels: int,
        num_pairs: int,
        num_neighbors: int = NEIGHBORS,
        share: float = WEIGHT / (1 + WEIGHT),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive_int("num_labels", num_labels)
        check_positive_int("num_neighbors", num_neighbors)
        if isinstance(similarity, dict):
            similarity = keras.saving.deserialize_keras_object(similarity)
        self.similarity = similarity
        self.num_labels = int(num_labels)
        self.num_pairs = int(num_pairs)
        self.num_neighbors = int(num_neighbors)
        self.share = share
        self.supports_jit = False
        texts = similarity.num_labels
        self.splits = self._weight("splits", (texts + 1,))
        self.labels = self._weight("labels", (self.num_pairs,))
        self.built = True

    def _weight(self, name, shape):
        return self.add_weight(
            name=name,
            shape=shape,
            initializer="zeros",
            dtype="int64",
            trainable=False,
        )

    def call(
        self, ids: tf.Tensor, values: tf.Tensor, probabilities: tf.Tensor
    ) -> tf.Tensor:
        votes = self.votes(ids, values)
        return (1 - self.share) * probabilities + self.share * votes

    def votes(self, ids: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """float32 `[batch, num_labels]`; zeros where no text is near."""
        norms = tf.norm(values, axis=1, keepdims=True)
        values = tf.math.divide_no_nan(values, norms)
        return self._summed(*self.nearest(self.similarity(ids, values)))

    def nearest(self, cosines: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """`(texts, weights)` of those that vote, int64 and float32 [batch, n].

        Args:
            cosines: float32 `[batch, texts]`.
        """
        count = min(self.num_neighbors, self.similarity.num_labels)
        cosines, texts = tf.math.top_k(cosines, count)
        weights = tf.nn.relu(cosines) ** _POWER
        total = tf.reduce_sum(weights, axis=1, keepdims=True)
        weights = tf.math.divide_no_nan(weights, total)
        return tf.cast(texts, tf.int64), weights

    def _summed(self, texts, weights):
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

    def compute_output_shape(
        self, ids_shape: Shape, values_shape: Shape, probabilities_shape: Shape
    ) -> Shape:
        return probabilities_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "similarity": keras.saving.serialize_keras_object(self.similarity),
            "num_labels": self.num_labels,
            "num_pairs": self.num_pairs,
            "num_neighbors": self.num_neighbors,
            "share": self.share,
        }


def make(
    rows: SparseRows,
    labels: SparseRows,
    num_features: int,
    num_labels: int,
    num_neighbors: int = NEIGHBORS,
    share: float = WEIGHT / (1 + WEIGHT),
    name: str | None = None,
) -> NeighborVotes:
    """A `NeighborVotes` of texts and their labels.

    Args:
        rows: `SparseRows`, features of the texts.
        labels: `SparseRows`, ids of their labels.
        num_features: int.
        num_labels: int.
        num_neighbors: int.
        share: float, of the votes in the output.
        name: of the layer.
    """
    texts = unit_rows(rows)
    # By feature, the texts that have it.
    by_feature = from_pairs(
        num_features, texts.ids, texts.row_ids(), texts.values
    )
    weights = SparseWeights(
        by_feature.splits,
        by_feature.ids.astype(np.int32),
        by_feature.values,
        np.zeros(len(texts), np.float32),
    )
    similarity = from_weights(weights, len(texts), name="similarity")
    layer = NeighborVotes(
        similarity, num_labels, len(labels.ids), num_neighbors, share, name=name
    )
    layer.splits.assign(labels.splits)
    layer.labels.assign(labels.ids)
    return layer


def votes_of(
    layer: NeighborVotes, rows: SparseRows, labels: np.ndarray
) -> np.ndarray:
    """The votes of `rows` for some labels, float32 `[rows, labels]`.

    Those for all of many labels would be gigabytes.
    """
    found = []
    for begin in range(0, len(rows), _BATCH):
        part = np.arange(begin, min(begin + _BATCH, len(rows)))
        # By itself: a long row makes wide rows of its batch alone.
        votes = layer.votes(*rows.take(part).padded()).numpy()
        found.append(votes[:, labels])
    return np.concatenate(found)


def unit_rows(rows: SparseRows, most: int = _TERMS) -> SparseRows:
    """The `most` heaviest entries of each row, scaled to norm 1."""
    rows = rows.heaviest(most)
    owner = rows.row_ids()
    squares = np.bincount(owner, rows.values**2, minlength=len(rows))
    scale = 1 / np.sqrt(np.maximum(squares, 1e-12))
    values = (rows.values * scale[owner]).astype(np.float32)
    return SparseRows(rows.splits, rows.ids, values)
