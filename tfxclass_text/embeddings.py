"""Embeddings of a text's terms and of the tags, compared by cosine."""

from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.layers.sparse_dense import sparse_product
from tfxclass.ops import row_update
from tfxclass.types import Config
from tfxclass.types import Shape
from tfxclass_text.linear_tree import PROCESS
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.text_features import add_weight

# Length of an embedding, at most and at least.
_UNITS, _MIN_UNITS = 256, 64
# A small scale acts like label smoothing.
_SCALE = 8.0
_DROPOUT = 0.2
# Adagrad's rates, and its offsets relative to the mean square of gradients.
_TERM_RATE, _CLASS_RATE = 0.05, 0.3
_TERM_OFFSET, _CLASS_OFFSET = 4.0, 10.0
_BATCH = 256
# Labels up to which a step computes all of them; labels of a step otherwise.
_MAX_FULL, _NUM_SAMPLED = 1024, 512
# Terms of a text that are learned from: the heaviest.
_MAX_TERMS = 128
# Passes over the texts; fewer than the least are not worth their time.
_MAX_EPOCHS, _MIN_EPOCHS = 6, 2
# CPU seconds of a pass for a number of an embedding: of a term of a text, and
# of a sampled class for a text (measured). What all passes may take.
_TERM_SECONDS, _CLASS_SECONDS = 3e-9, 1.2e-10
_MAX_SECONDS = 120.0
# Of the terms' embeddings: a model stays well below 500 MB.
_MAX_WEIGHTS = 50_000_000
# Matrices of terms by units, in training.
_STATES = 3


@keras.saving.register_keras_serializable("tfxclass")
class TextEmbedding(keras.layers.Layer):
    """Log of the softmax of a text's cosines with all tags, times a scale.

    A text is the sum of the vectors of its terms. Stock TensorFlow ops;
    `Tagger` makes it.

    Args:
        num_terms: int, terms that have vectors.
        num_labels: int.
        units: int, length of a vector.
        first: int, id of the first term that has a vector. Other terms are
            ignored.
        **kwargs: `keras.layers.Layer`'s arguments.

    Call arguments:
        ids: int64 `[batch, n]`.
        values: float32 `[batch, n]`; where they are 0 there is no feature.

    Output shape:
        `[batch, num_labels]`.
    """

    def __init__(
        self,
        num_terms: int,
        num_labels: int,
        units: int,
        first: int = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        self.num_terms, self.num_labels = int(num_terms), int(num_labels)
        self.units, self.first = int(units), int(first)
        self.supports_jit = False
        self.terms = add_weight(self, "terms", (self.num_terms, self.units))
        self.tags = add_weight(self, "tags", (self.num_labels, self.units))
        self.built = True

    def call(self, ids: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        places = tf.cast(ids, tf.int64) - self.first
        is_own = (values != 0) & (places >= 0) & (places < self.num_terms)
        where = tf.where(is_own)
        terms, columns = tf.unique(tf.gather_nd(places, where), tf.int64)
        size = tf.shape(ids, tf.int64)[0]
        sums = sparse_product(
            tf.stack([where[:, 0], columns], axis=1),
            tf.gather_nd(tf.cast(values, tf.float32), where),
            # TensorFlow's sparse product divides by the number of rows.
            tf.maximum(size, 1),
            tf.gather(tf.convert_to_tensor(self.terms), terms),
        )
        return log_cosines(sums[:size], tf.convert_to_tensor(self.tags))

    def contributions(
        self, ids: tf.Tensor, values: tf.Tensor, tags: tf.Tensor
    ) -> tf.Tensor:
        """What each term adds to the scaled cosine of its row's tag.

        They are `[batch, n]`; `tags` are int64 `[batch]`.
        """
        places = ids - self.first
        is_own = (places >= 0) & (places < self.num_terms)
        vectors = tf.gather(
            tf.convert_to_tensor(self.terms), tf.where(is_own, places, 0)
        )
        weights = tf.where(is_own, values, 0.0)
        sums = tf.matmul(weights[:, tf.newaxis], vectors)
        squares = tf.reduce_sum(sums**2, axis=2)
        of_tags = tf.gather(tf.convert_to_tensor(self.tags), tags)
        products = tf.linalg.matvec(vectors, of_tags)
        return weights * products / tf.sqrt(tf.maximum(squares, 1e-12))

    def compute_output_shape(
        self, ids_shape: Shape, values_shape: Shape
    ) -> Shape:
        return (ids_shape[0], self.num_labels)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_terms": self.num_terms,
            "num_labels": self.num_labels,
            "units": self.units,
            "first": self.first,
        }


def log_cosines(sums: tf.Tensor, tags: tf.Tensor) -> tf.Tensor:
    """The output of a `TextEmbedding`, float32 `[batch, num_labels]`.

    `sums` are of the vectors of a text's terms, `[batch, units]`, and `tags`
    vectors with the norm of the scale, `[num_labels, units]`.
    """
    squares = tf.reduce_sum(sums**2, axis=1, keepdims=True)
    unit = sums / tf.sqrt(tf.maximum(squares, 1e-12))
    return tf.nn.log_softmax(tf.matmul(unit, tags, transpose_b=True))


class Plan(NamedTuple):
    """What there is time and room for."""

    #: Length of an embedding, 0 for none.
    units: int
    #: Over the texts.
    passes: int
    #: Of CPU, that the passes take, roughly.
    seconds: float
    #: Of the process at its peak, roughly.
    gigabytes: float


def plan(data: LabeledRows, units: int | None = None) -> Plan:
    """The `Plan` of embeddings of some texts.

    `units` are wanted anyway; by default they are as many as are affordable.
    """
    rows, least = data.rows, 0 if units is None else _MIN_EPOCHS
    if units is None:
        units = min(_UNITS, _MAX_WEIGHTS // data.num_features)
        units = units if units >= _MIN_UNITS else 0
    terms = np.minimum(np.diff(rows.splits), _MAX_TERMS).sum()
    sampled = max(_labels_of_batch(data), _NUM_SAMPLED)
    classes = len(rows) * min(sampled, data.num_labels)
    seconds = units * (_TERM_SECONDS * terms + _CLASS_SECONDS * classes)
    passes = int(min(_MAX_SECONDS / max(seconds, 1e-9), _MAX_EPOCHS))
    passes = max(passes if passes >= _MIN_EPOCHS else 0, least)
    gigabytes = 4 * _STATES * units * data.num_features / 1e9 + PROCESS
    return Plan(units if passes else 0, passes, passes * seconds, gigabytes)


def _labels_of_batch(data):
    return int(_BATCH * len(data.labels.ids) / max(len(data.labels), 1))


def train(
    data: LabeledRows,
    units: int = _UNITS,
    epochs: int = _MAX_EPOCHS,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
    first: int = 0,
    among: np.ndarray | None = None,
) -> TextEmbedding:
    """A trained `TextEmbedding`, by a softmax of cosines.

    With over 1,024 labels, a step computes the labels of its texts. If these
    are few, labels that are drawn at random fill up a sample of 512. A text
    with several labels has each of them with the same probability. Adagrad
    updates the vectors that a step reads.

    `among` are the texts that are learned from, by default all. `say` is told
    how far it is, and `first` is of the layer.

    References:
        Joulin et al., Bag of Tricks for Efficient Text Classification, EACL
        2017, of sums of embeddings. Here classes are compared by cosine.
        Duchi, Hazan and Singer, Adaptive Subgradient Methods, JMLR 2011.
    """
    data = data._replace(rows=data.rows.heaviest(_MAX_TERMS))
    random = np.random.default_rng(seed)
    vectors = _Vectors(data.num_features, data.num_labels, units, random)
    labeled = np.flatnonzero(np.diff(data.labels.splits))
    if among is not None:
        labeled = np.intersect1d(labeled, among)
    num_steps, done = -(-len(labeled) // _BATCH) * epochs, 0
    step = tf.function(vectors.step, input_signature=_STEP)
    for epoch in range(epochs):
        losses = []
        for batch in _batches(data, random.permutation(labeled), random):
            rate = (1 + np.cos(np.pi * done / num_steps)) / 2
            losses.append(step(rate, *batch))
            done += 1
        if say is not None:
            loss = np.mean(losses) if losses else 0.0
            say(f"embeddings: loss {loss:.4f}, epoch {epoch + 1}")
    layer = TextEmbedding(
        data.num_features, data.num_labels, units, first, name="embeddings"
    )
    layer.terms.assign(vectors.terms)
    layer.tags.assign(_SCALE * tf.math.l2_normalize(vectors.classes, axis=1))
    return layer


def _batches(data: LabeledRows, order, random) -> Iterator[tuple[Any, ...]]:
    """What steps read of the texts of `order`, which have labels: see `_STEP`.

    Offsets are added to the logits: a drawn class stands for others.
    """
    # Texts of several labels: a batch has enough of them. Frequent ones are
    # pushed down, but the linear scores know them well.
    is_enough = 2 * _labels_of_batch(data) > _NUM_SAMPLED
    for begin in range(0, len(order), _BATCH):
        part = data.take(order[begin : begin + _BATCH])
        kept = random.random(len(part.rows.ids), np.float32) >= _DROPOUT
        terms, columns = np.unique(part.rows.ids[kept], return_inverse=True)
        owners, ids = part.labels.row_ids(), part.labels.ids
        own = np.unique(ids)
        is_full = data.num_labels <= _MAX_FULL
        classes = np.arange(data.num_labels) if is_full else own
        offsets = np.zeros(len(classes), np.float32)
        if not (is_full or is_enough) and len(own) < _NUM_SAMPLED:
            drawn = random.integers(
                data.num_labels, size=_NUM_SAMPLED - len(own)
            )
            drawn = np.setdiff1d(drawn, own)
            others = data.num_labels - len(own)
            log_weight = np.log(others / max(len(drawn), 1))
            classes = np.union1d(own, drawn)
            is_drawn = np.isin(classes, drawn)
            offsets = np.where(is_drawn, log_weight, 0).astype(np.float32)
        targets = np.zeros((len(part.rows), len(classes)), np.float32)
        counts = np.diff(part.labels.splits)
        targets[owners, np.searchsorted(classes, ids)] = 1 / counts[owners]
        places = np.stack([part.rows.row_ids()[kept], columns], axis=1)
        values = part.rows.values[kept]
        yield terms, places, values, classes, offsets, targets


# Row and place in `terms` of each entry are in `places`; terms and classes are
# distinct.
_STEP = (
    tf.TensorSpec([], tf.float64, "rate"),
    tf.TensorSpec([None], tf.int64, "terms"),
    tf.TensorSpec([None, 2], tf.int64, "places"),
    tf.TensorSpec([None], tf.float32, "values"),
    tf.TensorSpec([None], tf.int64, "classes"),
    tf.TensorSpec([None], tf.float32, "offsets"),
    tf.TensorSpec([None, None], tf.float32, "targets"),
)


class _Vectors:
    """Vectors of terms and classes in training."""

    def __init__(self, num_terms, num_classes, units, random):
        self.terms, self.classes = (
            tf.Variable(
                units**-0.5 * random.standard_normal((n, units), np.float32),
                trainable=False,
            )
            for n in (num_terms, num_classes)
        )
        # Adagrad's sums of squares.
        self._term_sums, self._class_sums = (
            tf.Variable(tf.zeros_like(x), trainable=False)
            for x in (self.terms, self.classes)
        )
        # Of the mean squares of the classes' gradients: their sum and number.
        self._class_squares = tf.Variable(tf.zeros(2), trainable=False)

    def step(self, rate, terms, places, values, classes, offsets, targets):
        """One step of Adagrad; the loss. Arguments are of `_STEP`."""
        of_terms = tf.gather(self.terms, terms)
        of_classes = tf.gather(self.classes, classes)
        with tf.GradientTape() as tape:
            tape.watch([of_terms, of_classes])
            size = tf.shape(targets, tf.int64)[0]
            sums = sparse_product(places, values, size, of_terms)
            cosines = tf.matmul(
                tf.math.l2_normalize(sums, axis=1),
                tf.math.l2_normalize(of_classes, axis=1),
                transpose_b=True,
            )
            losses = tf.nn.softmax_cross_entropy_with_logits(
                targets, _SCALE * cosines + offsets
            )
            loss = tf.reduce_mean(losses)
        term_grads, class_grads = tape.gradient(loss, [of_terms, of_classes])
        square = tf.reduce_mean(class_grads**2)
        self._class_squares.assign_add(tf.stack([square, 1.0]))
        square = self._class_squares[0] / self._class_squares[1]
        _adagrad(
            self.classes, self._class_sums, classes, class_grads,
            _CLASS_RATE * rate, _CLASS_OFFSET * square,
        )  # fmt: skip
        _adagrad(
            self.terms, self._term_sums, terms, term_grads,
            _TERM_RATE * rate, _TERM_OFFSET * tf.reduce_mean(term_grads**2),
        )  # fmt: skip
        return loss


def _adagrad(variable, sums, ids, grads, rate, offset):
    row_update.adagrad_update(
        variable.handle,
        sums.handle,
        ids,
        grads,
        learning_rate=rate,
        decay=tf.constant(0.0, tf.float64),
        # A gradient of 0 moves nothing.
        offset=tf.maximum(offset, 1e-30),
    )
