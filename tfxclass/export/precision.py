"""How far answers may be from a model's by the rounding of its encoder.

Two programs of the same ops round a float32 encoder nearly alike. In 16 bits
they do not: what one keeps in a register the other writes to memory. How much
that moves an answer depends on the head and on its rows, so it is measured:
the head answers to the features with some noise of the size of the rounding.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.inference.thresholds import above
from tfxclass.keras_internals import flat_layers
from tfxclass.layers.output_head import flatten

# The distance of 1 to the next number; of int8 products, of their steps.
_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "int8": 2.0**-7}
# Answers to so many noisy features are looked at.
_TIMES = 4
# The greatest of these is not the greatest there is.
_SAFETY = 4.0

Find = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def feature_error(encoder: keras.Model) -> float:
    """The rounding of features over their size; 0 of a float32 encoder.

    The roundings of layers add up as the steps of a random walk do.
    """
    errors = [_layer_error(layer) for layer in flat_layers(encoder)]
    return float(np.sqrt(np.sum(np.square(errors))))


def _layer_error(layer):
    policy = layer.dtype_policy
    if getattr(policy, "quantization_mode", None) is not None:
        return _EPSILON["int8"]
    return _EPSILON.get(policy.compute_dtype, 0.0)


class Expected(NamedTuple):
    """Answers of a model, and how near to them an export has to be.

    Attributes:
        answers: dict of arrays, `ids` and `scores`.
        error: float or float32 `[rows, k]`, of the scores.
        compared: bool `[rows, k]`, which answers are compared.
    """

    answers: dict[str, np.ndarray]
    error: Any
    compared: np.ndarray


def expect(
    find: Find,
    features: tf.Tensor,
    error: float,
    activation: str | None,
    threshold: Any = None,
) -> Expected:
    """`Expected` of a search.

    Args:
        find: function of features that returns `(ids, scores)`.
        features: float `[..., dim]`.
        error: what `feature_error` returned.
        activation: of the scores; None where they are logits.
        threshold: least score of an answer: float, float32 `[num_classes]`,
            or None.
    """
    ids, scores = find(features)
    compared, allowed = is_finite(features), 0.0
    if error:
        allowed = _score_error(find, features, error, scores, activation)
        compared = compared & ~_is_near(threshold, ids, scores, allowed)
    ids, scores = (x.numpy() for x in above(threshold, ids, scores))
    return Expected({"ids": ids, "scores": scores}, allowed, compared)


def is_finite(features: tf.Tensor) -> np.ndarray:
    """Which rows can be compared, bool `[rows, 1]`.

    An encoder may have no answer to a row, as the mean of no words.

    Raises:
        ValueError: no row can.
    """
    found = np.isfinite(flatten(features)).all(axis=1, keepdims=True)
    if not found.any():
        raise ValueError(
            "The features of all example rows are NaN or infinite, so that no "
            "answer can be compared with the model's. Give rows of real data "
            "as `example_inputs`, or look for NaN in the model's weights."
        )
    return found


def noise(features: tf.Tensor, error: float) -> np.ndarray:
    """How far features may be rounded, float32 `[rows, dim]`."""
    rows = np.nan_to_num(flatten(features).numpy())
    size = np.sqrt(np.mean(np.square(rows), axis=1, keepdims=True))
    return error * (np.abs(rows) + size)


def _score_error(find, features, error, scores, activation):
    """`[rows, k]`, from the answers to features with noise."""
    scores, rng = _rows(scores), np.random.default_rng(0)
    scale, most = noise(features, error), np.zeros([len(scores), 1])
    for _ in range(_TIMES):
        moved = scale * rng.standard_normal(scale.shape)
        moved = tf.reshape(tf.cast(moved, tf.float32), tf.shape(features))
        found = _rows(find(tf.cast(features, tf.float32) + moved)[1])
        apart = np.abs(found - scores)
        if _is_relative(activation):
            apart = apart / np.maximum(np.abs(scores), 1e-30)
        most = np.maximum(most, apart.max(axis=1, keepdims=True))
    most = _SAFETY * most
    return most * np.abs(scores) if _is_relative(activation) else most


def _is_relative(activation):
    # A sparsemax is a difference of logits.
    return activation in ("softmax", "sigmoid")


def _is_near(threshold, ids, scores, allowed):
    """Which scores may be on either side of the threshold."""
    if threshold is None:
        return False
    if not np.isscalar(threshold):
        threshold = np.asarray(threshold)[np.maximum(_rows(ids), 0)]
    return np.abs(_rows(scores) - threshold) <= allowed


def _rows(values):
    values = values.numpy()
    return values.reshape(-1, values.shape[-1])
