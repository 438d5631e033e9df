"""Scores by texts that one is like: what no weights of its terms tell."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.types import Config
from tfxclass_text.near_texts import NearTexts


@keras.saving.register_keras_serializable("tfxclass")
class KernelScores(NearTexts):
    """Probabilities, mixed with the scores of a kernel ridge regression.

    The result is `(1 - share) probability + share score`. Scores are `k weights
    basis + means`, cut to [0, 1]. k is the kernel of a text with each landmark,
    `(exp(cos) - 1) / (e - 1)` of their cosine. It counts all products of the
    terms that both have. The layer has stock TensorFlow ops; `Tagger` makes it.

    Args:
        similarity: `tfxclass.text.SparseLinear` whose outputs are the cosines
            with each landmark.
        num_labels: int.
        share: float in [0, 1].
        rank: int, rows of the basis; 0 for weights of each label.
        sums_to_one: bool, whether a row has one label: scores are then divided
            by their sum.
        **kwargs: `keras.layers.Layer`'s arguments.

    Call it like `NearTexts`; the output has the same shape.
    """

    def __init__(
        self,
        similarity: keras.layers.Layer | Config,
        num_labels: int,
        share: float = 0.5,
        rank: int = 0,
        sums_to_one: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(similarity, num_labels, share, **kwargs)
        self.rank, self.sums_to_one = int(rank), bool(sums_to_one)
        landmarks, width = self.similarity.num_labels, self.num_labels
        self.kernel = self._weight(
            "kernel", (landmarks, self.rank or width), "float32"
        )
        self.basis: Any = None
        if self.rank:
            self.basis = self._weight("basis", (self.rank, width), "float32")
        self.means = self._weight("means", (width,), "float32")
        self.built = True

    def of_cosines(self, cosines: tf.Tensor) -> tf.Tensor:
        get = tf.convert_to_tensor
        basis = None if self.basis is None else get(self.basis)
        return scores_of_cosines(
            cosines, get(self.kernel), basis, get(self.means), self.sums_to_one
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "rank": self.rank,
            "sums_to_one": self.sums_to_one,
        }


def scores_of_cosines(
    cosines: tf.Tensor,
    kernel: tf.Tensor,
    basis: tf.Tensor | None,
    means: tf.Tensor,
    sums_to_one: bool,
) -> tf.Tensor:
    """float32 `[batch, labels]` in [0, 1].

    Args:
        cosines: float32 `[batch, landmarks]`.
        kernel: float32 `[landmarks, rank or labels]`.
        basis: float32 `[rank, labels]`, or None.
        means: float32 `[labels]`.
        sums_to_one: bool.
    """
    near = (tf.exp(cosines) - 1) / np.expm1(np.float32(1))
    scores = tf.matmul(near, kernel)
    if basis is not None:
        scores = tf.matmul(scores, basis)
    scores = tf.clip_by_value(scores + means, 0.0, 1.0)
    if not sums_to_one:
        return scores
    total = tf.reduce_sum(scores, axis=1, keepdims=True)
    return scores / tf.maximum(total, 1e-12)
