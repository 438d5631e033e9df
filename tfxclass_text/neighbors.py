"""Votes of the nearest texts that were learned from."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.types import Config
from tfxclass_text.near_texts import NearTexts
from tfxclass_text.near_texts import cosines_with
from tfxclass_text.near_texts import directions
from tfxclass_text.sparse_rows import LabeledRows

#: Texts that vote, and what their votes weigh next to a probability of 1.
NEIGHBORS, WEIGHT = 30, 0.1
#: Shares of the votes to choose from.
SHARES = tuple(w / (1 + w) for w in (0.05, WEIGHT, 0.2, 0.4, 0.8))
# Cosines are raised to this: the nearest count for most.
_POWER = 8


@keras.saving.register_keras_serializable("tfxclass")
class NeighborVotes(NearTexts):
    """Probabilities, mixed with the tags of the nearest texts.

    The result is `(1 - share) probability + share vote`. The
    `num_neighbors` nearest texts by cosine vote for their tags. Their weights
    are cosine^8, and sum up to 1. The layer has stock TensorFlow ops; `Tagger`
    makes it.

    Args:
        similarity: `tfxclass.text.SparseLinear` whose outputs are the cosines
            with each text.
        num_labels: int.
        num_pairs: int, labels of all texts.
        num_neighbors: int.
        share: float in [0, 1].
        **kwargs: `keras.layers.Layer`'s arguments.

    Call it like `NearTexts`; the output has the same shape.
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
        super().__init__(similarity, num_labels, share, **kwargs)
        check_positive_int("num_neighbors", num_neighbors)
        self.num_pairs = int(num_pairs)
        self.num_neighbors = int(num_neighbors)
        texts = self.similarity.num_labels
        self.splits = self._weight("splits", (texts + 1,), "int64")
        self.labels = self._weight("labels", (self.num_pairs,), "int64")
        self.built = True

    def of_cosines(self, cosines: tf.Tensor) -> tf.Tensor:
        return self._summed(*self.nearest(cosines))

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

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_pairs": self.num_pairs,
            "num_neighbors": self.num_neighbors,
        }


def build_neighbor_votes(
    data: LabeledRows,
    num_neighbors: int = NEIGHBORS,
    share: float = WEIGHT / (1 + WEIGHT),
    name: str | None = None,
) -> NeighborVotes:
    """A `NeighborVotes` of texts and their labels.

    Args:
        data: `LabeledRows`, of the texts.
        num_neighbors: int.
        share: float, of the votes in the output.
        name: of the layer.
    """
    rows, labels, num_features, num_labels = data
    similarity = cosines_with(directions(rows, num_features))
    layer = NeighborVotes(
        similarity, num_labels, len(labels.ids), num_neighbors, share, name=name
    )
    layer.splits.assign(labels.splits)
    layer.labels.assign(labels.ids)
    return layer
