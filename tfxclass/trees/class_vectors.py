"""Vectors of classes from sparse features of their rows, for `clustered`."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tfxclass.checks import as_numbers
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.trees.class_means import directions


def class_vectors(
    batches: Iterable[Any],
    num_features: int,
    num_classes: int,
    dim: int = 64,
    feature_weights: ArrayLike | None = None,
    seed: int = 0,
) -> np.ndarray:
    """Mean feature vectors of classes, in a random projection.

    Use them for `tfxclass.trees.clustered` if the features are sparse. The
    vector of a class is the sum of its normalized examples. The projection
    keeps cosines up to about `1 / sqrt(dim)`. It takes one pass over the data.

    Args:
        batches: iterable of `({"feature_ids", "feature_values"}, labels)`, as
            from `tfxclass.data.XCFile.batches`: integers and floats `[batch,
            n]`, padded with value 0, and integers `[batch, p]`, padded with -1.
        num_features: int, number of features. Ids are below it.
        num_classes: int, number of classes.
        dim: int, width of the vectors.
        feature_weights: floats `[num_features]` that values are multiplied by,
            such as inverse document frequencies, or None.
        seed: int, seed of the projection.

    Returns:
        float32 `[num_classes, dim]`, zeros for a class without examples.
    """
    check_positive_int("num_features", num_features)
    check_positive_int("num_classes", num_classes)
    check_positive_int("dim", dim)
    random = np.random.default_rng(seed)
    axes = random.standard_normal((num_features, dim), np.float32)
    if feature_weights is not None:
        axes *= _weights(feature_weights, num_features)[:, np.newaxis]
    vectors = np.zeros((num_classes, dim), np.float32)
    for features, labels in batches:
        ids = np.asarray(features["feature_ids"])
        values = np.asarray(features["feature_values"], np.float32)
        labels = np.asarray(labels)
        rows = _projected(ids, values, axes)
        row, place = np.nonzero(labels >= 0)
        np.add.at(vectors, labels[row, place], rows[row])
    return vectors


def _weights(weights, num_features):
    weights = as_numbers("feature_weights", weights).astype(np.float32)
    is_valid = weights.shape == (num_features,) and np.isfinite(weights).all()
    wanted = f"finite, of shape ({num_features},)"
    check_value("feature_weights", weights.shape, bool(is_valid), wanted)
    return weights


def _projected(ids, values, axes):
    """Directions of the rows, float32 `[batch, dim]`."""
    rows = np.zeros((len(ids), axes.shape[1]), np.float32)
    # Padding adds 0 times the axis of feature 0.
    for place in range(ids.shape[1]):
        rows += values[:, place, np.newaxis] * axes[ids[:, place]]
    return directions(rows)
