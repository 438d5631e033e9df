"""Probabilities of a linear classifier, with a network's logits added."""

import itertools
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.types import Config
from tfxclass.types import Shape
from tfxclass_text import likelihood

# The logits of 0 and 1 are infinite.
_LEAST = 1e-7
# What logits of a network are tried with, where a row has one label.
_LINEAR = (0.25, 0.35, 0.5, 0.75, 1.0, 1.5)
_DENSE = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
# Pairs of row and label for each true one that factors are fitted to.
_PAIRS = 5


@keras.saving.register_keras_serializable("tfxclass")
class MixedScores(keras.layers.Layer):
    """Wide and deep: probabilities of linear scores and a network's together.

    With factors (a, b, c): `sigmoid(a logit(p) + b z + c)`, and where a row has
    one label `softmax(a log p + b z)`. Stock ops; `Tagger` makes it.

    Args:
        activation: `"sigmoid"` or `"softmax"`.
        **kwargs: `keras.layers.Layer`'s arguments.

    Call arguments:
        probabilities: float32 `[batch, num_labels]`, p.
        logits: float32 `[batch, num_labels]`, z.

    Output shape:
        `[batch, num_labels]`.

    References:
        Cheng et al., Wide & Deep Learning for Recommender Systems, 2016.
    """

    def __init__(self, activation: str = "sigmoid", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_choice("activation", activation, ("sigmoid", "softmax"))
        self.activation = activation
        self.factors = self.add_weight(
            name="factors",
            shape=(3,),
            initializer="zeros",
            dtype="float32",
            autocast=False,
            trainable=False,
        )
        self.built = True

    def call(self, probabilities: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        a, b, c = tf.unstack(tf.convert_to_tensor(self.factors))
        p = tf.clip_by_value(probabilities, _LEAST, 1 - _LEAST)
        z = tf.cast(logits, tf.float32)
        if self.activation == "softmax":
            return tf.nn.softmax(a * tf.math.log(p) + b * z)
        # No log1p: ONNX has none.
        return tf.sigmoid(a * (tf.math.log(p) - tf.math.log(1 - p)) + b * z + c)

    def compute_output_shape(
        self, probabilities_shape: Shape, logits_shape: Shape
    ) -> Shape:
        return probabilities_shape

    def get_config(self) -> Config:
        return {**super().get_config(), "activation": self.activation}


def build_mixed_scores(
    probabilities: np.ndarray,
    logits: np.ndarray,
    truth: np.ndarray,
    single_label: bool,
    name: str | None = None,
) -> MixedScores:
    """A `MixedScores` with `fit_factors`."""
    layer = MixedScores("softmax" if single_label else "sigmoid", name=name)
    layer.factors.assign(
        fit_factors(probabilities, logits, truth, single_label)
    )
    return layer


def fit_factors(
    probabilities: np.ndarray,
    logits: np.ndarray,
    truth: np.ndarray,
    single_label: bool,
) -> np.ndarray:
    """The likeliest factors of a `MixedScores`, float32 `[3]`.

    Args:
        probabilities: float32 `[rows, labels]`, held out.
        logits: float32 `[rows, labels]`, held out.
        truth: bool `[rows, labels]`.
        single_label: whether a row has one label.
    """
    p = np.clip(probabilities, _LEAST, 1 - _LEAST)
    if single_label:
        return _fit_softmax(np.log(p), logits, truth)
    return _fit_sigmoid(np.log(p) - np.log1p(-p), logits, truth)


def _fit_softmax(log_p, logits, truth):
    rows = truth.any(axis=1)
    if not rows.any():
        return np.array([1.0, 0.0, 0.0], np.float32)
    log_p, logits, truth = log_p[rows], logits[rows], truth[rows]
    a, b = min(
        itertools.product(_LINEAR, _DENSE),
        key=lambda pair: likelihood.softmax_loss(
            pair[0] * log_p + pair[1] * logits, truth
        ),
    )
    return np.array([a, b, 0.0], np.float32)


def _fit_sigmoid(wide, logits, truth):
    """Logistic regression on the pairs that either takes for likely."""
    hits, scores = truth.ravel(), [wide.ravel(), logits.ravel()]
    count = min(hits.size, _PAIRS * max(np.count_nonzero(hits), 1))
    kept = np.union1d(*(np.argpartition(-x, count - 1)[:count] for x in scores))
    # All pairs in float64 would be gigabytes.
    x = np.stack([*(x[kept] for x in scores), np.ones(len(kept))], axis=1)
    fit = likelihood.fit_logistic(
        x.astype(np.float64), hits[kept], [1.0, 0.0, 0.0], 1e-3
    )
    return fit.astype(np.float32)
