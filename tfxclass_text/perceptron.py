"""A network with one wide hidden layer on a text's terms: its training."""

from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.layers.class_head import FullSoftmax
from tfxclass.layers.sparse_dense import SparseDense
from tfxclass.optimizers import LazyAdam
from tfxclass_text.embeddings import training_batches
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import SparseRows

#: Units of the hidden layer.
UNITS = 512
# Best on held-out texts of Delicious, see docs/tagging.md. Norms of texts are
# about 1: ten times that lets the weights of rare terms move.
_SCALE = 10.0
_STDDEV = 0.05
_INPUT_DROPOUT, _DROPOUT = 0.2, 0.5
_RATE, _LAST = 2e-3, 0.02
_BATCH = 128
# Passes over the texts; fewer than the least are not worth their time.
_MAX_EPOCHS, MIN_EPOCHS = 24, 8
# CPU seconds of a pass for a text, label and unit, and for a term and unit
# (measured), and what all passes may take.
_SECONDS, _TERM_SECONDS = 1.6e-10, 8e-10
_MAX_SECONDS = 30.0
# Of the first layer: a model stays well below 500 MB.
_MAX_WEIGHTS = 50_000_000
_ANSWERED = 256


class Perceptron(NamedTuple):
    """Trained layers: terms to hidden units, and those to logits.

    Attributes:
        hidden: `tfxclass.layers.SparseDense`.
        tags: `keras.layers.Dense`.
    """

    hidden: SparseDense
    tags: keras.layers.Dense

    def logits(self, ids: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        """float32 `[batch, num_labels]`.

        Args:
            ids: int64 `[batch, n]`.
            values: float32 `[batch, n]`; where they are 0 there is no feature.
        """
        return self.tags(self.hidden(ids, values))

    def logits_of(self, rows: SparseRows, labels: np.ndarray) -> np.ndarray:
        """float32 `[rows, labels]`, for some labels."""
        found = []
        for begin in range(0, len(rows), _ANSWERED):
            part = np.arange(begin, min(begin + _ANSWERED, len(rows)))
            logits = self.logits(*rows.take(part).padded()).numpy()
            found.append(logits[:, labels])
        return np.concatenate(found)


def num_epochs(data: LabeledRows, units: int = UNITS) -> int:
    """Passes that there is time for, 0 where they would be too few.

    Args:
        data: `LabeledRows`, of the texts.
        units: int, of the hidden layer.
    """
    seconds = seconds_of_epoch(data, units)
    epochs = int(min(_MAX_SECONDS / seconds, _MAX_EPOCHS))
    is_small = data.num_features * units <= _MAX_WEIGHTS
    return epochs if is_small and epochs >= MIN_EPOCHS else 0


def seconds_of_epoch(data: LabeledRows, units: int) -> float:
    """CPU seconds of a pass over the texts, roughly.

    Args:
        data: `LabeledRows`, of the texts.
        units: int, of the hidden layer.
    """
    pairs = _SECONDS * len(data.rows) * data.num_labels
    return units * (pairs + _TERM_SECONDS * len(data.rows.ids))


def train(
    data: LabeledRows,
    units: int = UNITS,
    epochs: int = _MAX_EPOCHS,
    single_label: bool = False,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> Perceptron:
    """A trained `Perceptron`: a hidden layer of GELU, dropout before and after.

    Args:
        data: `LabeledRows`, of the texts.
        units: int, of the hidden layer.
        epochs: int, passes over the texts.
        single_label: whether a text has one label. The loss is then a
            softmax's, otherwise one vs. rest.
        seed: int.
        say: what is told how far it is.

    References:
        Galke and Scherp, Bag-of-Words vs. Graph vs. Sequence in Text
        Classification: Questioning the Necessity of Text-Graphs and the
        Surprising Strength of a Wide MLP, ACL 2022.
    """
    rows, labels, num_features, num_labels = data
    random = np.random.default_rng(seed)
    seeds = [int(x) for x in random.integers(1 << 31, size=5)]
    ids = keras.Input((None,), dtype="int64", name="ids")
    values = keras.Input((None,), name="values")
    kept = keras.layers.Dropout(_INPUT_DROPOUT, seed=seeds[0])(values)
    first = SparseDense(
        num_features, units, "gelu",
        kernel_initializer=_normal(_STDDEV, seeds[1]),
    )  # fmt: skip
    hidden = first(ids, _SCALE * kept)
    hidden = keras.layers.Dropout(_DROPOUT, seed=seeds[2])(hidden)
    head = FullSoftmax(
        num_labels, use_bias=True,
        loss="softmax" if single_label else "sigmoid",
        kernel_initializer=_normal(units**-0.5, seeds[3]),
    )  # fmt: skip
    model = keras.Model([ids, values], head(hidden))
    steps = -(-len(rows) // _BATCH) * epochs
    rate = keras.optimizers.schedules.PolynomialDecay(
        _RATE, steps, _LAST * _RATE
    )
    model.compile(LazyAdam(rate), loss=head.loss)
    batches = training_batches(rows, labels, _BATCH, seeds[4])
    model.fit(
        batches, epochs=epochs, verbose=0,
        callbacks=[_told(say, epochs)], shuffle=False,
    )  # fmt: skip
    return _trained(first, head)


def _normal(stddev, seed):
    return keras.initializers.RandomNormal(stddev=stddev, seed=seed)


def _told(say, epochs):
    every = max(epochs // 4, 1)

    def tell(epoch, logs):
        if say is not None and (epoch + 1) % every == 0:
            say(f"perceptron: loss {logs['loss']:.4f}, epoch {epoch + 1}")

    return keras.callbacks.LambdaCallback(on_epoch_end=tell)


def _trained(first, head):
    """Layers for answers: of unscaled terms, to logits of all labels."""
    hidden = SparseDense(
        first.num_features, first.units, "gelu", name="hidden", trainable=False
    )
    hidden.build((None, None), (None, None))
    hidden.kernel.assign(_SCALE * first.kernel)
    hidden.bias.assign(first.bias)
    tags = keras.layers.Dense(
        head.num_classes, name="hidden_tags", trainable=False
    )
    tags.build((None, first.units))
    tags.set_weights([np.transpose(head.kernel), np.asarray(head.bias)])
    return Perceptron(hidden, tags)
