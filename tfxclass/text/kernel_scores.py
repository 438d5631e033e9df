"""Scores by texts that one is like: what no weights of its terms tell."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.text.near_texts import NearTexts
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class KernelScores(NearTexts):
    """Probabilities, mixed with those of a kernel ridge regression.

    `(1 - share) probability + share score`; scores are `k weights basis +
    means` in [0, 1], k the kernel of a text with each landmark, a function of
    their cosine: `(exp(cos) - 1) / (e - 1)`, which is all products of the terms
    that both have. Stock TensorFlow ops; `Tagger` makes it.

    Args:
        similarity: `tfxclass.text.SparseLinear` whose outputs are the cosines
            with each landmark.
        num_labels: int.
        share: float in [0, 1].
        rank: int, rows of the basis; 0 for weights of each label.
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
        share: float = 0.5,
        rank: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(similarity, num_labels, share, **kwargs)
        self.rank = int(rank)
        landmarks, width = self.similarity.num_labels, self.num_labels
        self.kernel = self._weight(
            "kernel", (landmarks, self.rank or width), "float32"
        )
        self.basis = None
        if self.rank:
            self.basis = self._weight("basis", (self.rank, width), "float32")
        self.means = self._weight("means", (width,), "float32")
        self.built = True

    def of_cosines(self, cosines: tf.Tensor) -> tf.Tensor:
        weights = [self.kernel, self.basis, self.means]
        return scores_of_cosines(
            cosines,
            *(None if x is None else tf.convert_to_tensor(x) for x in weights),
        )

    def get_config(self) -> Config:
        return {**super().get_config(), "rank": self.rank}


def scores_of_cosines(
    cosines: tf.Tensor,
    kernel: tf.Tensor,
    basis: tf.Tensor | None,
    means: tf.Tensor,
) -> tf.Tensor:
    """float32 `[batch, labels]` in [0, 1].

    Args:
        cosines: float32 `[batch, landmarks]`.
        kernel: float32 `[landmarks, rank or labels]`.
        basis: float32 `[rank, labels]`, or None.
        means: float32 `[labels]`.
    """
    near = (tf.exp(cosines) - 1) / np.expm1(np.float32(1))
    scores = tf.matmul(near, kernel)
    if basis is not None:
        scores = tf.matmul(scores, basis)
    return tf.clip_by_value(scores + means, 0.0, 1.0)
