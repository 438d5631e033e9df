"""The softmax cross-entropy of a part of the classes."""

from collections.abc import Callable

import tensorflow as tf

from tfxclass.core.softmax import TargetTerms
from tfxclass.core.softmax import empty_stats
from tfxclass.core.softmax import log_ratio
from tfxclass.core.softmax import logsumexp_of
from tfxclass.core.targets import Targets
from tfxclass.ops import library
from tfxclass.rows.blocks import Blocks
from tfxclass.types import Margin


class SoftmaxPart:
    """Softmax losses of a part's blocks, for `streamed_loss`.

    Args:
        blocks: `Blocks` of the part, on the batch of all.
        logits: float32 `[batch, p]`, of the targets.
        targets: `Targets` whose ids are rows of the part, -1 for others.
        margin: function of the target logits, or None.
        uniform: float, mass of each class in addition to the targets.
    """

    def __init__(
        self,
        blocks: Blocks,
        logits: tf.Tensor,
        targets: Targets,
        margin: Margin | None,
        uniform: float = 0.0,
    ) -> None:
        self.blocks, self.uniform = blocks, uniform
        self.terms = TargetTerms(logits, targets, margin)

    def stats(self) -> tf.Tensor:
        """Max, sum of exponentials and target; float32 `[batch, 3]`."""
        terms = self.terms

        def step(start, top, total):
            return library.ops.tfxclass_softmax_block_stats(
                self.blocks.logits(start),
                terms.targets.ids,
                terms.delta,
                start,
                top,
                total,
            )

        top, total = self.blocks.fold(step, empty_stats(self.blocks.batch))
        # Rounding a finished sum to float32 makes no visible difference.
        total = tf.cast(total, tf.float32)
        target = terms.weighted() + self._uniform_logits()
        return tf.stack([top, total, target], axis=1)

    def _uniform_logits(self):
        """The sum of all logits times their mass, `[batch]`."""
        if not self.uniform:
            return 0.0
        kernel, bias = self.blocks.sum_of_rows()
        summed = tf.linalg.matvec(self.blocks.queries, kernel)
        return self.uniform * (summed + bias)

    @staticmethod
    def merged(stats: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """`(losses, logsumexp)`, `[batch]`, of `[parts, batch, 3]`."""
        tops, totals, targets = tf.unstack(stats, num=3, axis=2)
        sums = logsumexp_of(tops, totals)
        logsumexp = tf.reduce_logsumexp(sums, axis=0)
        return log_ratio(logsumexp, tf.reduce_sum(targets, axis=0)), logsumexp

    def gradient(
        self, logsumexp: tf.Tensor, upstream: tf.Tensor
    ) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        """Function of the first class and the logits of a block.

        Args:
            logsumexp: what `merged` found.
            upstream: float32 `[batch]`, 0 for rows without labels.
        """
        at_targets = self.terms.grad(logsumexp, upstream)
        logsumexp = tf.cast(logsumexp, tf.float32)
        # What the uniform mass takes off each logit of a row.
        lift = upstream[:, tf.newaxis] * self.uniform if self.uniform else None

        def logits_grad(start, logits):
            grad = library.ops.tfxclass_softmax_block_grad(
                logits,
                self.terms.targets.ids,
                at_targets,
                start,
                logsumexp,
                upstream,
            )
            return grad if lift is None else grad - lift

        return logits_grad
