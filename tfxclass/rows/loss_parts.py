"""What `streamed_loss` computes of a part of the classes.

A part is called where its class rows lie, with the queries of all replicas,
float32 `[batch, dim]`, and `Targets` whose ids are its rows, or -1.

- `stats()` gives some numbers of each row, float32 `[batch, n]`, that cross
  between replicas; `merged` makes losses `[batch]` of all parts' numbers, and a
  state that the gradients need.
- `grad(state, upstream)`, 0 of rows without labels, gives the gradients of the
  queries, of the class rows and, or None, of the biases.
"""

import tensorflow as tf

from tfxclass.core import one_vs_rest
from tfxclass.core.targets import Targets
from tfxclass.ops import bfloat16_rows
from tfxclass.ops import library
from tfxclass.ops import norms
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.blocks import logits_at
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.types import Margin


class OneVsRestPart:
    """One-vs-rest losses, by TensorFlow's own ops; `binary` is a `Binary`.

    Logits are computed a block of classes at a time, in both passes. If the
    classes are a sample, the losses of classes that are no labels are divided
    by the expected counts.
    """

    def __init__(
        self,
        queries: tf.Tensor,
        rows: ClassRows,
        targets: Targets,
        margin: Margin | None,
        binary: one_vs_rest.Binary,
    ) -> None:
        self.binary, self.rows = binary, rows
        self.ids = targets.ids
        self.blocks = Blocks(queries, rows)
        counts = rows.log_counts
        self.class_weights = None if counts is None else tf.exp(-counts)
        logits = logits_at(queries, rows, targets.ids)
        self.terms = one_vs_rest.LabelTerms(binary, logits, targets, margin)

    def stats(self) -> tf.Tensor:
        """The sum of the losses; float32 `[batch of all, 1]`."""

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
        columns = self.ids - tf.cast(start, tf.int64)
        size = tf.cast(self.blocks.size, tf.int64)
        is_here = (columns >= 0) & (columns < size)
        return tf.where((self.ids >= 0) & is_here, columns, -1)

    def _weights(self, start):
        if self.class_weights is None:
            return None
        return self.class_weights[start : start + self.blocks.size]

    @staticmethod
    def merged(stats: tf.Tensor) -> tuple[tf.Tensor, None]:
        """`(losses, None)` of a sum of losses."""
        return tf.reduce_sum(stats[:, :, 0], axis=0), None

    def grad(
        self, state: None, upstream: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Gradients of the queries, the rows and, or None, the bias."""
        of_labels = self.terms.grad(upstream)
        rows, blocks = self.rows, self.blocks
        has_bias = rows.bias is not None
        empty = library.ops.tfxclass_empty_like

        def step(start, queries_grad, kernel_grad, bias_grad):
            stored, part = blocks.read(start)
            by_logits = one_vs_rest.logits_grad(
                self.binary,
                blocks.logits(start, part),
                self._columns(start),
                of_labels,
                upstream,
                self._weights(start),
            )
            rows_grad = tf.matmul(by_logits, blocks.queries, transpose_a=True)
            if rows.normalize:
                rows_grad = norms.normalize_grad(stored, part, rows_grad)
            kernel_grad = library.ops.tfxclass_write_rows(
                kernel_grad, rows_grad, start
            )
            if has_bias:
                bias_grad = library.ops.tfxclass_write_rows(
                    bias_grad, tf.reduce_sum(by_logits, axis=0), start
                )
            return queries_grad + by_logits @ part, kernel_grad, bias_grad

        is_half = bfloat16_rows.is_half(rows.kernel)
        found = blocks.fold(
            step,
            (
                tf.zeros_like(blocks.queries),
                tf.zeros(tf.shape(rows.kernel))
                if is_half
                else empty(rows.kernel),
                empty(rows.bias) if has_bias else tf.zeros([0]),
            ),
        )
        return found if has_bias else (*found[:2], None)
