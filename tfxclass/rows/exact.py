"""A part of the exact softmax: two passes over its rows.

On a CPU, and on a GPU where rows are bfloat16: those products are the tensor
cores' (custom_ops/kernels/exact_softmax.cu.h). float32 rows take blocks of
logits there, by TensorFlow's products (`loss_parts.py`).
"""

from collections.abc import Iterable

import tensorflow as tf

from tfxclass.core.targets import Targets
from tfxclass.ops import bfloat16_rows
from tfxclass.ops import exact_softmax
from tfxclass.ops import library
from tfxclass.ops.exact_softmax import ClassGradient
from tfxclass.ops.placement import on_gpu
from tfxclass.rows import norms
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.rows.loss_parts import SoftmaxPart
from tfxclass.types import Margin


def is_used(parts: Iterable[ClassRows]) -> bool:
    """Whether exact losses over these parts go this way.

    There are no fallback ops for it.
    """
    return library.has_op("exact_softmax") and all(
        bfloat16_rows.is_half(rows.kernel) or not on_gpu(rows.device)
        for rows in parts
    )


class ExactPart(SoftmaxPart):
    """A part of a softmax; `grad` makes its `gradient`.

    `is_recorded` tells whether gradients will be asked for.
    """

    gradient: ClassGradient

    def __init__(
        self,
        queries: tf.Tensor,
        rows: ClassRows,
        targets: Targets,
        columns: tf.Tensor,
        margin: Margin | None,
        uniform: float = 0.0,
        is_recorded: bool = True,
    ) -> None:
        self._is_narrow = (
            rows.bfloat16_products and exact_softmax.multiplies_bfloat16()
        )
        if self._is_narrow or on_gpu(rows.device):
            queries = _rounded(queries)
        self._is_recorded = is_recorded
        self._epsilon = norms.EPSILON if rows.normalize else 0.0
        super().__init__(
            queries, rows, targets, columns, margin, uniform=uniform
        )

    def _target_logits(self):
        rows, safe = self.rows, tf.maximum(self.ids, 0)
        taken = bfloat16_rows.widen(tf.gather(rows.kernel, safe))
        # Rounded as the op does: the logits of targets are among its own.
        factors = _rounded(taken) if self._is_narrow else taken
        if rows.normalize:
            inverse = norms.inverse_norms(taken)[..., tf.newaxis]
            taken, factors = taken * inverse, factors * inverse
        self._target_rows = taken
        logits = tf.einsum("bd,bpd->bp", self.blocks.queries, factors)
        if rows.bias is not None:
            logits += tf.gather(rows.bias, safe)
        return logits

    def _sums(self):
        self._top, total, self._weighted_rows = self._pass(self._is_recorded)
        return self._top, total

    def _pass(self, wants_rows):
        """One pass over all classes.

        Returns `(top, total, weighted_rows)`: float32 and float64 `[batch]`,
        the log-sum-exp is top + log(total); float32 `[batch, dim]`, the sum of
        exp(logit - top) times the (normalized) row over all classes but the
        targets, or `[0, dim]`.
        """
        return library.ops.tfxclass_exact_softmax(
            queries=self.blocks.queries,
            kernel=self.rows.kernel,
            bias=[] if self.rows.bias is None else [self.rows.bias],
            targets=self.ids,
            deltas=self.terms.delta,
            epsilon=self._epsilon,
            wants_rows=wants_rows,
            bfloat16_products=self._is_narrow,
        )

    def grad(
        self, logsumexp: tf.Tensor, upstream: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Gradients of the queries, the rows and, or None, the bias."""
        at_targets = self.terms.grad(logsumexp, upstream)
        self.gradient = ClassGradient(
            self.blocks.queries,
            self.rows.bias,
            self.ids,
            tf.where(self.ids >= 0, at_targets, 0.0),
            tf.cast(logsumexp, tf.float32),
            upstream * self._is_labelled,
            self.uniform,
            self._epsilon,
            self._is_narrow,
        )
        return (
            self._queries_grad(logsumexp),
            *exact_softmax.dense_gradients(self.rows.kernel, self.gradient),
        )

    def _queries_grad(self, logsumexp):
        if not self._is_recorded:
            self._weighted_rows = self._pass(True)[2]
        shift = tf.exp(tf.cast(self._top, tf.float64) - logsumexp)
        # The mean of the class rows by the softmax, but for the targets'.
        mean = self._weighted_rows * tf.cast(shift, tf.float32)[:, tf.newaxis]
        if self.uniform:
            mean -= self.uniform * self.sum_of_rows
        gradient = self.gradient
        at_targets = tf.einsum(
            "bp,bpd->bd", gradient.target_grads, self._target_rows
        )
        factor = gradient.factor[:, tf.newaxis]
        return at_targets + tf.math.multiply_no_nan(mean, factor)


def _rounded(numbers):
    """As bfloat16 holds them, float32."""
    return tf.cast(tf.cast(numbers, tf.bfloat16), tf.float32)
