"""Embeddings of a text's terms and of the tags, compared by cosine."""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.layers.sparse_dense import sparse_product
from tfxclass.ops import library
from tfxclass.types import Config
from tfxclass.types import Shape
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.text_features import add_weight

# The shortest embedding that is worth its time.
_MIN_UNITS = 64
# A small scale acts like label smoothing. Where texts have one label, a greater
# one is right more often (titles of jobs and industries, names; not verses).
_SCALE, _SINGLE_SCALE = 8.0, 12.0
_DROPOUT = 0.2
# Adagrad's rates, and its offsets relative to the mean square of gradients.
_RATES = {"term_rate": 0.05, "label_rate": 0.3}
_OFFSETS = {"term_offset": 4.0, "label_offset": 10.0}
_BATCH = 256
# Labels up to which a step computes all of them; labels of a step otherwise.
_MAX_FULL, _NUM_SAMPLED = 1024, 512
#: Terms of a text that are learned from: the heaviest.
MAX_TERMS = 128
# Passes over the texts; fewer than the least are not worth their time. Few
# texts have more passes, so that there are enough steps, up to the most.
_MIN_EPOCHS, _MAX_EPOCHS, _MIN_STEPS = 2, 20, 100
# CPU seconds of a pass for a number of an embedding: of a term of a text, and
# of a sampled class for a text (measured). What all passes may take.
_TERM_SECONDS, _CLASS_SECONDS = 1.3e-9, 1.5e-10
_MAX_SECONDS = 120.0
# Of the terms' embeddings: a model stays well below 500 MB.
_MAX_WEIGHTS = 50_000_000
# GB of a number of a term's vector and of what updates it; and of a term of a
# text, of which a process holds several copies (measured).
_VECTOR_GB, _ENTRY_GB = 8e-9, 4e-8


@keras.saving.register_keras_serializable("tfxclass")
class TextEmbedding(keras.layers.Layer):
    """Log of the softmax of a text's cosines with all tags, times a scale.

    A text is the sum of the vectors of its terms. Terms with the ids `first` to
    `first + num_terms` have vectors, of length `units`; others are ignored. It
    is called with ids, int64 `[batch, n]`, and values, float32; where they are
    0 there is no term. The result is float32 `[batch, num_labels]`.
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
        self.num_terms, self.num_labels = num_terms, num_labels
        self.units, self.first = units, first
        self.supports_jit = False
        self.terms = add_weight(self, "terms", (num_terms, units))
        self.tags = add_weight(self, "tags", (num_labels, units))
        self.built = True

    def call(self, ids: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        sums = self.sums(ids, values)
        return log_cosines(sums, tf.convert_to_tensor(self.tags))

    def sums(self, ids: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """The sum of the vectors of a text's terms, `[batch, units]`."""
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
        return sums[:size]

    def directions(self) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of the terms, and of the tags with norm 1."""
        return self.terms.numpy(), tf.math.l2_normalize(self.tags, 1).numpy()

    def contributions(
        self, ids: tf.Tensor, values: tf.Tensor, tags: tf.Tensor
    ) -> tf.Tensor:
        """What each term adds to the scaled cosine of its row's tag."""
        weights, vectors, sums = self.dense(ids, values)
        squares = tf.reduce_sum(sums**2, axis=1, keepdims=True)
        of_tags = tf.gather(tf.convert_to_tensor(self.tags), tags)
        products = tf.linalg.matvec(vectors, of_tags)
        return weights * products / tf.sqrt(tf.maximum(squares, 1e-12))

    def dense(
        self, ids: tf.Tensor, values: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Weights `[batch, n]`, vectors `[batch, n, units]` and their sums."""
        places = ids - self.first
        is_own = (places >= 0) & (places < self.num_terms)
        vectors = tf.gather(
            tf.convert_to_tensor(self.terms), tf.where(is_own, places, 0)
        )
        weights = tf.where(is_own, values, 0.0)
        sums = tf.matmul(weights[:, tf.newaxis], vectors)
        return weights, vectors, tf.squeeze(sums, 1)

    def compute_output_shape(
        self, ids_shape: Shape, values_shape: Shape
    ) -> Shape:
        return (ids_shape[0], self.num_labels)

    def get_config(self) -> Config:
        names = "num_terms", "num_labels", "units", "first"
        return super().get_config() | {x: getattr(self, x) for x in names}


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
    #: What vectors and texts take at the peak, roughly.
    gigabytes: float


def plan(
    data: LabeledRows,
    most: int,
    passes: int,
    units: int | None = None,
    is_needed: bool = False,
) -> Plan:
    """The `Plan` of embeddings of some texts, of `MAX_TERMS` terms at most.

    There are at most `most` units, where `units` does not say how many, and
    `passes` or, of few texts, more. Without units, and unless they are needed,
    there are none where they would take too long or be too large.
    """
    rows = data.rows
    least = _MIN_EPOCHS if units is not None or is_needed else 0
    if units is None:
        units = min(most, _MAX_WEIGHTS // data.num_features)
        if units < _MIN_UNITS:
            units = _MIN_UNITS if is_needed else 0
    sampled = max(_labels_of_batch(data), _NUM_SAMPLED)
    classes = len(rows) * min(sampled, data.num_labels)
    entries = len(rows.ids)
    seconds = units * (_TERM_SECONDS * entries + _CLASS_SECONDS * classes)
    steps = max(len(rows) // _BATCH, 1)
    passes = max(passes, min(_MIN_STEPS // steps, _MAX_EPOCHS))
    passes = int(min(_MAX_SECONDS / max(seconds, 1e-9), passes))
    passes = max(passes if passes >= _MIN_EPOCHS else 0, least)
    gigabytes = _VECTOR_GB * units * data.num_features + _ENTRY_GB * entries
    units = int(units) if passes else 0
    return Plan(units, passes, passes * seconds, gigabytes)


def _labels_of_batch(data):
    return int(_BATCH * len(data.labels.ids) / max(len(data.labels), 1))


def train(
    data: LabeledRows,
    units: int,
    epochs: int,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
    first: int = 0,
    among: np.ndarray | None = None,
    start: tuple[np.ndarray, np.ndarray] | None = None,
    scale: float | None = None,
    by_names: np.ndarray | None = None,
) -> TextEmbedding:
    """A trained `TextEmbedding`, by a softmax of cosines.

    With over 1,024 labels, a step computes the labels of its texts. If these
    are few, labels that are drawn at random fill up a sample of 512. A text
    with several labels has each of them with the same probability. Adagrad
    updates the vectors that a step reads.

    `among` are the texts that are learned from, by default all. `say` is told
    how far it is, and `first` is of the layer. `start` are vectors of terms and
    tags to begin with, by default random. `scale` multiplies the cosines, by
    default 12 if texts have one label each, and 8 if not. Labels where
    `by_names`, bool `[num_labels]`, is true have no other texts than their
    names. They get the direction of these instead of a trained one, which the
    texts of all other labels would have pushed away.

    References:
        Joulin et al., Bag of Tricks for Efficient Text Classification, EACL
        2017, of sums of embeddings. Here classes are compared by cosine.
        Duchi, Hazan and Singer, Adaptive Subgradient Methods, JMLR 2011.
    """
    rows = data.rows.heaviest(MAX_TERMS)
    random = np.random.default_rng(seed)
    every = np.flatnonzero(np.diff(data.labels.splits))
    labeled = every if among is None else np.intersect1d(every, among)
    sizes = data.num_features, data.num_labels
    begin = start or [random_vectors(n, units, random) for n in sizes]
    if scale is None:
        is_single = bool(np.all(np.diff(data.labels.splits) <= 1))
        scale = _SINGLE_SCALE if is_single else _SCALE
    with tf.device("CPU"):
        terms, tags = (tf.Variable(x, trainable=False) for x in begin)
        # Adagrad's sums, one for each vector. Then the sum of the mean squares
        # of all gradients and their number, of both.
        term_sums, tag_sums, squares = (
            tf.Variable(x, trainable=False)
            for x in (*map(tf.zeros, sizes), tf.zeros(4, tf.float64))
        )
        variables = terms, term_sums, tags, tag_sums, squares
        texts = [tf.constant(x) for x in (*rows, *data.labels[:2])]
        texts[1] = tf.cast(texts[1], tf.int32)
        del rows  # The ops read copies, which may be gigabytes.
        # Of several labels, frequent ones are pushed down; the linear scores
        # know them well.
        is_enough = 2 * _labels_of_batch(data) > _NUM_SAMPLED
        is_full = data.num_labels <= _MAX_FULL
        sampled = _MAX_FULL if is_full else 1 if is_enough else _NUM_SAMPLED
        steps = -(-len(labeled) // _BATCH)
        for epoch in range(epochs):
            loss = library.ops.tfxclass_train_text_embeddings(
                *(x.handle for x in variables), *texts,
                random.permutation(labeled),
                first_step=epoch * steps, num_steps=max(epochs * steps, 1),
                seed=seed, batch_size=_BATCH, num_sampled=sampled,
                scale=scale, dropout=_DROPOUT, **_RATES, **_OFFSETS,
            )  # fmt: skip
            if say is not None:
                say(f"embeddings: loss {loss:.4f}, epoch {epoch + 1}")
    layer = TextEmbedding(
        data.num_features, data.num_labels, units, first, name="text-embedding"
    )
    layer.terms.assign(terms)
    directions = tf.math.l2_normalize(tags, axis=1)
    if by_names is not None:
        of_names = data.labels.row_ids()[by_names[data.labels.ids]]
        names = data.take(np.intersect1d(of_names, labeled))
        found = _directions(layer, names)
        is_there = by_names & np.any(found, axis=1)
        directions = tf.where(is_there[:, np.newaxis], found, directions)
    layer.tags.assign(scale * directions)
    return layer


def _directions(layer, data):
    """The mean direction of the texts of each label, `[num_labels, units]`."""
    found = np.zeros((data.num_labels, layer.units), np.float32)
    for begin in range(0, len(data.rows), _BATCH):
        end = min(begin + _BATCH, len(data.rows))
        part = data.take(np.arange(begin, end))
        ids, values = part.rows.padded()
        sums = layer.sums(ids + layer.first, values)
        units = tf.math.l2_normalize(sums, axis=1).numpy()
        np.add.at(found, part.labels.ids, units[part.labels.row_ids()])
    return tf.math.l2_normalize(found, axis=1).numpy()


def random_vectors(
    count: int, units: int, random: np.random.Generator
) -> np.ndarray:
    """What the vectors of terms and tags begin with, float32."""
    return units**-0.5 * random.standard_normal((count, units), np.float32)
