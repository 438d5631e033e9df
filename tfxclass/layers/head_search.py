"""The best classes and the scores of any head, live and exported.

A head searches float32 features `[rows, dim]`. Here are the checks before it,
and the leading dimensions after it.
"""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_k
from tfxclass.core.flat_features import flatten
from tfxclass.core.flat_features import unflatten
from tfxclass.rows import search
from tfxclass.types import Array


def top_k(
    head: keras.layers.Layer, features: Array, k: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """The exact best classes of each example (see `OutputHead.top_k`)."""
    k = check_k(k, head.num_answers)
    features = head.as_features(features)
    found = search.mask_missing(*head.best(flatten(features), k))
    return tuple(unflatten(x, features) for x in found)


def export_top_k(
    head: keras.layers.Layer, features: Array, k: int, weights: Any = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """`top_k` with TensorFlow's own ops only, for an exported graph.

    Args:
        head: a built `OutputHead`.
        features: float `[..., dim]`.
        k: int, at most `num_answers`.
        weights: the result of `export_weights`. Defaults to calling it, which
            may create variables, so not in a `tf.function`.

    Returns:
        The same as `top_k`.
    """
    k = check_k(k, head.num_answers)
    weights = head.export_weights() if weights is None else weights
    features = head.as_features(features)
    found = head.servable_best(flatten(features), k, weights)
    found = search.mask_missing(*found)
    return tuple(unflatten(x, features) for x in found)


def export_scores(
    head: keras.layers.Layer, features: Array, weights: Any = None
) -> tf.Tensor:
    """Scores of all classes with TensorFlow's own ops only.

    Args:
        head: a built `OutputHead`.
        features: float `[..., dim]`.
        weights: as for `export_top_k`.

    Returns:
        float32 `[..., num_classes]`.
    """
    weights = head.export_weights() if weights is None else weights
    features = head.as_features(features)
    scores = head.servable_scores(flatten(features), weights)
    return unflatten(scores, features)


def sorted_scores(
    head: keras.layers.Layer, features: tf.Tensor, weights: Any
) -> tf.Tensor:
    """`servable_scores` for heads that can only search for the best.

    Args:
        head: a built `OutputHead`.
        features: float32 `[rows, dim]`.
        weights: the result of `export_weights`.

    Returns:
        float32 `[rows, num_classes]`.
    """
    ids, scores = head.servable_best(features, head.num_classes, weights)
    places = tf.argsort(ids, axis=1)
    return tf.gather(scores, places, axis=1, batch_dims=1)
