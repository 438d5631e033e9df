"""Searches that read all classes: by the model, and in an export."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfxclass.core.forward import flatten
from tfxclass.core.forward import unflatten
from tfxclass.export import accuracy
from tfxclass.layers.output_head import OutputHead
from tfxclass.ops.stored_rows import StoredRows
from tfxclass.rows import stock_search
from tfxclass.types import Array
from tfxclass.types import Config


class ModelSearch:
    """The answers of the head itself, which an export has to match.

    Args:
        head: the head.
    """

    def __init__(self, head: OutputHead) -> None:
        self.head, self.activation = head, head.activation

    def top_k(self, features: Array, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        # One that searches otherwise in an export is compared with that.
        is_same = self.head.has_class_rows
        weights = None if is_same else self.head.export_weights()
        return self.head.top_k(features, k, weights=weights)

    def logits_of(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Logits of classes `[rows, q]` for features `[rows, dim]`."""
        return self.head.logits_of(features, ids)

    def scores(self, features: tf.Tensor) -> tf.Tensor:
        """Scores of all classes, float32 `[..., num_classes]`."""
        logits = self.head.logits(features)
        return self.head.activate(logits) if self.activation else logits


class ExactSearch(tf.Module):
    """All classes of a head, read for each query.

    Args:
        head: the head.
        store: how class vectors are stored, an argument of
            `stock_search.stored`; None for a float32 matrix.
    """

    def __init__(
        self,
        head: OutputHead,
        store: Callable[[tf.Tensor], StoredRows] | None = None,
    ) -> None:
        super().__init__()
        weights = head.export_weights()
        if store is not None:
            weights = stock_search.stored(weights, store)
        self.variables_read = [
            x
            for x in tf.nest.flatten(weights)
            if isinstance(x, (tf.Variable, tf.Module))
        ]
        self.measured: Config | None = None
        self.query_weights = head.query_weights()
        # Untracked: a layer would be saved with copies of its variables.
        self._head = lambda: (head, weights)

    @property
    def head(self) -> OutputHead:
        """The head; it is not saved."""
        return self._head()[0]

    @property
    def weights(self) -> Any:
        """The weights that it reads: `export_weights`, as they are stored."""
        return self._head()[1]

    def top_k(self, features: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        head, weights = self._head()
        return head.top_k(features, k, weights=weights)

    def logits_of(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Logits of classes `[rows, q]` for features `[rows, dim]`."""
        head, weights = self._head()
        return head.logits_of(features, ids, weights)

    def scores(self, features: tf.Tensor) -> tf.Tensor:
        head, weights = self._head()
        features = head.as_features(features)
        scores = head.all_scores(flatten(features), weights)
        return unflatten(scores, features)

    @property
    def activation(self) -> str | None:
        """The activation of the scores; None for logits."""
        return self.head.activation

    def measure(
        self, features: Array | None, dim: int, k: int, min_recall: float
    ) -> None:
        """Compares the answers of int8 rows with the head's.

        Args:
            features: float `[..., dim]`, or None for random ones.
            dim: int.
            k: int.
            min_recall: float.

        Raises:
            ValueError: a recall below `min_recall`.
        """
        of = "random features" if features is None else "examples"
        if features is None:
            features = accuracy.random_features(dim)
        features = flatten(tf.convert_to_tensor(features))
        found = accuracy.measure(
            self.top_k(features, k), self.head.top_k(features, k)
        )
        accuracy.check_recall(found["recall"], min_recall, k)
        self.measured = {"quantize": accuracy.INT8, **found, "measured_on": of}

    def report(self) -> Config | None:
        """The measurements, a dict; None if it answers as the head does."""
        return self.measured
