"""Softmax cross-entropy of logits that fit in memory, read once.

`tfxclass.rows.loss` streams the logits of all classes, with the same terms.
"""

from collections.abc import Sequence

import tensorflow as tf

from tfxclass.core import targets as targets_lib
from tfxclass.keras_internals import custom_gradient
from tfxclass.ops import library
from tfxclass.types import Margin
from tfxclass.types import Scalar

#: Logit of a class that was removed: its probability is 0, and sums of such
#: numbers are still finite.
REMOVED_LOGIT = -1e9


class TargetTerms:
    """Loss and gradient at the targets, given their logits `[batch, p]`."""

    def __init__(
        self,
        logits: tf.Tensor,
        targets: targets_lib.Targets,
        margin: Margin | None,
    ) -> None:
        adjusted, self.slope = targets_lib.with_margin(logits, margin)
        self.targets = targets
        self.adjusted = adjusted
        self.delta = tf.where(targets.ids >= 0, adjusted - logits, 0.0)

    def weighted(self) -> tf.Tensor:
        """Mean logit of a row's targets, margin taken off; `[batch]`."""
        # Padding has the logit of class 0, which may be infinite.
        return tf.reduce_sum(
            tf.math.multiply_no_nan(self.adjusted, self.targets.weights), axis=1
        )

    def grad(self, logsumexp: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
        """Gradient at the targets, `[batch, p]`."""
        softmax = probabilities(self.adjusted, logsumexp[:, tf.newaxis])
        at_targets = (softmax - self.targets.weights) * self.slope
        return at_targets * upstream[:, tf.newaxis]


def softmax_cross_entropy(
    logits: tf.Tensor,
    targets: targets_lib.Targets,
    margin: Margin | None = None,
) -> tf.Tensor:
    """Cross-entropy of each example with the mean of its targets, `[batch]`.

    The ids of `targets` are columns of `logits`, float32 `[batch, n]`.
    """
    offset = tf.zeros([], tf.int64)

    @custom_gradient
    def loss_of(logits):
        of_targets = targets_lib.take_columns(logits, targets.ids)
        terms = TargetTerms(of_targets, targets, margin)
        empty = empty_stats(tf.shape(logits)[0])
        stats = library.ops.tfxclass_softmax_block_stats(
            logits, targets.ids, terms.delta, offset, *empty
        )
        logsumexp = logsumexp_of(*stats)

        def grad(upstream):
            return library.ops.tfxclass_softmax_block_grad(
                logits,
                targets.ids,
                terms.grad(logsumexp, upstream),
                offset,
                tf.cast(logsumexp, tf.float32),
                upstream * targets.is_labelled,
            )

        # Not a product: a row without labels may have an infinite logsumexp.
        losses = log_ratio(logsumexp, terms.weighted())
        return tf.where(targets.is_labelled > 0, losses, 0.0), grad

    return loss_of(logits)


def empty_stats(batch: Scalar) -> tuple[tf.Tensor, tf.Tensor]:
    """Max and sum of exponentials of no logits, `[batch]`.

    The sum is float64, as what is made of it: a float32 sum over 3M classes is
    off by 3e-4, and a float32 logsumexp moves probabilities by 1e-6 or more.
    """
    return tf.fill([batch], float("-inf")), tf.zeros([batch], tf.float64)


def logsumexp_of(top: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
    """float64, of stats."""
    return tf.cast(top, tf.float64) + tf.math.log(tf.cast(total, tf.float64))


def log_ratio(logsumexp: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """-log of the softmax, float32, of float32 `logits`."""
    return tf.cast(logsumexp - tf.cast(logits, logsumexp.dtype), tf.float32)


def probabilities(logits: tf.Tensor, logsumexp: tf.Tensor) -> tf.Tensor:
    """Softmax of `logits`, float32, given their `logsumexp`."""
    shifted = tf.cast(logits, logsumexp.dtype) - logsumexp
    return tf.cast(tf.exp(shifted), tf.float32)


def first_order_gradients(
    name: str, grads: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """`grads` of the loss `name`; their own gradients raise ValueError.

    A loss that hides its inputs from the tape is a constant to a second tape: a
    gradient penalty, or a Hessian, would silently be nothing. `inputs` are
    tensors of rank 1 or more, as the loss was given them.
    """
    message = (
        f"{name} has first-order gradients only. For others (gradient "
        "penalties, Hessians, MAML) differentiate "
        "`tf.nn.softmax_cross_entropy_with_logits(y, "
        "head.logits(features))`, which holds [batch, num_classes]; "
        "or put `tf.stop_gradient` around the gradients."
    )
    # A row of each is enough to be known to the tape: no matrix is copied to
    # another device for this. Each gradient apart: what nobody reads is pruned.
    first_rows = [x[:1] for x in inputs]
    return [refuse_gradient(x, message, *first_rows) for x in grads]


def refuse_gradient(
    tensor: tf.Tensor, message: str, *inputs: tf.Tensor
) -> tf.Tensor:
    """`tensor`; its gradient, by `inputs`, too, is a ValueError."""

    @custom_gradient
    def sealed(tensor, *inputs):
        def grad(*upstream):
            raise ValueError(message)

        return tf.identity(tensor), grad

    return sealed(tensor, *inputs)
