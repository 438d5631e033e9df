"""The sums from which the full class matrix follows, by its dual."""

import os

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.checks import check_k
from tfxclass.layers.output_head import flatten
from tfxclass.losses import softmax
from tfxclass.ops import library
from tfxclass.rows import products
from tfxclass.rows import search
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.read import whole
from tfxclass.types import Array
from tfxclass.types import Path


class DualRecovery:
    """The sum over rows from which the full class matrix follows.

    The best class matrix of `sum of losses + l2 / 2 |W|^2` has a gradient of
    zero: `l2 W = (Y - P)^T X`, with features X `[n, dim]`, labels Y and
    probabilities P `[n, num_classes]`, the dual variables. P is taken from the
    projected model. For the mean of losses, which Keras minimises, the factor
    is `1 / (n l2)`; the paper prints it both ways.

    Sums of several workers add up: `merge`.

    Args:
        head: a built `ProjectedSoftmax` or `AdaptiveProjectedSoftmax`.
        top_k: int, keep only the k greatest probabilities of a row, exactly
            normalised, so that a row touches k classes; None keeps all.

    Attributes:
        kernel: float32 array `[num_classes, dim]`, `(Y - P)^T X` so far.
        num_rows: int, rows so far.
        num_batches: int.
    """

    def __init__(
        self, head: keras.layers.Layer, top_k: int | None = None
    ) -> None:
        if top_k is not None:
            check_k(top_k, head.num_classes)
        self.head = head
        self.top_k = top_k
        dim = head.projection.shape[0]
        self.kernel = np.zeros((head.num_classes, dim), np.float32)
        self.num_rows = 0
        self.num_batches = 0

    def add(
        self, features: Array, labels: Array, sample_weight: Array | None = None
    ) -> None:
        """Adds a batch.

        Args:
            features: float `[batch, dim]`.
            labels: as in `fit`; a row without any adds nothing.
            sample_weight: float `[batch]` or None.

        Raises:
            ValueError: NaN or infinity in features, weights or logits; the
                sums are as they were.
        """
        targets = self.head.targets(features, labels)
        features = flatten(tf.convert_to_tensor(features))
        parts = self.head.parts(features)
        if sample_weight is not None:
            # A row's dual times its weight: the same as its features.
            weight = tf.cast(sample_weight, tf.float32)
            features *= tf.reshape(weight, [-1, 1])
        self._check_finite("features or sample weights", features)
        if self.top_k is None:
            self._add_all(features, parts, targets)
        else:
            self._add_top_k(features, parts, targets)
        self.num_rows += int(features.shape[0])
        self.num_batches += 1

    def merge(self, other: "DualRecovery") -> None:
        """Adds the sums of `other`, of the same head over other rows."""
        if other.kernel.shape != self.kernel.shape:
            raise ValueError(
                "`other` must be of the same head. Received: a sum of shape "
                f"{other.kernel.shape} for one of {self.kernel.shape}."
            )
        self.kernel += other.kernel
        self.num_rows += other.num_rows

    def result(self, l2: float, reduction: str = "mean") -> np.ndarray:
        """The class matrix, float32 `[num_classes, dim]`.

        Args:
            l2: float > 0, weight of `|W|^2 / 2` in what was minimised.
            reduction: `"mean"` where the losses were averaged, or `"sum"`.

        Raises:
            ValueError: `l2` is not positive, or there were no rows.
        """
        check_choice("reduction", reduction, ("mean", "sum"))
        check_l2(l2)
        if not self.num_rows:
            raise ValueError("There were no rows to recover from.")
        count = self.num_rows if reduction == "mean" else 1
        return self.kernel * np.float32(1 / (count * l2))

    def stationarity_error(self, l2: float, reduction: str = "mean") -> float:
        """How far from its optimum the slim model is, float.

        `|W R - V| / |V|` of the recovered W, the projection R and the slim
        class matrix V: 0 at the optimum, where the gradient is zero. Far above
        0.1 the recovered matrix shows what training left undone rather than
        the classes: train longer, with a falling rate or a greater `l2`, or
        recover with `method="lift"`.
        """
        kernel = self.result(l2, reduction)
        squares = total = first = 0
        for projection, rows in self.head.projected_rows():
            last = first + rows.shape[0]
            differences = kernel[first:last] @ projection.numpy() - rows.numpy()
            squares += float(np.sum(np.square(differences)))
            total += float(np.sum(np.square(rows)))
            first = last
        return (squares / total) ** 0.5 if total else float("inf")

    def save(self, path: Path) -> None:
        """Writes the sums so far; the file appears whole or not at all."""
        unfinished = f"{path}.unfinished"
        with open(unfinished, "wb") as f:
            counts = np.array([self.num_rows, self.num_batches])
            np.savez(f, kernel=self.kernel, counts=counts)
        os.replace(unfinished, path)

    def load(self, path: Path) -> None:
        """Reads what `save` wrote for a head of the same sizes."""
        with np.load(path) as stored:
            kernel = stored["kernel"]
            if kernel.shape != self.kernel.shape:
                raise ValueError(
                    f"{path} is of another head. Received: a sum of shape "
                    f"{kernel.shape} for one of {self.kernel.shape}."
                )
            self.kernel = kernel
            self.num_rows, self.num_batches = map(int, stored["counts"])

    def _check_finite(self, name, values):
        rows = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(rows):
            raise ValueError(
                f"The {name} must be finite. Received: NaN or infinity in row "
                f"{rows[0]} of batch {self.num_batches}, counted from 0."
            )

    def _add_all(self, features, parts, targets):
        logsumexp = _logsumexp(parts)
        self._check_finite("logits", logsumexp[:, tf.newaxis])
        # Every class as if none were a label; labels are added below.
        no_labels = tf.fill([len(features), 1], tf.constant(-1, tf.int64))
        for queries, rows in parts:
            blocks = Blocks(queries, whole(rows))
            size, count = int(blocks.size), int(blocks.num_classes)
            for start in range(0, count, size):
                duals = library.ops.tfxclass_softmax_block_grad(
                    blocks.logits(start),
                    no_labels,
                    tf.zeros_like(no_labels, tf.float32),
                    start,
                    tf.cast(logsumexp, tf.float32),
                    targets.is_labelled,
                )
                first = rows.first + start
                added = products.rows_grad(duals, features).numpy()
                self.kernel[first : first + len(added)] -= added
        self._add_sparse(features, targets.ids, -targets.weights)

    def _add_top_k(self, features, parts, targets):
        found = search.merge(
            [search.best(queries, rows, self.top_k) for queries, rows in parts],
            self.top_k,
        )
        total = found.logsumexp
        self._check_finite("logits", total)
        labelled = targets.is_labelled[:, tf.newaxis]
        probabilities = softmax.probabilities(found.logits, total) * labelled
        self._add_sparse(features, found.ids, probabilities)
        self._add_sparse(features, targets.ids, -targets.weights)

    def _add_sparse(self, features, ids, duals):
        """Takes off `duals[b, j] * features[b]` at row `ids[b, j]`."""
        ids, duals = ids.numpy(), duals.numpy()
        row, column = np.nonzero(ids >= 0)
        touched, place = np.unique(ids[row, column], return_inverse=True)
        order = np.lexsort((row, place))
        matrix = tf.SparseTensor(
            np.stack([place[order], row[order]], axis=1),
            duals[row, column][order],
            (len(touched), len(ids)),
        )
        rows = tf.sparse.sparse_dense_matmul(matrix, features)
        self.kernel[touched] -= rows.numpy()


def check_l2(l2: float) -> None:
    """Raises ValueError unless `l2` is a number > 0."""
    if not 0 < l2 < float("inf"):
        raise ValueError(
            "`l2` must be > 0: without the penalty the best class matrix does "
            "not follow from the probabilities (W = (Y - P)^T X / l2). "
            f"Received: {l2}"
        )


def _logsumexp(parts):
    """Of all classes of `parts`, float64 `[batch]`."""
    found = [search.best(queries, rows, 1) for queries, rows in parts]
    return search.merge(found, 1).logsumexp[:, 0]
