"""The sums over rows from which a full class matrix follows."""

import os

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.checks import check_k
from tfxclass.checks import check_positive_int
from tfxclass.recovery.back_projection import checksum
from tfxclass.recovery.back_projection import full_dim
from tfxclass.recovery.duals import Drawn
from tfxclass.recovery.duals import add_duals
from tfxclass.recovery.feature_moments import FeatureMoments
from tfxclass.recovery.rows import Rows
from tfxclass.recovery.rows import rows_of
from tfxclass.types import Array
from tfxclass.types import Labels
from tfxclass.types import Path


class RecoverySums:
    """Base class: what a pass over the data adds up.

    Sums of several workers add up: `merge`. They take `num_classes x dim`
    float32 numbers, and `dim^2` float64 ones (`dim x 1,024` from 2,048
    dimensions on: `FeatureMoments`).

    Args:
        head: a built `ProjectedSoftmax` or `AdaptiveProjectedSoftmax`.
        top_k: int, keep only the k greatest probabilities of a row, exactly
            normalised, so that a row touches k classes; None keeps all.
        num_sampled: int, estimate probabilities from the labels of a batch and
            so many classes, drawn anew for each batch; None computes all. The
            pass then costs what a step of a `SampledSoftmax` does, whatever the
            number of classes. Not together with `top_k`.
        seed: int, of what is drawn.

    Attributes:
        kernel: float32 array `[num_classes, dim]`, `(Y - P)^T X` so far, each
            row times its weight.
        moments: `FeatureMoments`, of `X^T X`, with the same weights.
        counts: float64 `[num_classes]`, weights of the rows of each class.
        total_weight: float, sum of the weights of all rows; without weights,
            their number.
        num_rows: int, rows seen so far.
        num_batches: int.
    """

    #: What a file of the sums is called by.
    method = None

    def __init__(
        self,
        head: keras.layers.Layer,
        top_k: int | None = None,
        num_sampled: int | None = None,
        seed: int = 0,
    ) -> None:
        if top_k is not None:
            top_k = check_k(top_k, head.num_classes, "top_k")
        if num_sampled is not None:
            num_sampled = check_positive_int("num_sampled", num_sampled)
        if top_k is not None and num_sampled is not None:
            raise ValueError(
                "Give `top_k` or `num_sampled`, not both. Received: top_k="
                f"{top_k}, num_sampled={num_sampled}."
            )
        self.head = head
        self.top_k = top_k
        self.num_sampled = num_sampled
        self.seed = seed
        dim = full_dim(head)
        self.kernel = np.zeros((head.num_classes, dim), np.float32)
        self.moments = FeatureMoments(dim)
        self.counts = np.zeros(head.num_classes)
        self.total_weight = 0.0
        self.num_rows = 0
        self.num_batches = 0
        #: The head that the first of several steps began at.
        self.origin = head
        self.first_batch = 0

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
        if not self.num_batches:
            self.first_batch = int(features.shape[0])
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
            add_duals(self.kernel, self.head, rows, self.top_k, self._drawn())
        except FloatingPointError as error:
            message = self._not_finite("logits", error.args[0])
            raise ValueError(message) from error
        weights = rows.weights[:, tf.newaxis]
        self.moments.add(rows.features, rows.features * weights)
        self.total_weight += float(np.sum(rows.weights, dtype=np.float64))
        ids, shares = rows.targets.ids, rows.targets.weights * weights
        here = ids >= 0
        np.add.at(self.counts, ids[here].numpy(), shares[here].numpy())

    def _drawn(self):
        if self.num_sampled is None:
            return None
        # The same classes where a run goes on.
        random = np.random.default_rng([self.seed, self.num_batches])
        return Drawn(self.num_sampled, random)

    def merge(self, other: "RecoverySums") -> None:
        """Adds the sums of `other`, of the same head over other rows."""
        if other.kernel.shape != self.kernel.shape:
            raise ValueError(
                "`other` must be of the same head. Received: a sum of shape "
                f"{other.kernel.shape} for one of {self.kernel.shape}."
            )
        self.kernel += other.kernel
        self.moments.merge(other.moments)
        self.counts += other.counts
        self.total_weight += other.total_weight
        self.num_rows += other.num_rows

    def smoothness(self) -> float:
        """L: the mean of losses has no greater second derivative, float.

        Half of the greatest eigenvalue of `S = X^T X / n`, since the
        covariance of one draw of a class has none above 1/2. An upper bound
        where S is kept in blocks.
        """
        self._check_rows()
        return self.moments.greatest_eigenvalue() / self.total_weight / 2

    def stationarity_error(self, l2: float, reduction: str = "mean") -> float:
        """How far from its optimum the slim model is, float.

        `|W R - V| / |V|` of the dual W, the projection R and the slim class
        matrix V: 0 at the optimum, where the gradient is zero. It says
        nothing of how good the dual is (`DualRecovery`).

        Raises:
            ValueError: a head without a projection.
        """
        if not hasattr(self.head, "projected_rows"):
            raise ValueError(
                "The stationarity error is of a slim class matrix. Received: "
                f"{type(self.head).__name__} {self.head.name!r}, in full width"
            )
        factor = self._dual_factor(l2, reduction)
        squares = total = first = 0
        for projection, rows in self.head.projected_rows():
            last = first + rows.shape[0]
            dual = factor * (self.kernel[first:last] @ projection.numpy())
            squares += float(np.sum(np.square(dual - rows.numpy())))
            total += float(np.sum(np.square(rows)))
            first = last
        return (squares / total) ** 0.5 if total else float("inf")

    def _dual_factor(self, l2, reduction):
        """The factor of `(Y - P)^T X` in the dual."""
        check_choice("reduction", reduction, ("mean", "sum"))
        check_l2(l2)
        self._check_rows()
        count = self.total_weight if reduction == "mean" else 1
        return np.float32(1 / (count * l2))

    def _check_rows(self):
        if not self.num_rows:
            raise ValueError("`dataset` must have examples. Received: none.")
        if not self.total_weight > 0:
            raise ValueError(
                "The weights of the examples must have a sum > 0. Received: "
                f"{self.total_weight}, of {self.num_rows} examples."
            )

    def save(self, path: Path) -> None:
        """Writes the sums so far; the file appears whole or not at all."""
        unfinished = f"{path}.unfinished"
        with open(unfinished, "wb") as f:
            np.savez(f, **self._state())
        os.replace(unfinished, path)

    def _state(self):
        return {
            "method": np.array(self.method),
            "kernel": self.kernel,
            "moments": self.moments.state(),
            "counts": self.counts,
            "total_weight": np.array(self.total_weight),
            "progress": np.array([self.num_rows, self.num_batches]),
            "first_batch": np.array(self.first_batch),
            **{k: np.array(v) for k, v in self._settings().items()},
        }

    def _settings(self):
        """Settings that must not change when sums continue, a dict of ints."""
        return {
            "top_k": -1 if self.top_k is None else self.top_k,
            "num_sampled": self.num_sampled or -1,
            "seed": self.seed,
            "head": checksum(self.origin),
        }

    def load(self, path: Path) -> None:
        """Reads what `save` wrote for the same head and arguments.

        Raises:
            ValueError: a file of another head, of another method, or with
                other arguments.
        """
        with np.load(path) as stored:
            method = str(stored["method"]) if "method" in stored else None
            if method != self.method:
                raise ValueError(
                    f"{path} must be of the method {self.method!r}. Received: "
                    f"sums of {method!r}. Remove it to begin anew."
                )
            shape = stored["kernel"].shape
            if shape != self.kernel.shape:
                raise ValueError(
                    f"{path} is of another head. Received: a sum of shape "
                    f"{shape} for one of {self.kernel.shape}."
                )
            self._check_settings(path, stored)
            self._set_state(stored)

    def _check_settings(self, path, stored):
        for name, ours in self._settings().items():
            theirs = int(stored[name]) if name in stored else None
            if theirs != ours:
                what = "weights of the head" if name == "head" else name
                raise ValueError(
                    f"{path} is of a run with other {what}. Received: {name}="
                    f"{ours} for one of {theirs}. Remove it to begin anew."
                )

    def check_first_batch(self, path: Path, rows: int) -> None:
        """Raises ValueError unless the data begin with so many rows."""
        if self.num_batches and rows != self.first_batch:
            raise ValueError(
                f"{path} is of other batches. Received: a first one of {rows} "
                f"rows for one of {self.first_batch}. Remove it to begin anew."
            )

    def _set_state(self, state):
        self.kernel = state["kernel"]
        self.moments.set_state(state["moments"])
        self.counts = state["counts"]
        self.total_weight = float(state["total_weight"])
        self.num_rows, self.num_batches = map(int, state["progress"])
        self.first_batch = int(state["first_batch"])


def check_l2(l2: float) -> None:
    """Raises ValueError unless `l2` is a number > 0."""
    if not 0 < l2 < float("inf"):
        raise ValueError(
            "`l2` must be > 0: without the penalty the best class matrix does "
            "not follow from the probabilities (W = (Y - P)^T X / l2). Fix: "
            f'method="step" needs none. Received: {l2}'
        )
