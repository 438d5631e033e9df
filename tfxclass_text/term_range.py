"""Some of a text's terms: what one part of a tagger reads."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class TermRange(keras.layers.Layer):
    """Terms with ids from `begin` to `end`, numbered from 0.

    The others get id 0 and value 0. `Tagger` makes it where its linear
    classifiers and its embeddings read different fields. Stock TensorFlow ops.

    Args:
        begin: int.
        end: int.
        **kwargs: `keras.layers.Layer`'s arguments.

    Call arguments:
        ids: int64 `[batch, n]`.
        values: float32 `[batch, n]`; where they are 0 there is no term.

    Output shape:
        `(ids, values)`, both `[batch, n]`.
    """

    def __init__(self, begin: int, end: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.begin, self.end = int(begin), int(end)
        self.built = True

    def call(
        self, ids: tf.Tensor, values: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        is_inside = (ids >= self.begin) & (ids < self.end)
        values = tf.where(is_inside, values, tf.zeros_like(values))
        return tf.where(is_inside, ids - self.begin, 0), values

    def compute_output_spec(
        self, ids: keras.KerasTensor, values: keras.KerasTensor
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        return (
            keras.KerasTensor(ids.shape, dtype=ids.dtype),
            keras.KerasTensor(values.shape, dtype=values.dtype),
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "begin": self.begin,
            "end": self.end,
        }
