"""The binary losses of a part of the classes."""

from collections.abc import Callable

import tensorflow as tf

from tfxclass.core import one_vs_rest
from tfxclass.core.targets import Targets
from tfxclass.rows.blocks import Blocks
from tfxclass.types import Margin


class OneVsRestPart:
    """One-vs-rest losses of a part's blocks, for `streamed_loss`.

    Stock ops: a block is read and written some times more than a softmax's.

    Args:
        blocks: `Blocks` of the part, on the batch of all.
        logits: float32 `[batch, p]`, of the labels.
        targets: `Targets` whose ids are rows of the part, -1 for others.
        margin: function of the labels' logits, or None.
        binary: `tfxclass.core.one_vs_rest.Binary`.
    """

    def __init__(
        self,
        blocks: Blocks,
        logits: tf.Tensor,
        targets: Targets,
        margin: Margin | None,
        binary: one_vs_rest.Binary,
    ) -> None:
        self.blocks, self.ids = blocks, targets.ids
        self.binary = binary
        self.terms = one_vs_rest.LabelTerms(
            self.binary, logits, targets, margin
        )
        counts = blocks.class_rows.log_counts
        self.class_weights = None if counts is None else tf.exp(-counts)

    def stats(self) -> tf.Tensor:
        """The part's sum of losses; float32 `[batch, 1]`."""

        def step(start, total):
            losses = one_vs_rest.negatives(
                self.binary,
                self.blocks.logits(start),
                self._columns(start),
                self._weights(start),
            )
            # TensorFlow sums a block in pairs; sums over blocks need float64.
            return [total + tf.cast(tf.reduce_sum(losses, axis=1), tf.float64)]

        zeros = tf.zeros([self.blocks.batch], tf.float64)
        (total,) = self.blocks.fold(step, (zeros,))
        losses = tf.cast(total, tf.float32) + self.terms.losses()
        return losses[:, tf.newaxis]

    def _columns(self, start):
        """Columns of the labels in a block, -1 for others."""
        columns = self.ids - start
        is_here = (columns >= 0) & (columns < self.blocks.size)
        return tf.where((self.ids >= 0) & is_here, columns, -1)

    def _weights(self, start):
        if self.class_weights is None:
            return None
        return self.class_weights[start : start + self.blocks.size]

    @staticmethod
    def merged(stats: tf.Tensor) -> tuple[tf.Tensor, None]:
        """`(losses, None)`, float32 `[batch]`, of `[parts, batch, 1]`."""
        return tf.reduce_sum(stats[:, :, 0], axis=0), None

    def gradient(
        self, state: None, upstream: tf.Tensor
    ) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        """Function of the first class and the logits of a block.

        Args:
            state: what `merged` found.
            upstream: float32 `[batch]`, 0 for rows without labels.
        """
        of_labels = self.terms.grad(upstream)

        def logits_grad(start, logits):
            return one_vs_rest.logits_grad(
                self.binary,
                logits,
                self._columns(start),
                of_labels,
                upstream,
                self._weights(start),
            )

        return logits_grad
