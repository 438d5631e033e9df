"""Embeddings of a text's terms and of the tags, compared by cosine."""

from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.layers.class_head import FullSoftmax
from tfxclass.layers.cosine import Cosine
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.layers.sparse_dense import SparseDense
from tfxclass.optimizers import HeadAdam
from tfxclass.samplers.batch import BatchSampler
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import SparseRows

#: Length of an embedding, at most and at least.
UNITS, _MIN_UNITS = 256, 64
# A small scale acts like label smoothing.
_SCALE = 8.0
_DROPOUT = 0.2
_RATE, _EMBEDDING_RATE = 1e-3, 50.0
_BATCH = 256
# Labels up to which a step computes all of them; labels of a step otherwise.
_MAX_FULL, _NUM_SAMPLED = 1024, 512
#: Terms of a text that are learned from: the heaviest.
MAX_TERMS = 128
# Passes over the texts; fewer than the least are not worth their time.
_MAX_EPOCHS, MIN_EPOCHS = 6, 2
# CPU seconds of a pass for a number of an embedding: of a term of a text, and
# of a sampled class for a text (measured). What all passes may take.
_TERM_SECONDS, _CLASS_SECONDS = 3e-9, 1.2e-10
_MAX_SECONDS = 120.0
# Of the terms' embeddings: a model stays well below 500 MB.
_MAX_WEIGHTS = 50_000_000
_ANSWERED = 256


class TextEmbedding(NamedTuple):
    """Trained layers: the sum of the embeddings of terms, and class vectors.

    Attributes:
        terms: `tfxclass.layers.SparseDense`.
        tags: `keras.layers.Dense`, of class vectors with norm `_SCALE`.
    """

    terms: SparseDense
    tags: keras.layers.Dense

    def log_probabilities(self, ids: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """Log of the softmax over all labels, float32 `[batch, num_labels]`.

        Args:
            ids: int64 `[batch, n]`.
            values: float32 `[batch, n]`; where they are 0 there is no feature.
        """
        unit = keras.ops.normalize(self.terms(ids, values), axis=1)
        return keras.ops.log_softmax(self.tags(unit))

    def log_probabilities_of(
        self, rows: SparseRows, labels: np.ndarray
    ) -> np.ndarray:
        """float32 `[rows, labels]`, for some labels."""
        found = []
        for begin in range(0, len(rows), _ANSWERED):
            part = np.arange(begin, min(begin + _ANSWERED, len(rows)))
            scores = self.log_probabilities(*rows.take(part).padded())
            found.append(scores.numpy()[:, labels])
        return np.concatenate(found)


def num_units(data: LabeledRows) -> int:
    """Length of an embedding, 0 where there are too many terms for any.

    Args:
        data: `LabeledRows`, of the texts.
    """
    units = min(UNITS, _MAX_WEIGHTS // data.num_features)
    return units if units >= _MIN_UNITS else 0


def num_epochs(data: LabeledRows, units: int) -> int:
    """Passes that there is time for, 0 where they would be too few.

    Args:
        data: `LabeledRows`, of the texts.
        units: int, length of an embedding.
    """
    seconds = seconds_of_epoch(data, units)
    epochs = int(min(_MAX_SECONDS / max(seconds, 1e-9), _MAX_EPOCHS))
    return epochs if epochs >= MIN_EPOCHS else 0


def seconds_of_epoch(data: LabeledRows, units: int) -> float:
    """CPU seconds of a pass over the texts, roughly.

    Args:
        data: `LabeledRows`, of the texts.
        units: int, length of an embedding.
    """
    rows = data.rows
    terms = np.minimum(np.diff(rows.splits), MAX_TERMS).sum()
    sampled = max(_labels_of_batch(data), _NUM_SAMPLED)
    classes = len(rows) * min(sampled, data.num_labels)
    return units * (_TERM_SECONDS * terms + _CLASS_SECONDS * classes)


def _labels_of_batch(data):
    return int(_BATCH * len(data.labels.ids) / max(len(data.labels), 1))


def _head(data, seed, **options):
    """A head that computes all labels if they are few, or some of them."""
    if data.num_labels <= _MAX_FULL:
        return FullSoftmax(data.num_labels, **options)
    sampler, num_sampled = "uniform", _NUM_SAMPLED
    if 2 * _labels_of_batch(data) > _NUM_SAMPLED:
        # Texts have several labels: a batch has enough of them. Frequent ones
        # are pushed down, but the linear scores know them well.
        sampler = BatchSampler(correct_negatives=False, seed=seed)
        num_sampled = None
    return SampledSoftmax(
        data.num_labels, num_sampled, sampler, seed=seed, **options
    )


def train(
    data: LabeledRows,
    units: int = UNITS,
    epochs: int = _MAX_EPOCHS,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> TextEmbedding:
    """A trained `TextEmbedding`, by a softmax of cosines.

    With over 1,024 labels, a step computes a sample.

    A text with several labels has each of them with the same probability.

    Args:
        data: `LabeledRows`, of the texts.
        units: int, length of an embedding.
        epochs: int, passes over the texts.
        seed: int.
        say: what is told how far it is.

    References:
        Joulin et al., Bag of Tricks for Efficient Text Classification, EACL
        2017, of sums of embeddings. Here classes are compared by cosine.
    """
    rows, labels, num_features, num_labels = data
    rows = rows.heaviest(MAX_TERMS)
    random = np.random.default_rng(seed)
    seeds = [int(x) for x in random.integers(1 << 31, size=5)]
    ids = keras.Input((None,), dtype="int64", name="ids")
    values = keras.Input((None,), name="values")
    kept = keras.layers.Dropout(_DROPOUT, seed=seeds[0])(values)
    terms = SparseDense(
        num_features, units, use_bias=False, name="embedded_terms",
        kernel_initializer=_normal(units, seeds[1]),
    )  # fmt: skip
    options = {
        "similarity": Cosine(scale=_SCALE),
        "kernel_initializer": _normal(units, seeds[2]),
    }
    head = _head(data, seeds[3], **options)
    model = keras.Model([ids, values], head(terms(ids, kept)))
    steps = -(-len(rows) // _BATCH) * epochs
    rate = keras.optimizers.schedules.CosineDecay(_RATE, steps)
    optimizer = HeadAdam(rate, embedding_rate=_EMBEDDING_RATE)
    model.compile(optimizer, loss=head.loss)
    batches = training_batches(rows, labels, _BATCH, seeds[4])
    model.fit(
        batches, epochs=epochs, verbose=0,
        callbacks=[_told(say)], shuffle=False,
    )  # fmt: skip
    return _trained(terms, head)


def _normal(units, seed):
    return keras.initializers.RandomNormal(stddev=units**-0.5, seed=seed)


def _told(say):
    def tell(epoch, logs):
        if say is not None:
            say(f"embeddings: loss {logs['loss']:.4f}, epoch {epoch + 1}")

    return keras.callbacks.LambdaCallback(on_epoch_end=tell)


def _trained(terms, head):
    """Layers for answers, without the layers that trained them."""
    terms.trainable = False
    tags = keras.layers.Dense(
        head.num_classes, use_bias=False, name="embedded_tags", trainable=False
    )
    tags.build((None, terms.units))
    vectors = tf.math.l2_normalize(tf.convert_to_tensor(head.kernel), axis=1)
    tags.set_weights([_SCALE * tf.transpose(vectors).numpy()])
    return TextEmbedding(terms, tags)


def training_batches(
    rows: SparseRows, labels: SparseRows, batch_size: int, seed: int
) -> tf.data.Dataset:
    """Shuffled batches `((ids, values), labels)`.

    Args:
        rows: `SparseRows`, the terms of each text.
        labels: `SparseRows`, ids of the labels of each text.
        batch_size: int, texts of a batch.
        seed: int, of the order.

    Returns:
        A dataset. `ids` int64 and `values` float32 are `[batch, n]`, padded
        with value 0; `labels` are int64 `[batch, m]`, padded with -1.
    """
    lists = [
        tf.RaggedTensor.from_row_splits(flat, splits)
        for splits, flat in (
            (rows.splits, rows.ids),
            (rows.splits, rows.values),
            (labels.splits, labels.ids),
        )
    ]

    def padded(ids, values, labels):
        given = ids.to_tensor(), values.to_tensor()
        return given, labels.to_tensor(default_value=-1)

    data = tf.data.Dataset.from_tensor_slices(tuple(lists))
    data = data.shuffle(len(rows), seed=seed).batch(batch_size)
    return data.map(padded).prefetch(2)
