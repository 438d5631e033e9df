"""The log-sum-exp of all logits, estimated from a part of the lists."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxclass.types import Config

# Bisections of the factor, between none and so much.
_STEPS, _MAX_FACTOR = 24, 4.0


class Seen(NamedTuple):
    """What some queries have read.

    Attributes:
        total: float32 `[batch]`, log-sum-exp of `scale` times the logits of
            the lists that were read.
        queries: float32 `[batch, dim]`.
        means: float32 `[batch, lists]`, products with the mean rows.
        probes: int32 `[batch, n]`, the lists that were read.
    """

    total: tf.Tensor
    queries: tf.Tensor
    means: tf.Tensor
    probes: tf.Tensor


class ListSums(tf.Module):
    """Statistics of a list whose class vectors are not read.

    Where the logits of a list are normally distributed, the log of their mean
    exponential is their mean and half their variance. The variance for a query
    q is taken for `factor * variance * q.q`, the variance of a list's numbers
    about its mean row, the factor one for all lists.

    Args:
        variances: float32 `[lists]`, mean over dimensions of the variance.
        log_masses: float32 `[lists]`, log of the number of its classes, or of
            the sum of exp(scale * bias).
        scale: float, what logits are multiplied by in answers.
    """

    def __init__(
        self, variances: tf.Tensor, log_masses: tf.Tensor, scale: float
    ) -> None:
        super().__init__()
        self.scale = scale
        self.variances = tf.Variable(variances, trainable=False)
        self.log_masses = tf.Variable(log_masses, trainable=False)
        self.factor = tf.Variable(1.0, trainable=False)

    def total(self, seen: Seen) -> tf.Tensor:
        """The estimate of the log-sum-exp of all, float32 `[batch, 1]`."""
        terms, spreads = self._of_lists(seen)
        rest = tf.reduce_logsumexp(terms + self.factor * spreads, axis=1)
        both = tf.stack([seen.total, rest], axis=1)
        return tf.reduce_logsumexp(both, axis=1, keepdims=True)

    def _of_lists(self, seen):
        """Terms of the lists, -inf of those read, and what a factor adds."""
        terms = self.scale * seen.means + self.log_masses
        shape = tf.shape(seen.probes)
        batch = tf.range(shape[0])[:, tf.newaxis]
        places = tf.stack([tf.broadcast_to(batch, shape), seen.probes], axis=2)
        none = tf.fill(shape, float("-inf"))
        terms = tf.tensor_scatter_nd_update(terms, places, none)
        norms = tf.reduce_sum(tf.square(self.scale * seen.queries), axis=1)
        return terms, 0.5 * norms[:, tf.newaxis] * self.variances

    def fit(self, seen: Seen, exact: np.ndarray) -> Config:
        """Chooses the factor by some of the queries; the error of the others.

        With it the mean error is 0, or as near to it as it comes.

        Args:
            seen: `Seen`, of two queries or more.
            exact: float64 `[batch, 1]`, the log-sum-exp of all logits.

        Returns:
            Dict of the `max` and `mean` of the absolute error.
        """
        one, other = (
            (Seen(*(x[i::2] for x in seen)), exact[i::2]) for i in range(2)
        )
        low, high = 0.0, _MAX_FACTOR
        for _ in range(_STEPS):
            self.factor.assign((low + high) / 2)
            # It rises with the factor.
            if np.mean(self.total(one[0]) - one[1]) > 0:
                high = float(self.factor)
            else:
                low = float(self.factor)
        errors = np.abs(self.total(other[0]) - other[1])
        return {"max": float(errors.max()), "mean": float(errors.mean())}


def variances(
    rows: tf.Tensor, means: tf.Tensor, of_list: np.ndarray
) -> tf.Tensor:
    """Mean variance of the rows of each list, float32 `[lists]`.

    `of_list`, int `[n]`, is the list of each row, rising.
    """
    errors = tf.math.squared_difference(rows, tf.gather(means, of_list))
    return tf.math.segment_mean(tf.reduce_mean(errors, axis=1), of_list)


def log_masses(bias: tf.Tensor, of_list: np.ndarray) -> tf.Tensor:
    """Log of the sum of exp(bias) of each list, float32 `[lists]`."""
    top = tf.math.segment_max(bias, of_list)
    top = tf.maximum(top, tf.float32.min)
    exp = tf.exp(bias - tf.gather(top, of_list))
    return top + tf.math.log(tf.math.segment_sum(exp, of_list))
