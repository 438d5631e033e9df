"""The Keras model of a tagger, from texts to probabilities, and its answers."""

import functools
import itertools
from collections.abc import Callable
from collections.abc import Iterable
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.rows import search
from tfxclass.types import Columns
from tfxclass.types import Config
from tfxclass.types import Path
from tfxclass.types import Shape
from tfxclass_text import fields as fields_lib
from tfxclass_text import scoring
from tfxclass_text.embeddings import TextEmbedding
from tfxclass_text.neighbors import NeighborVotes
from tfxclass_text.sparse_linear import SparseLinear
from tfxclass_text.text_features import TextFeatures
from tfxclass_text.text_features import add_weight

#: Layers of the model that mix in scores of embeddings and of an encoder.
EMBEDDED, ENCODED = "mixed-embeddings", "mixed-scores"
_SAVED_MODEL = "tf_saved_model"
# The logits of 0 and 1 are infinite.
_LEAST = 1e-7
# What logits of a network are tried with, where a row has one label.
_LINEAR = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5)
_DENSE = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5)
# Answers of a text up to which the compiled op is quicker (measured).
_FEW = 1000


@keras.saving.register_keras_serializable("tfxclass")
class MixedScores(keras.layers.Layer):
    """Wide and deep: probabilities of linear scores and a network's together.

    With probabilities p, logits z and factors (a, b, c), the result is
    `sigmoid(a logit(p) + b z + c)`, and where a row has one label
    `softmax(a log p + b z)`; float32 `[batch, num_labels]`, as p and z are.

    References:
        Cheng et al., Wide & Deep Learning for Recommender Systems, 2016.
    """

    def __init__(self, activation: str = "sigmoid", **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        self.activation = activation
        self.factors = add_weight(self, "factors", (3,))
        self.built = True

    def call(self, probabilities: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        found = self.logits(probabilities, logits)
        is_softmax = self.activation == "softmax"
        return tf.nn.softmax(found) if is_softmax else tf.sigmoid(found)

    def logits(self, probabilities: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """What the activation is applied to."""
        a, b, c = tf.unstack(tf.convert_to_tensor(self.factors))
        of_linear = logits_of(probabilities, self.activation)
        return a * of_linear + b * tf.cast(logits, tf.float32) + c

    def compute_output_shape(
        self, probabilities_shape: Shape, logits_shape: Shape
    ) -> Shape:
        return probabilities_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "activation": self.activation}


def logits_of(
    probabilities: tf.Tensor, activation: str | None, least: float = _LEAST
) -> tf.Tensor:
    """Scores whose sigmoid or softmax are these probabilities."""
    p = tf.cast(probabilities, tf.float32)
    p = tf.clip_by_value(p, least, 1 - _LEAST)
    if activation == "softmax":
        return tf.math.log(p)
    # No log1p: ONNX has none.
    return tf.math.log(p) - tf.math.log(1 - p)


def fit_factors(
    probabilities: np.ndarray,
    logits: np.ndarray,
    truth: np.ndarray,
    single_label: bool,
) -> np.ndarray:
    """The likeliest factors of a `MixedScores`, float32 `[3]`."""
    p = np.clip(probabilities, _LEAST, 1 - _LEAST)
    if single_label:
        return _fit_softmax(np.log(p), logits, truth)
    both = [np.log(p) - np.log1p(-p), logits]
    return scoring.fit_sigmoid(both, truth, both).astype(np.float32)


def _fit_softmax(log_p, logits, truth):
    rows = scoring.labeled_rows(truth)
    if not len(rows):
        return np.array([1.0, 0.0, 0.0], np.float32)
    log_p, logits, truth = log_p[rows], logits[rows], truth[rows]
    a, b = min(
        itertools.product(_LINEAR, _DENSE),
        key=lambda pair: scoring.softmax_loss(
            pair[0] * log_p + pair[1] * logits, truth
        ),
    )
    return np.array([a, b, 0.0], np.float32)


@keras.saving.register_keras_serializable("tfxclass")
class TaggerModel(keras.Model):
    """A functional model whose `export` refuses formats without text ops."""

    def export(
        self,
        filepath: Path,
        format: str = _SAVED_MODEL,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Writes a SavedModel from texts to the probabilities of all tags."""
        if format != _SAVED_MODEL:
            raise ValueError(
                f"Keras' `export` cannot write a Tagger's model as {format!r}, "
                "which has no ops for texts. Fix: tagger.export(path) writes a "
                "SavedModel from texts to names, and tagger.export_onnx(path) "
                "an ONNX model of what tagger.features(texts) returns."
            )
        super().export(filepath, format, *args, **kwargs)


def inputs_of(names: Iterable[str]) -> dict[str, keras.KerasTensor]:
    """A model's inputs, the columns."""
    return {name: keras.Input((), dtype="string", name=name) for name in names}


class Layers(NamedTuple):
    """What a tagger's model is made of; None for what is not mixed in."""

    features: TextFeatures
    linear: SparseLinear
    votes: NeighborVotes | None = None
    embedding: TextEmbedding | None = None
    mixed_embedding: Any = None
    #: Of columns to an encoder's logits.
    encoder: Callable[[Any], tf.Tensor] | None = None
    mixed_encoder: Any = None

    def probabilities(
        self, columns: Any, terms: tuple[Any, Any], compiled: bool = False
    ) -> tf.Tensor:
        """float32 `[batch, tags]`, of the `(ids, values)` of `features`.

        An encoder reads the columns, strings `[batch]` by name. Models that are
        exported need stock ops, and others may use compiled ones.
        """
        found = self.linear(*terms, compiled=compiled)
        if self.votes is not None:
            found = self.votes(*terms, found, compiled=compiled)
        if self.embedding is not None:
            found = self.mixed_embedding(found, self.embedding(*terms))
        if self.encoder is not None:
            found = self.mixed_encoder(found, self.encoder(columns))
        return found

    def logits(self, columns: Any, terms: tuple[Any, Any]) -> tf.Tensor:
        """What the model's last activation is applied to, `[batch, tags]`."""
        margins = self.linear.margins(*terms)
        found, p = self.linear.logits(margins), self.linear.activated(margins)
        if self.votes is not None:
            p = self.votes(*terms, p)
            found = logits_of(p, self.linear.activation, least=1e-30)
        if self.embedding is not None:
            embedded = self.embedding(*terms)
            found = self.mixed_embedding.logits(p, embedded)
            p = self.mixed_embedding(p, embedded)
        if self.encoder is not None:
            found = self.mixed_encoder.logits(p, self.encoder(columns))
        return found

    def contributions(
        self, terms: tuple[Any, Any], tags: tf.Tensor
    ) -> tf.Tensor:
        """What each term adds to `logits` of its row's tag, `[batch, n]`.

        Votes and an encoder are left out.
        """
        ids, values = terms
        found = values * self.linear.weights_at(ids, tags) * self.linear.slope
        if self.embedding is not None:
            a, b, _ = tf.unstack(self.mixed_embedding.factors.value)
            found = a * found + b * self.embedding.contributions(*terms, tags)
        if self.encoder is not None:
            found = self.mixed_encoder.factors[0] * found
        return found


def make_model(names: Iterable[str], layers: Layers) -> TaggerModel:
    """The model from columns of texts to probabilities `[batch, tags]`."""
    inputs = inputs_of(names)
    terms = layers.features(inputs)
    return TaggerModel(inputs, layers.probabilities(inputs, terms))


def layers_of(model: keras.Model) -> Layers:
    """The `Layers` that `make_model` was given."""
    # By kind: an encoder may have the names. Earlier files have underscores.
    by_kind: dict[type, Any] = {type(x): x for x in reversed(model.layers)}
    mixes = [x for x in model.layers if isinstance(x, MixedScores)]
    by_name = {x.name.replace("_", "-"): x for x in mixes}
    encoder, mixed = None, by_name.get(ENCODED)
    if mixed is not None:
        own = keras.Model(model.input, mixed.input[1])
        encoder = functools.partial(own, training=False)
    return Layers(
        by_kind[TextFeatures], by_kind[SparseLinear],
        by_kind.get(NeighborVotes), by_kind.get(TextEmbedding),
        by_name.get(EMBEDDED), encoder, mixed,
    )  # fmt: skip


def build_predictor(
    model: keras.Model,
) -> Callable[[Columns, int], tuple[np.ndarray, np.ndarray]]:
    """A function of columns of bytes and k, to the k best of each text.

    They are `(ids, probabilities)`, int32 and float32 `[batch, k]`: what the
    model gives, but for rounding. Compiled ops count terms and compute scores.
    """
    layers = layers_of(model)
    # The op reads scores that lie on a CPU.
    has_op = library.build()["ops"] == "compiled" and not placement.has_gpu()

    @tf.function(reduce_retracing=True)
    def best(columns, texts, k, by_op):
        terms = layers.features.of_counted(texts)
        scores = layers.probabilities(columns, terms, compiled=True)
        if by_op:
            found = search.best_of_logits(scores, k)
            return tf.cast(found.ids, tf.int32), found.logits
        found = tf.math.top_k(scores, k)
        return found.indices, found.values

    def answer(columns, k):
        texts = fields_lib.texts_of(columns, layers.features.fields)
        found = best(
            {name: tf.constant(x) for name, x in columns.items()},
            [tf.constant(x) for x in texts], tf.constant(k),
            has_op and k <= _FEW,
        )  # fmt: skip
        return tuple(x.numpy() for x in found)

    return answer
