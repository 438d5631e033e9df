"""What texts that were learned from say of a text like them."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.types import Config
from tfxclass.types import Shape
from tfxclass_text.linear_ops import SparseWeights
from tfxclass_text.sparse_linear import SparseLinear
from tfxclass_text.sparse_linear import from_weights
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.sparse_rows import from_pairs

# Heaviest terms of a text that it is found by: lists stay short.
_TERMS = 64
_BATCH = 64


class NearTexts(keras.layers.Layer):
    """Probabilities, mixed with scores that come of cosines with some texts.

    `(1 - share) probability + share score`, the score by `of_cosines`. Stock
    TensorFlow ops; `Tagger` makes it.

    Args:
        similarity: `tfxclass.text.SparseLinear` whose outputs are the cosines
            with each text.
        num_labels: int.
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
        share: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive_int("num_labels", num_labels)
        if isinstance(similarity, dict):
            similarity = keras.saving.deserialize_keras_object(similarity)
        self.similarity = similarity
        self.num_labels = int(num_labels)
        self.share = share
        self.supports_jit = False

    def _weight(self, name, shape, dtype):
        return self.add_weight(
            name=name,
            shape=shape,
            initializer="zeros",
            dtype=dtype,
            autocast=False,
            trainable=False,
        )

    def call(
        self, ids: tf.Tensor, values: tf.Tensor, probabilities: tf.Tensor
    ) -> tf.Tensor:
        scores = self.scores(ids, values)
        return (1 - self.share) * probabilities + self.share * scores

    def scores(self, ids: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """float32 `[batch, num_labels]`."""
        norms = tf.norm(values, axis=1, keepdims=True)
        values = tf.math.divide_no_nan(values, norms)
        return self.of_cosines(self.similarity(ids, values))

    def of_cosines(self, cosines: tf.Tensor) -> tf.Tensor:
        """Scores `[batch, num_labels]` of cosines `[batch, texts]`."""
        raise NotImplementedError

    def compute_output_shape(
        self, ids_shape: Shape, values_shape: Shape, probabilities_shape: Shape
    ) -> Shape:
        return probabilities_shape

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "similarity": keras.saving.serialize_keras_object(self.similarity),
            "num_labels": self.num_labels,
            "share": self.share,
        }


def directions(
    texts: SparseRows, num_features: int, most: int | None = _TERMS
) -> SparseWeights:
    """The texts' unit vectors as columns of `SparseWeights`.

    Args:
        texts: `SparseRows`.
        num_features: int.
        most: int, terms of a text, the heaviest; None for all.
    """
    texts = unit_rows(texts, most)
    # By feature, the texts that have it.
    by_feature = from_pairs(
        num_features, texts.ids, texts.row_ids(), texts.values
    )
    return SparseWeights(
        by_feature.splits,
        by_feature.ids.astype(np.int32),
        by_feature.values,
        np.zeros(len(texts), np.float32),
    )


def cosines_with(
    directions: SparseWeights, name: str = "similarity"
) -> SparseLinear:
    """A layer of the cosines of unit vectors with some directions."""
    return from_weights(directions, len(directions.biases), name=name)


def unit_rows(rows: SparseRows, most: int | None = _TERMS) -> SparseRows:
    """The `most` heaviest entries of each row (or all), scaled to norm 1."""
    rows = rows if most is None else rows.heaviest(most)
    owner = rows.row_ids()
    squares = np.bincount(owner, rows.values**2, minlength=len(rows))
    scale = 1 / np.sqrt(np.maximum(squares, 1e-12))
    values = (rows.values * scale[owner]).astype(np.float32)
    return SparseRows(rows.splits, rows.ids, values)


def scores_of(
    layer: NearTexts, rows: SparseRows, labels: np.ndarray
) -> np.ndarray:
    """The scores of `rows` for some labels, float32 `[rows, labels]`.

    Those for all of many labels would be gigabytes.
    """
    found = []
    for begin in range(0, len(rows), _BATCH):
        part = np.arange(begin, min(begin + _BATCH, len(rows)))
        # By itself: a long row makes wide rows of its batch alone.
        scores = layer.scores(*rows.take(part).padded()).numpy()
        found.append(scores[:, labels])
    return np.concatenate(found)
