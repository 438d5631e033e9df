"""Raw texts to sparse TF-IDF features, as a Keras layer of stock ops."""

import dataclasses
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.types import Config
from tfxclass.types import Texts
from tfxclass_text import columns as columns_lib
from tfxclass_text import term_table
from tfxclass_text import terms
from tfxclass_text.corpus import slices
from tfxclass_text.fields import Field
from tfxclass_text.fields import Vocabulary


@keras.saving.register_keras_serializable("tfxclass")
class TextFeatures(keras.layers.Layer):
    """Texts, by column, to the ids and values of their features.

    Each field's terms that are in its vocabulary get (1 + log count) idf,
    scaled to the field's weight; values of a field of the kind "values" are
    multiplied by one number. Fields follow each other in the ids. Stock
    TensorFlow ops alone: it is exported with the model. `from_texts` makes it
    with the vocabularies of some texts.

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
            # A table of nothing finds nothing: hash 0, idf 0.
            shape = (max(size, 1),)
            self.hashes.append(
                add_weight(self, f"hashes_{number}", shape, "int64")
            )
            self.idf.append(add_weight(self, f"idf_{number}", shape))
        self.built = True

    @classmethod
    def from_texts(
        cls, texts: Texts, fields: Iterable[Field], **kwargs: Any
    ) -> "TextFeatures":
        """A layer with the terms of `texts` and their idf.

        Args:
            texts: dict of lists of str, a text each, by column; or a table.
            fields: list of `Field`.
            **kwargs: `keras.layers.Layer`'s arguments.

        Returns:
            A `TextFeatures`.

        Example:

        >>> words = tfxclass.text.Field("title", longest=2)
        >>> runs = tfxclass.text.Field("title", "chars", 3, 5)
        >>> layer = tfxclass.text.TextFeatures.from_texts(
        ...     {"title": titles}, [words, runs]
        ... )
        >>> ids, values = layer({"title": tf.constant(["head of sales"])})
        """
        fields = list(fields)
        columns = columns_lib.read(texts)
        vocabularies = term_table.vocabularies_of(
            slices(columns), fields, columns_lib.size(columns)
        )
        return cls.from_vocabularies(fields, vocabularies, **kwargs)

    @classmethod
    def from_vocabularies(
        cls,
        fields: Iterable[Field],
        vocabularies: Sequence[Vocabulary],
        **kwargs: Any,
    ) -> "TextFeatures":
        """A layer with these vocabularies, one a field."""
        layer = cls(fields, [len(x.hashes) for x in vocabularies], **kwargs)
        for hashes, idf, own in zip(layer.hashes, layer.idf, vocabularies):
            if len(own.hashes):
                hashes.assign(own.hashes)
                idf.assign(own.idf)
        return layer

    @property
    def num_features(self) -> int:
        return max(sum(self.vocabulary_sizes), 1)

    def vocabulary(self, number: int) -> Vocabulary:
        """The `Vocabulary` of a field."""
        size = self.vocabulary_sizes[number]
        hashes, idf = self.hashes[number], self.idf[number]
        return Vocabulary(hashes.numpy()[:size], idf.numpy()[:size])

    def call(self, texts: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        plain = {name: terms.plain(text) for name, text in texts.items()}
        sizes = [tf.size(text, tf.int64) for text in plain.values()]
        size, told = sizes[0], f"columns {sorted(texts)} must be of one length"
        tf.debugging.assert_equal(sizes, size, told)
        found = []
        for number, field in enumerate(self.fields):
            if field.kind == "values":
                listed = terms.values_of(field.join(texts))
                found.append(self._known(number, *listed))
            else:
                # Before they are counted: most of a long text's are unknown.
                known = self._known(number, *field.terms_of(plain))
                found.append(terms.count(*known))
        return self._weighed(found, size)

    def of_counted(
        self, texts: Sequence[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """What `call` gives, bit for bit; a compiled op counts the terms.

        `texts` are strings `[batch]`, of `fields.texts_of`, one a field.
        """
        found = [
            self._known(number, *field.count(text))
            for number, (field, text) in enumerate(zip(self.fields, texts))
        ]
        return self._weighed(found, tf.shape(texts[0], tf.int64)[0])

    def named(self, texts: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        """`(rows, ids, names)` of all known terms, as often as they are read.

        They are flat, field after field.
        """
        plain = {name: terms.plain(text) for name, text in texts.items()}
        first, parts = 0, []
        for number, field in enumerate(self.fields):
            read = field.named_terms(texts, plain)
            rows, ids, names = self._known(number, *read)
            parts.append((rows, ids + first, names))
            first += self.vocabulary_sizes[number]
        return [tf.concat(part, 0) for part in zip(*parts)]

    def _known(self, number, rows, hashes, *others):
        """Rows, places in a field's vocabulary and others of known terms."""
        vocabulary = tf.convert_to_tensor(self.hashes[number])
        ids = tf.searchsorted(vocabulary, hashes, out_type=tf.int64)
        ids = tf.minimum(ids, max(self.vocabulary_sizes[number], 1) - 1)
        known = tf.gather(vocabulary, ids) == hashes
        return terms.of_mask(known, rows, ids, *others)

    def _weighed(self, found, size):
        """Ids and values of the `(rows, ids, counts)` of each field."""
        first, parts = 0, []
        for number, (rows, ids, counts) in enumerate(found):
            idf = tf.gather(tf.convert_to_tensor(self.idf[number]), ids)
            of_field = tf.fill(tf.shape(rows), tf.constant(number, tf.int64))
            parts.append((rows, ids + first, counts, idf, of_field))
            first += self.vocabulary_sizes[number]
        rows, *parts = (tf.concat(part, 0) for part in zip(*parts))
        # Then weighed: a value's last bit depends on its place in the tensor.
        order = tf.argsort(rows, stable=True)
        rows, ids, counts, idf, of_field = (
            tf.gather(part, order) for part in (rows, *parts)
        )
        kinds = tf.constant([field.kind == "values" for field in self.fields])
        of_values = tf.gather(kinds, of_field)
        values = idf * tf.where(of_values, counts, 1 + tf.math.log(counts))
        groups = rows * len(self.fields) + of_field
        squares = tf.math.unsorted_segment_sum(
            values**2, groups, size * len(self.fields)
        )
        norms = tf.maximum(tf.sqrt(tf.gather(squares, groups)), 1e-12)
        norms = tf.where(of_values, 1.0, norms)
        weights = tf.constant([field.weight for field in self.fields])
        values = values * tf.gather(weights, of_field) / norms
        return _padded(rows, ids, values, size)

    def compute_output_spec(
        self, texts: dict[str, keras.KerasTensor]
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        batch = next(iter(texts.values())).shape[0]
        return (
            keras.KerasTensor((batch, None), dtype="int64"),
            keras.KerasTensor((batch, None), dtype="float32"),
        )

    def get_config(self) -> Config:
        fields = [dataclasses.asdict(field) for field in self.fields]
        own = {"fields": fields, "vocabulary_sizes": self.vocabulary_sizes}
        return super().get_config() | own


def _padded(rows, ids, values, size):
    """`(ids, values)` `[size, n]` of entries in the order of the rows."""

    def matrix(flat):
        ragged = tf.RaggedTensor.from_value_rowids(
            flat, rows, size, validate=False
        )
        # One column at least: not everything takes [batch, 0].
        width = tf.maximum(ragged.bounding_shape(axis=1), 1)
        return ragged.to_tensor(
            shape=tf.stack([tf.constant(-1, tf.int64), width])
        )

    return matrix(ids), tf.cast(matrix(values), tf.float32)


def add_weight(
    layer: keras.layers.Layer,
    name: str,
    shape: tuple[int, ...],
    dtype: str = "float32",
    initializer: Any = "zeros",
) -> keras.Variable:
    """A weight of a tagger's layer, which Keras neither trains nor casts."""
    return layer.add_weight(
        name=name,
        shape=shape,
        initializer=initializer,
        dtype=dtype,
        autocast=False,
        trainable=False,
    )
