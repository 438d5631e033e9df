"""The sum of all logits of a row, estimated on a part's sample."""

import tensorflow as tf

from tfxclass.core.targets import Targets
from tfxclass.ops import placement
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.types import Margin


class UniformPart:
    """Uniform part of a sampled loss, for `streamed_loss`.

    A product with the sum of the rows, each over its expected count: no
    logits.

    Args:
        queries: float32 `[batch, dim]`, of the batch of all.
        rows: `ClassRows` of tensors with `log_counts`.
        targets: `Targets` of the batch of all.
        columns, margin: not read; other parts have them.
    """

    def __init__(
        self,
        queries: tf.Tensor,
        rows: ClassRows,
        targets: Targets,
        columns: tf.Tensor,
        margin: Margin | None,
    ) -> None:
        del columns, margin
        self.queries, self.rows = queries, rows
        self._is_labelled = targets.is_labelled
        with placement.on(rows.device):
            self._weights = tf.exp(-rows.log_counts)

    def stats(self) -> tf.Tensor:
        """The part's sum; float32 `[batch, 1]`."""
        with placement.on(self.rows.device):
            sums = tf.linalg.matvec(self.queries, self._sum_of_rows())
            if self.rows.bias is not None:
                sums += tf.tensordot(self._weights, self.rows.bias, 1)
            return sums[:, tf.newaxis]

    def _sum_of_rows(self):
        return tf.linalg.matvec(
            self.rows.kernel, self._weights, transpose_a=True
        )

    @staticmethod
    def merged(stats: tf.Tensor) -> tuple[tf.Tensor, None]:
        """`(sums, None)`, float32 `[batch]`, of `[parts, batch, 1]`."""
        return tf.reduce_sum(stats[:, :, 0], axis=0), None

    def grad(
        self, state: None, upstream: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Gradients of the queries, the rows and, or None, the bias."""
        with placement.on(self.rows.device):
            factor = (upstream * self._is_labelled)[:, tf.newaxis]
            of_sum = tf.reduce_sum(factor * self.queries, axis=0)
            of_bias = None
            if self.rows.bias is not None:
                of_bias = self._weights * tf.reduce_sum(factor)
            return (
                factor * self._sum_of_rows(),
                self._weights[:, tf.newaxis] * of_sum,
                of_bias,
            )
