"""A model that answers with the best classes instead of all of them."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_k
from tfxclass.inference.graph import encoder_of
from tfxclass.inference.graph import inputs_as_given
from tfxclass.inference.head_layer import HeadLayer
from tfxclass.inference.thresholds import above
from tfxclass.inference.thresholds import check_threshold
from tfxclass.inference.thresholds import threshold_of
from tfxclass.layers.output_head import OutputHead
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class TopK(HeadLayer):
    """The k best classes of a head, `(ids, scores)`; see `OutputHead.top_k`.

    Scores below `threshold` are 0 and their ids -1.
    """

    def __init__(
        self,
        head: OutputHead,
        k: int,
        threshold: float | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(head, **kwargs)
        self.k = k
        self.threshold = threshold

    def get_config(self) -> Config:
        own = {"k": self.k, "threshold": self.threshold}
        return {**super().get_config(), **own}

    def call(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        least = threshold_of(self.threshold, self.head)
        return above(least, *self.search(features))

    def search(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self.head.top_k(features, self.k)

    def compute_output_spec(
        self, features: keras.KerasTensor
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        shape = (*features.shape[:-1], self.k)
        return (
            keras.KerasTensor(shape, dtype="int64"),
            keras.KerasTensor(shape, dtype="float32"),
        )


def top_k(
    model: keras.Model, k: int = 10, threshold: float | str | None = None
) -> keras.Model:
    """A model of the same inputs and weights that returns the k best classes.

    Its memory is O(batch x block): the [batch, num_classes] output is never
    made.

    Args:
        model: a Sequential or functional model that ends in a head.
        k: int, at most the number of classes that were not removed.
        threshold: float in [0, 1], least probability of a class, or
            `"calibrated"`: each class's own, from `tfxclass.calibrate`; or
            None. Where fewer than `k` reach it, ids are -1 and scores 0.

    Returns:
        A `keras.Model` with outputs `(ids, scores)`, int64 and float32
        `[batch, k]`, or `[batch, time, k]` of sequences, best first.

    Raises:
        ValueError: no single head, `k` out of range, or an unbuilt model.
    """
    inputs, features, head = encoder_of(model)
    k = check_k(k, head.num_answers)
    check_threshold(threshold, head)
    best = TopK(head, k, threshold)(features)
    return keras.Model(inputs_as_given(model, inputs), best)
