"""Independent labels: a binary loss for each class, summed over all of them.

The loss of a label is `penalty(-logit)`, and any other class has
`penalty(logit)`: both losses are symmetric.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tfxclass.core import targets as targets_lib
from tfxclass.core.targets import Targets
from tfxclass.types import Margin


class Binary(NamedTuple):
    """A binary loss of classes that are no labels, and its derivative."""

    penalty: Callable[[tf.Tensor], tf.Tensor]
    slope: Callable[[tf.Tensor], tf.Tensor]


#: By name: the logistic loss, and max(0, 1 - y z)^2.
BINARY = {
    "sigmoid": Binary(tf.nn.softplus, tf.sigmoid),
    "squared_hinge": Binary(
        lambda logits: tf.square(tf.nn.relu(1.0 + logits)),
        lambda logits: 2.0 * tf.nn.relu(1.0 + logits),
    ),
}


def focal(binary: Binary, gamma: float) -> Binary:
    """The logistic loss times (the probability of being wrong)^gamma."""

    def factor(logits):
        # Finite derivatives where a logit is infinite.
        return tf.exp(-gamma * tf.nn.softplus(-logits))

    def slope(logits):
        p = tf.sigmoid(logits)
        return factor(logits) * (gamma * (1.0 - p) * binary.penalty(logits) + p)

    return Binary(lambda x: factor(x) * binary.penalty(x), slope)


def smoothed(binary: Binary, smoothing: float) -> Binary:
    """A class is what it is not with a probability of `smoothing` / 2."""
    own, other = 1 - smoothing / 2, smoothing / 2
    penalty, slope = binary
    return Binary(
        lambda x: own * penalty(x) + other * penalty(-x),
        lambda x: own * slope(x) - other * slope(-x),
    )


def one_vs_rest_loss(
    logits: tf.Tensor,
    targets: Targets,
    binary: Binary = BINARY["sigmoid"],
    class_weights: tf.Tensor | None = None,
    margin: Margin | None = None,
) -> tf.Tensor:
    """The sum over classes of binary losses, of logits that fit in memory.

    Args:
        logits: float32 `[batch, n]`.
        targets: `Targets` whose ids are columns of `logits`. The weight of a
            label multiplies its loss.
        class_weights: float32 `[n]` or `[batch, n]`, factors of the losses of
            other classes. The inverse expected counts of a sample make the sum
            and its gradient unbiased (Horvitz and Thompson, JASA 1952).

    Returns float32 `[batch]`, 0 for rows without labels.
    """
    of_labels = targets_lib.take_columns(logits, targets.ids)
    terms = LabelTerms(binary, of_labels, targets, margin)
    losses = negatives(binary, logits, targets.ids, class_weights)
    losses = tf.reduce_sum(losses, axis=1) + terms.losses()
    return tf.where(targets.is_labelled > 0, losses, 0.0)


def negatives(
    binary: Binary,
    logits: tf.Tensor,
    columns: tf.Tensor,
    class_weights: tf.Tensor | None = None,
) -> tf.Tensor:
    """Losses of the classes but the labels', which have 0; `[batch, n]`."""
    _, at = targets_lib.places_of(columns)
    losses = tf.tensor_scatter_nd_update(
        binary.penalty(logits), at, tf.zeros([tf.shape(at)[0]])
    )
    if class_weights is None:
        return losses
    # The loss of an infinite logit may be infinite, if it is smoothed.
    return tf.math.multiply_no_nan(losses, class_weights)


def logits_grad(
    binary: Binary,
    logits: tf.Tensor,
    columns: tf.Tensor,
    of_labels: tf.Tensor,
    upstream: tf.Tensor,
    class_weights: tf.Tensor | None = None,
) -> tf.Tensor:
    """Gradient by logits `[batch, n]`, given the labels' `[batch, p]`."""
    grad = binary.slope(logits) * upstream[:, tf.newaxis]
    if class_weights is not None:
        grad *= class_weights
    places, at = targets_lib.places_of(columns)
    return tf.tensor_scatter_nd_update(
        grad, at, tf.gather_nd(of_labels, places)
    )


class LabelTerms:
    """Loss and gradient at the labels, given their logits `[batch, p]`."""

    def __init__(
        self,
        binary: Binary,
        logits: tf.Tensor,
        targets: Targets,
        margin: Margin | None,
    ) -> None:
        # Padding has the logit of class 0, which may be infinite.
        self.is_label = targets.ids >= 0
        logits = tf.where(self.is_label, logits, 0.0)
        self.binary, self.weights = binary, targets.weights
        self.adjusted, self.slope = targets_lib.with_margin(logits, margin)

    def losses(self) -> tf.Tensor:
        """Their sum, float32 `[batch]`."""
        losses = self.weights * self.binary.penalty(-self.adjusted)
        return tf.reduce_sum(tf.where(self.is_label, losses, 0.0), axis=1)

    def grad(self, upstream: tf.Tensor) -> tf.Tensor:
        """Gradient by the logits, float32 `[batch, p]`."""
        slopes = -self.weights * self.binary.slope(-self.adjusted)
        return slopes * self.slope * upstream[:, tf.newaxis]
