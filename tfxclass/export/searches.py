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


class ModelSearch(tf.Module):
    """The answers of the head itself, which an export has to match.

    Args:
        head: the head.
        weights: what it reads in place of its own: `export_weights`, as they
            are stored.
    """

    def __init__(self, head: OutputHead, weights: Any = None) -> None:
        super().__init__()
        # Untracked: a layer would be saved with copies of its variables.
        self._head = lambda: (head, weights)

    @property
    def head(self) -> OutputHead:
        """The head; it is not saved."""
        return self._head()[0]

    @property
    def weights(self) -> Any:
        """The weights that it reads, None for the head's own."""
        return self._head()[1]

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
        weights = head.export_weights()
        if store is not None:
            weights = stock_search.stored(weights, store)
        super().__init__(head, weights)
        self.variables_read = [
            x
            for x in tf.nest.flatten(weights)
            if isinstance(x, (tf.Variable, tf.Module))
        ]
        self.measured: Config | None = None
        self.query_weights = head.query_weights()

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
