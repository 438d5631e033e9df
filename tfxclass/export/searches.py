"""Searches that read all classes: by the model, and in an export."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass.core.forward import flatten
from tfxclass.core.forward import unflatten
from tfxclass.export import accuracy
from tfxclass.layers.output_head import OutputHead
from tfxclass.ops.stored_rows import StoredRows
from tfxclass.rows import int8_rows
from tfxclass.rows import stock_search
from tfxclass.types import Array
from tfxclass.types import Config

# Random features where there are no examples.
_NUM_RANDOM = 256


class ModelSearch:
    """The answers of the head itself, which an export has to match.

    Args:
        head: the head.
        weights: what it reads in place of its own: `export_weights`, as they
            are stored.

    Attributes:
        state: what an export saves of the search: variables and modules, in
            lists and tuples.
        measured: dict of what was measured; None if it answers as the head
            does.
    """

    def __init__(self, head: OutputHead, weights: Any = None) -> None:
        self.head, self.weights = head, weights
        self.state: Any = []
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


class ExactSearch(ModelSearch):
    """All classes of a head, read for each query with TensorFlow's own ops.

    `store` is how class vectors are stored, an argument of
    `stock_search.stored`; None for a float32 matrix.
    """

    def __init__(
        self,
        head: OutputHead,
        store: Callable[[tf.Tensor], StoredRows] | None = None,
    ) -> None:
        weights = head.export_weights()
        if store is not None:
            weights = stock_search.stored(weights, store)
        super().__init__(head, weights)
        self.state = [weights, head.query_weights()]


def int8_search(
    head: OutputHead,
    features: Array | None,
    dim: int,
    k: int,
    min_recall: float,
) -> ExactSearch:
    """A search in int8 class vectors whose `k` best answers were measured.

    Features are float `[..., dim]`, or None for random ones.

    Raises:
        ValueError: a recall below `min_recall`.
    """
    search = ExactSearch(head, int8_rows.quantize)
    of = "random features" if features is None else "examples"
    if features is None:
        random = np.random.default_rng(0).normal(size=(_NUM_RANDOM, dim))
        features = random.astype("float32")
    features = flatten(tf.convert_to_tensor(features))
    found = accuracy.measure(search.top_k(features, k), head.top_k(features, k))
    if found["recall"] < min_recall:
        raise ValueError(
            f"Recall at {k} of int8 rows must be at least min_recall="
            f"{min_recall}. Received: {found['recall']:.4f}. Give real "
            "`example_inputs`, a lower `min_recall`, or no `quantize`."
        )
    search.measured = {"quantize": accuracy.INT8, **found, "measured_on": of}
    return search
