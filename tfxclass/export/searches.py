"""Searches that read all classes, and how near to the model's they are."""

from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass.checks import check_number
from tfxclass.checks import check_value
from tfxclass.core.forward import flatten
from tfxclass.core.forward import unflatten
from tfxclass.layers.output_head import OutputHead
from tfxclass.rows import export_rows
from tfxclass.rows import stock_search
from tfxclass.types import Array
from tfxclass.types import Config

INT8 = "int8"
# Random features where there are no examples.
_NUM_RANDOM = 256


class ModelSearch:
    """The answers of a head, which reads all classes.

    An export reads `weights`, as `export_weights`, and saves them. Without
    them the head reads its own, and its answers are what exports have to match.
    """

    def __init__(self, head: OutputHead, weights: Any = None) -> None:
        self.head, self.weights = head, weights
        # Variables and modules that an export saves, in lists and tuples.
        self.state: Any = [weights, head.query_weights()]
        self.measured: Config | None = None

    @property
    def activation(self) -> str | None:
        """The activation of the scores; None for logits."""
        return self.head.activation

    def top_k(self, features: Array, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, scores)`: int64 and float32 `[..., k]`, best first."""
        weights = self.weights
        if weights is None and not self.head.has_class_rows:
            # One that searches otherwise in an export is compared with that.
            weights = self.head.export_weights()
        return self.head.top_k(features, k, weights=weights)

    def logits_of(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Logits of classes `[rows, q]` for features `[rows, dim]`."""
        return self.head.logits_of(features, ids, self.weights)

    def scores(self, features: tf.Tensor) -> tf.Tensor:
        """Scores of all classes, float32 `[..., num_classes]`."""
        features = self.head.as_features(features)
        scores = self.head.all_scores(flatten(features), self.weights)
        return unflatten(scores, features)


def int8_search(
    head: OutputHead,
    features: Array | None,
    dim: int,
    k: int,
    min_recall: float,
) -> ModelSearch:
    """A search in int8 class vectors; ValueError below `min_recall` at `k`."""
    weights = stock_search.stored(head.export_weights(), export_rows.quantize)
    search = ModelSearch(head, weights)
    of = "random features" if features is None else "examples"
    if features is None:
        random = np.random.default_rng(0).normal(size=(_NUM_RANDOM, dim))
        features = random.astype("float32")
    features = flatten(tf.convert_to_tensor(features))
    found = measure(search.top_k(features, k), head.top_k(features, k))
    if found["recall"] < min_recall:
        raise ValueError(
            f"Recall at {k} of int8 rows must be at least min_recall="
            f"{min_recall}. Received: {found['recall']:.4f}. Give real "
            "`example_inputs`, a lower `min_recall`, or no `quantize`."
        )
    search.measured = {"quantize": INT8, **found, "measured_on": of}
    return search


def check_quantize(
    quantize: str | None, min_recall: float, head: OutputHead
) -> bool:
    """Whether to quantize, bool; ValueError where a head or a name cannot."""
    check_number("min_recall", min_recall, lambda x: 0 <= x <= 1, "in [0, 1]")
    if quantize is None:
        return False
    check_value("quantize", quantize, quantize == INT8, f'None or "{INT8}"')
    if not head.has_class_rows:
        raise ValueError(
            "`quantize` needs a head with class vectors. Received: "
            f"{type(head).__name__}. Leave it out."
        )
    return True


def recall(found: np.ndarray, expected: np.ndarray) -> float:
    """Share of the ids `expected` `[n, k]` that are among `found`."""
    shared = [np.intersect1d(*pair).size for pair in zip(found, expected)]
    return sum(shared) / max(expected.size, 1)


def measure(
    answers: tuple[Array, Array], expected: tuple[Array, Array]
) -> Config:
    """How near answers, `(ids, scores)` `[n, k]`, are to the model's."""
    ids, scores = map(np.asarray, answers)
    true_ids, true_scores = map(np.asarray, expected)
    same = ids[:, :, np.newaxis] == true_ids[:, np.newaxis]
    errors = np.abs(scores[:, :, np.newaxis] - true_scores[:, np.newaxis])[same]
    error: Config = {"max": None, "mean": None}
    if errors.size:
        error = {"max": float(errors.max()), "mean": float(errors.mean())}
    return {"recall": recall(ids, true_ids), "score_error": error}
