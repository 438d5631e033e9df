"""A part of the exact softmax: two passes over its class vectors."""

import tensorflow as tf

from tfxclass.core.softmax import TargetTerms
from tfxclass.core.softmax import log_ratio
from tfxclass.core.softmax import logsumexp_of
from tfxclass.core.targets import Targets
from tfxclass.ops import bfloat16_rows
from tfxclass.ops import exact_softmax
from tfxclass.ops import library
from tfxclass.ops import norms
from tfxclass.ops.exact_softmax import ClassGradient
from tfxclass.ops.placement import on_gpu
from tfxclass.rows import blocks
from tfxclass.rows import exact_blocks
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.rows.exact_blocks import BlockGradient
from tfxclass.types import Margin


class ExactPart:
    """A part, as `loss_parts.py` describes it; `grad` makes its `gradient`.

    `uniform` is the mass of each class in addition to the targets, and
    `is_recorded` tells whether gradients will be asked for.
    """

    gradient: ClassGradient

    def __init__(
        self,
        queries: tf.Tensor,
        rows: ClassRows,
        targets: Targets,
        margin: Margin | None,
        uniform: float = 0.0,
        is_recorded: bool = True,
    ) -> None:
        is_on_gpu = on_gpu(rows.device)
        is_half = bfloat16_rows.is_half(rows.kernel)
        self._block = None
        if is_on_gpu or not library.has_op("exact_softmax"):
            batch, dim = queries.shape
            batch = tf.shape(queries)[0] if batch is None else batch
            self._block = blocks.block_size(batch, is_on_gpu, dim)
        # Whether the op rounds the factors of logits, too.
        is_narrow = (
            self._block is None
            and rows.bfloat16_products
            and exact_softmax.multiplies_bfloat16()
        )
        self._bfloat16_products = is_narrow or (
            is_on_gpu and (is_half or rows.bfloat16_products)
        )
        # TensorFloat-32 holds bfloat16 numbers: on a GPU, the logits of targets
        # are then among the others to the last bits.
        if is_narrow or (is_on_gpu and is_half):
            queries = _rounded(queries)
        self.queries, self.rows = queries, rows
        self.uniform, self._is_recorded = uniform, is_recorded
        self._epsilon = norms.EPSILON if rows.normalize else 0.0
        safe = tf.maximum(targets.ids, 0)
        taken = bfloat16_rows.widen(tf.gather(rows.kernel, safe))
        # Rounded as the op does: the logits of targets are among its own.
        factors = _rounded(taken) if is_narrow else taken
        if rows.normalize:
            inverse = norms.inverse_norms(taken)[..., tf.newaxis]
            taken, factors = taken * inverse, factors * inverse
        logits = tf.reduce_sum(self.queries[:, tf.newaxis] * factors, axis=2)
        if rows.bias is not None:
            logits += tf.gather(rows.bias, safe)
        self._target_rows = taken
        self._terms = TargetTerms(logits, targets, margin)

    def stats(self) -> tf.Tensor:
        """Max, sum of exponentials and target; float32 `[batch of all, 3]`."""
        found = self._sums(self._is_recorded)
        self._top, total, self._sum_of_rows, *self._kept = found
        # Rounding a finished sum to float32 makes no visible difference.
        total = tf.cast(total, tf.float32)
        target = self._terms.weighted()
        if self.uniform:
            all_blocks = blocks.Blocks(self.queries, self.rows)
            self._all_rows, bias = all_blocks.sum_of_rows()
            logits = tf.linalg.matvec(self.queries, self._all_rows) + bias
            target += self.uniform * logits
        return tf.stack([self._top, total, target], axis=1)

    def _sums(self, wants_rows):
        queries, rows, narrow = self.queries, self.rows, self._bfloat16_products
        given = self._terms.targets.ids, self._terms.delta
        if self._block is None:
            return exact_softmax.sums(
                *(queries, rows.kernel, rows.bias, *given),
                epsilon=self._epsilon,
                wants_rows=wants_rows,
                # A product by AMX takes less time than reading them.
                kept_bytes=rows.kept_bytes * (wants_rows and not narrow),
                bfloat16_products=narrow,
            )
        all_blocks = blocks.Blocks(queries, rows, size=self._block)
        return exact_blocks.sums(all_blocks, *given, wants_rows, narrow)

    @staticmethod
    def merged(stats: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """`(losses, logsumexp)` of max, sum of exponentials and target."""
        tops, totals, targets = tf.unstack(stats, num=3, axis=2)
        sums = logsumexp_of(tops, totals)
        logsumexp = tf.reduce_logsumexp(sums, axis=0)
        return log_ratio(logsumexp, tf.reduce_sum(targets, axis=0)), logsumexp

    def grad(
        self, logsumexp: tf.Tensor, upstream: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Gradients of the queries, the rows and, or None, the bias."""
        ids = self._terms.targets.ids
        at_targets = self._terms.grad(logsumexp, upstream)
        kind = ClassGradient if self._block is None else BlockGradient
        self.gradient = kind(
            self.queries,
            self.rows.bias,
            ids,
            tf.where(ids >= 0, at_targets, 0.0),
            tf.cast(logsumexp, tf.float32),
            upstream,
            self.uniform,
            self._epsilon,
            self._bfloat16_products,
            self._block,
            self._kept,
        )
        of_rows = self.gradient.dense(self.rows.kernel)
        return self._queries_grad(logsumexp), *of_rows

    def _queries_grad(self, logsumexp):
        if not self._is_recorded:
            self._sum_of_rows = self._sums(True)[2]
        shift = tf.exp(tf.cast(self._top, tf.float64) - logsumexp)
        # The mean of the class rows by the softmax, but for the targets'.
        mean = self._sum_of_rows * tf.cast(shift, tf.float32)[:, tf.newaxis]
        if self.uniform:
            mean -= self.uniform * self._all_rows
        gradient = self.gradient
        at_targets = tf.reduce_sum(
            gradient.target_grads[:, :, tf.newaxis] * self._target_rows, axis=1
        )
        factor = gradient.factor[:, tf.newaxis]
        return at_targets + tf.math.multiply_no_nan(mean, factor)


def _rounded(numbers):
    """As bfloat16 holds them, float32."""
    return tf.cast(tf.cast(numbers, tf.bfloat16), tf.float32)
