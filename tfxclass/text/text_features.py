"""Raw texts to sparse TF-IDF features, as a Keras layer of stock ops."""

import dataclasses
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.text import terms
from tfxclass.text.fields import Field
from tfxclass.text.fields import Vocabulary
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class TextFeatures(keras.layers.Layer):
    """Texts, by column, to the ids and values of their features.

    Each field's terms that are in its vocabulary get (1 + log count) idf,
    scaled to the field's weight; fields follow each other in the ids. Stock
    TensorFlow ops alone: it is exported with the model. `Tagger` makes it.

    Args:
        fields: list of `Field`, or their dicts.
        vocabulary_sizes: ints, terms of each field's vocabulary.
        **kwargs: `keras.layers.Layer`'s arguments.

    Call arguments:
        texts: dict of strings `[batch]`, by column.

    Output shape:
        `(ids, values)`, int64 and float32 `[batch, n]`, padded with value 0.
    """

    def __init__(
        self,
        fields: Iterable[Field | Config],
        vocabulary_sizes: Iterable[int],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.fields = [
            field if isinstance(field, Field) else Field(**field)
            for field in fields
        ]
        self.vocabulary_sizes = [int(size) for size in vocabulary_sizes]
        # Strings have no XLA kernels.
        self.supports_jit = False
        self.hashes, self.idf = [], []
        for number, size in enumerate(self.vocabulary_sizes):
            self.hashes.append(
                self.add_weight(
                    name=f"hashes_{number}",
                    # A table of nothing finds nothing: hash 0, idf 0.
                    shape=(max(size, 1),),
                    initializer="zeros",
                    dtype="int64",
                    trainable=False,
                )
            )
            self.idf.append(
                self.add_weight(
                    name=f"idf_{number}",
                    shape=(max(size, 1),),
                    initializer="zeros",
                    dtype="float32",
                    autocast=False,
                    trainable=False,
                )
            )
        self.built = True

    @property
    def num_features(self) -> int:
        return max(sum(self.vocabulary_sizes), 1)

    def set_vocabularies(self, vocabularies: Sequence[Vocabulary]) -> None:
        """Takes in a list of `Vocabulary`, one a field."""
        for hashes, idf, vocabulary in zip(self.hashes, self.idf, vocabularies):
            if len(vocabulary.hashes):
                hashes.assign(vocabulary.hashes)
                idf.assign(vocabulary.idf)

    def call(self, texts: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        plain = {name: terms.plain(text) for name, text in texts.items()}
        size = tf.shape(next(iter(plain.values())), tf.int64)[0]
        parts, first = [], 0
        for number, field in enumerate(self.fields):
            rows, ids, values = self._field(number, field, plain, size)
            parts.append((rows, ids + first, values))
            first += self.vocabulary_sizes[number]
        rows, ids, values = (tf.concat(part, 0) for part in zip(*parts))
        return _padded(rows, ids, values, size)

    def _field(self, number, field, plain, size):
        hashes, idf = (
            tf.convert_to_tensor(x[number]) for x in (self.hashes, self.idf)
        )
        rows, found = field.terms_of(plain)
        ids = tf.searchsorted(hashes, found, out_type=tf.int64)
        ids = tf.minimum(ids, max(self.vocabulary_sizes[number], 1) - 1)
        known = tf.gather(hashes, ids) == found
        rows, ids, counts = terms.count(
            tf.boolean_mask(rows, known), tf.boolean_mask(ids, known)
        )
        values = (1 + tf.math.log(counts)) * tf.gather(idf, ids)
        squares = tf.math.unsorted_segment_sum(values**2, rows, size)
        norms = tf.maximum(tf.sqrt(tf.gather(squares, rows)), 1e-12)
        return rows, ids, values * field.weight / norms

    def compute_output_spec(
        self, texts: dict[str, keras.KerasTensor]
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        batch = next(iter(texts.values())).shape[0]
        return (
            keras.KerasTensor((batch, None), dtype="int64"),
            keras.KerasTensor((batch, None), dtype="float32"),
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "fields": [dataclasses.asdict(field) for field in self.fields],
            "vocabulary_sizes": self.vocabulary_sizes,
        }


def _padded(rows, ids, values, size):
    order = tf.argsort(rows, stable=True)
    rows = tf.gather(rows, order)

    def matrix(flat):
        ragged = tf.RaggedTensor.from_value_rowids(
            tf.gather(flat, order), rows, size, validate=False
        )
        # One column at least: not everything takes [batch, 0].
        width = tf.maximum(ragged.bounding_shape(axis=1), 1)
        return ragged.to_tensor(
            shape=tf.stack([tf.constant(-1, tf.int64), width])
        )

    return matrix(ids), tf.cast(matrix(values), tf.float32)


def make(
    fields: Iterable[Field],
    vocabularies: Sequence[Vocabulary],
    name: str = "text_features",
) -> TextFeatures:
    """A `TextFeatures` with these vocabularies."""
    sizes = [len(vocabulary.hashes) for vocabulary in vocabularies]
    layer = TextFeatures(fields, sizes, name=name)
    layer.set_vocabularies(vocabularies)
    return layer
