"""The sums of one pass over the data, and the paper's dual of them."""

import warnings
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_optional_int
from tfxclass.core.forward import check_weight_shape
from tfxclass.core.forward import flatten
from tfxclass.core.forward import row_weights
from tfxclass.core.targets import uniform_targets
from tfxclass.keras_internals import get_mask
from tfxclass.rows import search
from tfxclass.rows.best import merge
from tfxclass.rows.blocks import Blocks
from tfxclass.types import Array
from tfxclass.types import Labels

# The largest part of all rows that is held out.
_HELD_OUT_SHARE = 0.1


class Rows(NamedTuple):
    """Features `[n, dim]`, distinct labels `[n, p]`, weights and keys `[n]`."""

    features: np.ndarray
    ids: np.ndarray
    weights: np.ndarray
    keys: np.ndarray

    def at(self, chosen: np.ndarray) -> "Rows":
        """The rows of a bool mask `[n]`, or of positions."""
        return Rows(*(values[chosen] for values in self))


def _rows_of(head, features, labels, sample_weight):
    """Features, labels, weights; positions of sequences are rows."""
    targets, mask = head.targets(features, labels), get_mask(features)
    features = tf.convert_to_tensor(features)
    if sample_weight is None:
        sample_weight = tf.ones(tf.shape(features)[:-1])
    sample_weight = tf.convert_to_tensor(sample_weight)
    check_weight_shape(sample_weight, features.shape[:-1])
    weights = row_weights(sample_weight, features)
    if mask is not None:
        weights = tf.where(tf.reshape(mask, [-1]), weights, 0.0)
    return flatten(features).numpy(), targets.ids.numpy(), weights.numpy()


def _joined(*parts):
    """`Rows` after each other, labels padded to the same width."""
    width = max(rows.ids.shape[1] for rows in parts)
    padded = []
    for rows in parts:
        missing = [(0, 0), (0, width - rows.ids.shape[1])]
        ids = np.pad(rows.ids, missing, constant_values=-1)
        padded.append(rows._replace(ids=ids))
    return Rows(*map(np.concatenate, zip(*padded)))


class RecoverySums:
    """What one pass over the data adds up, and the rows that it holds out.

    Each row gets a random key in [0, 1). The rows with the smallest keys, all
    below 0.1 and at most `max_held_out`, are held out, whatever the order of
    the data. The sums leave them out. `num_sampled` is as in `recover`.
    """

    def __init__(
        self,
        head: keras.layers.Layer,
        num_sampled: int | None = None,
        max_held_out: int = 0,
        seed: int = 0,
    ) -> None:
        num_sampled = check_optional_int("num_sampled", num_sampled)
        self.head, self.num_sampled, self.seed = head, num_sampled, seed
        dim = head.projection.shape[0]
        #: `(Y - P)^T X` so far, each row times its weight, and `X^T X`.
        self.kernel = np.zeros((head.num_classes, dim), np.float32)
        self.moments = np.zeros((dim, dim))
        #: Sums of the weights: of the rows of each class, and of all rows.
        self.counts = np.zeros(head.num_classes)
        self.total_weight = 0.0
        self.num_rows = self.num_batches = 0
        none = np.zeros((0, dim), np.float32), np.zeros((0, 0), np.int64)
        self.held_out = Rows(*none, np.zeros(0, np.float32), np.zeros(0))
        self._max_held_out = max_held_out
        self._random = np.random.default_rng(seed)
        self._bound = _HELD_OUT_SHARE if max_held_out else 0.0

    def add(
        self,
        features: Array,
        labels: Labels,
        sample_weight: Array | None = None,
    ) -> None:
        """Adds a batch as `fit` has it, `[batch, dim]` or `[batch, time, dim]`.

        A row without labels adds nothing but its weight. After a ValueError
        about numbers that are not finite, the sums are as they were.
        """
        x, ids, weights = _rows_of(self.head, features, labels, sample_weight)
        weighted = x * weights[:, np.newaxis]
        self._check_finite("features or sample weights", weighted)
        rows = Rows(x, ids, weights, self._random.random(len(weights)))
        is_kept = rows.keys < self._bound
        self._sum(rows.at(~is_kept))
        if is_kept.any():
            self.held_out = _joined(self.held_out, rows.at(is_kept))
        if len(self.held_out.keys) > 2 * self._max_held_out:
            self.return_surplus()
        self.num_rows += len(weights)
        self.num_batches += 1

    def return_surplus(self) -> None:
        """Adds the rows to the sums that were held out beyond the maximum."""
        rows = self.held_out
        order = np.argsort(rows.keys, kind="stable")
        kept, rest = np.split(order, [self._max_held_out])
        if len(rest):
            self._bound = rows.keys[rest[0]]
            self.held_out = rows.at(kept)
            self._sum(rows.at(rest))

    def check_rows(self) -> None:
        """Raises ValueError unless there were rows with a weight."""
        if not self.num_rows:
            raise ValueError("`dataset` must have examples. Received: none.")
        if not self.total_weight > 0:
            raise ValueError(
                "The weights of the examples must have a sum > 0. Received: "
                f"{self.total_weight}, of {self.num_rows} examples."
            )

    def dual(self, l2: float) -> np.ndarray:
        """The dual recovery of the paper, float32 `[num_classes, dim]`.

        The best class matrix for `mean loss + l2 / 2 |W|^2` has a gradient of
        zero: `l2 W = (Y - P)^T X / n`, with n the sum of the weights. (The
        paper prints the factor both as 1 / (n l2) and as 1 / l2.) It is a
        gradient step of 1 / l2 from the lifted matrix. Steps above 2 / (L + l2)
        may overshoot, unless the features have a low rank (Theorem 1).
        """
        self.check_rows()
        # L is half of the greatest eigenvalue of S: the covariance of one
        # sampled class has none above 1/2.
        greatest = float(np.linalg.eigvalsh(self.moments)[-1])
        step, smoothness = 1 / l2, greatest / self.total_weight / 2
        # If all features are zero, any step is as good.
        longest = 2 / smoothness if smoothness else float("inf")
        if step > longest:
            warnings.warn(
                f"The dual is a gradient step of 1/l2 = {step:.3g} from the "
                f"lifted matrix; steps above 2/L = {longest:.3g} may overshoot "
                "(L: smoothness of the mean loss). It may be worse than the "
                'slim model. Fix: method="step" looks for the step.',
                stacklevel=2,
            )
        return self.kernel * np.float32(step / self.total_weight)

    def _sum(self, rows):
        if not len(rows.weights):
            return
        targets = uniform_targets(tf.constant(rows.ids))
        parts = self.head.parts(tf.constant(rows.features))
        # A row's dual times its weight: the same as its features.
        weighted = rows.features * rows.weights[:, np.newaxis]
        labelled = weighted * targets.is_labelled[:, tf.newaxis]
        if self.num_sampled is None:
            self._subtract_all(parts, labelled)
        else:
            self._subtract_sampled(parts, rows.ids, labelled)
        row, column = np.nonzero(rows.ids >= 0)
        ids = rows.ids[row, column]
        shares = targets.weights.numpy()[row, column]
        np.add.at(self.kernel, ids, shares[:, np.newaxis] * weighted[row])
        np.add.at(self.counts, ids, shares * rows.weights[row])
        self.moments += rows.features.T @ weighted
        self.total_weight += float(np.sum(rows.weights, dtype=np.float64))

    def _subtract_all(self, parts, weighted):
        """Subtracts `P^T X` of the rows with labels, block by block."""
        found = [search.best_of_rows(x, part, 1) for x, part in parts]
        logsumexp = merge(found, 1).logsumexp
        self._check_finite("logits", logsumexp)
        logsumexp = tf.cast(logsumexp, tf.float32)
        for queries, part in parts:
            blocks = Blocks(queries, part.whole())
            for start in range(0, int(blocks.num_classes), int(blocks.size)):
                shares = tf.exp(blocks.logits(start) - logsumexp)
                added = tf.matmul(shares, weighted, transpose_a=True).numpy()
                first = part.first + start
                self.kernel[first : first + len(added)] -= added

    def _subtract_sampled(self, parts, labels, weighted):
        """Subtracts an unbiased estimate, from the labels and a sample."""
        random = np.random.default_rng([self.seed, self.num_batches])
        ids, log_counts = labels_and_sample(
            labels, self.num_sampled, len(self.kernel), random
        )
        order, logits = [], []
        for queries, part in parts:
            local = part.local_ids(tf.constant(ids))
            here = np.flatnonzero(local >= 0)
            kernel, bias = part.gather(tf.gather(local, here))
            product = tf.matmul(queries, kernel, transpose_b=True)
            logits.append(product if bias is None else product + bias)
            order.append(here)
        ids, log_counts = (x[np.concatenate(order)] for x in (ids, log_counts))
        logits = tf.concat(logits, axis=1) - log_counts
        logsumexp = tf.reduce_logsumexp(logits, axis=1, keepdims=True)
        self._check_finite("logits", logsumexp)
        shares = tf.exp(logits - logsumexp)
        self.kernel[ids] -= tf.matmul(shares, weighted, transpose_a=True)

    def _check_finite(self, name, values):
        rows = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(rows):
            raise ValueError(
                f"The {name} must be finite. Received: NaN or infinity in row "
                f"{rows[0]} of batch {self.num_batches}, counted from 0."
            )


def labels_and_sample(
    labels: np.ndarray,
    num_sampled: int,
    num_classes: int,
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Distinct classes, labels first, and the log of their expected counts.

    Sampled classes that are no label stand for all others.
    """
    labels = np.unique(labels[labels >= 0])
    count = min(num_sampled, num_classes)
    others = random.choice(num_classes, count, False, shuffle=False)
    others = np.setdiff1d(others, labels)
    share = len(others) / max(num_classes - len(labels), 1)
    log_counts = np.zeros(len(labels) + len(others), np.float32)
    if len(others):
        log_counts[len(labels) :] = np.log(share)
    return np.concatenate([labels, others]), log_counts
