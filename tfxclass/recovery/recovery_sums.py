"""The sums over rows from which a full class matrix follows."""

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.recovery.duals import Drawn
from tfxclass.recovery.duals import add_duals
from tfxclass.recovery.rows import Rows
from tfxclass.recovery.rows import rows_of
from tfxclass.types import Array
from tfxclass.types import Labels


class RecoverySums:
    """Base class: what a pass over the data adds up.

    They take `num_classes x dim` float32 numbers, and `dim^2` float64 ones.

    Args:
        head: a built `ProjectedSoftmax` or `AdaptiveProjectedSoftmax`.
        num_sampled: int, estimate probabilities from the labels of a batch and
            so many classes, drawn anew for each batch; None computes all. The
            pass then costs what a step of a `SampledSoftmax` does, whatever the
            number of classes.
        seed: int, of what is drawn.

    Attributes:
        kernel: float32 array `[num_classes, dim]`, `(Y - P)^T X` so far, each
            row times its weight.
        moments: float64 `[dim, dim]`, `X^T X` with the same weights.
        counts: float64 `[num_classes]`, weights of the rows of each class.
        total_weight: float, sum of the weights of all rows; without weights,
            their number.
        num_rows: int, rows seen so far.
        num_batches: int.
    """

    def __init__(
        self,
        head: keras.layers.Layer,
        num_sampled: int | None = None,
        seed: int = 0,
    ) -> None:
        if num_sampled is not None:
            num_sampled = check_positive_int("num_sampled", num_sampled)
        self.head = head
        self.num_sampled = num_sampled
        self.seed = seed
        dim = head.projection.shape[0]
        self.kernel = np.zeros((head.num_classes, dim), np.float32)
        self.moments = np.zeros((dim, dim))
        self.counts = np.zeros(head.num_classes)
        self.total_weight = 0.0
        self.num_rows = 0
        self.num_batches = 0

    def add(
        self,
        features: Array,
        labels: Labels,
        sample_weight: Array | None = None,
    ) -> None:
        """Adds a batch.

        Args:
            features: float `[batch, dim]`, or `[batch, time, dim]`.
            labels: as in `fit`; a row without any adds nothing but its weight.
            sample_weight: float `[batch]` (or `[batch, time]`), or None.

        Raises:
            ValueError: NaN or infinity in features, weights or logits; the
                sums are as they were.
        """
        rows = rows_of(self.head, features, labels, sample_weight)
        weighed = rows.features * rows.weights[:, tf.newaxis]
        self._check_finite("features or sample weights", weighed)
        self._take(rows)
        self.num_rows += int(rows.features.shape[0])
        self.num_batches += 1

    def _check_finite(self, name, values):
        rows = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(rows):
            raise ValueError(self._not_finite(name, rows[0]))

    def _not_finite(self, name, row):
        return (
            f"The {name} must be finite. Received: NaN or infinity in row "
            f"{row} of batch {self.num_batches}, counted from 0."
        )

    def _take(self, rows: Rows) -> None:
        self._sum(rows)

    def _sum(self, rows):
        if not len(rows.weights):
            return
        try:
            add_duals(self.kernel, self.head, rows, self._drawn())
        except FloatingPointError as error:
            message = self._not_finite("logits", error.args[0])
            raise ValueError(message) from error
        weights = rows.weights[:, tf.newaxis]
        self.moments += tf.matmul(
            rows.features, rows.features * weights, transpose_a=True
        ).numpy()
        self.total_weight += float(np.sum(rows.weights, dtype=np.float64))
        ids, shares = rows.targets.ids, rows.targets.weights * weights
        here = ids >= 0
        np.add.at(self.counts, ids[here].numpy(), shares[here].numpy())

    def _drawn(self):
        if self.num_sampled is None:
            return None
        random = np.random.default_rng([self.seed, self.num_batches])
        return Drawn(self.num_sampled, random)

    def smoothness(self) -> float:
        """L: the mean of losses has no greater second derivative, float.

        Half of the greatest eigenvalue of `S = X^T X / n`, since the
        covariance of one draw of a class has none above 1/2.
        """
        self._check_rows()
        greatest = np.linalg.eigvalsh(self.moments)[-1]
        return float(greatest) / self.total_weight / 2

    def stationarity_error(self, l2: float) -> float:
        """How far from its optimum the slim model is, float.

        `|W R - V| / |V|` of the dual W, the projection R and the slim class
        matrix V: 0 at the optimum, where the gradient is zero. It says
        nothing of how good the dual is (`DualRecovery`).
        """
        factor = self._dual_factor(l2)
        squares, total, first = 0.0, 0.0, 0
        for projection, rows in self.head.projected_rows():
            last = first + rows.shape[0]
            dual = factor * (self.kernel[first:last] @ projection.numpy())
            squares += float(np.sum(np.square(dual - rows.numpy())))
            total += float(np.sum(np.square(rows)))
            first = last
        return (squares / total) ** 0.5 if total else float("inf")

    def _dual_factor(self, l2):
        """The factor of `(Y - P)^T X` in the dual."""
        check_l2(l2)
        self._check_rows()
        return np.float32(1 / (self.total_weight * l2))

    def _check_rows(self):
        if not self.num_rows:
            raise ValueError("`dataset` must have examples. Received: none.")
        if not self.total_weight > 0:
            raise ValueError(
                "The weights of the examples must have a sum > 0. Received: "
                f"{self.total_weight}, of {self.num_rows} examples."
            )


def check_l2(l2: float) -> None:
    """Raises ValueError unless `l2` is a number > 0."""
    if not 0 < l2 < float("inf"):
        raise ValueError(
            "`l2` must be > 0: without the penalty the best class matrix does "
            "not follow from the probabilities (W = (Y - P)^T X / l2). Fix: "
            f'method="step" needs none. Received: {l2}'
        )
