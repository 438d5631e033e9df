"""Class rows with retain probabilities: how DropMax predicts.

With the expected mask (equation 18 of its first version) in blocks of
classes, or as the mean over samples of masks (equation 17), which holds
[batch, num_classes].
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfxclass.core import softmax
from tfxclass.core.targets import Targets
from tfxclass.losses import dropmax
from tfxclass.ops import placement
from tfxclass.rows import search
from tfxclass.rows import stock_search
from tfxclass.rows.best import Best
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.blocks import logits_at


class Retained(NamedTuple):
    """Classes that are retained with probabilities rho.

    Attributes:
        rows: `ClassRows` of the logits o.
        retain: `ClassRows` of the logits of rho; None where it is given.
        retain_logit: float, logit of the given rho.
        predict_samples: int, masks of a prediction; None for the expected one.
        seed: int, of the masks.
    """

    rows: Any
    retain: Any
    retain_logit: float | None
    predict_samples: int | None
    seed: int

    def here(self) -> "Retained":
        """A copy with tensors, without padding."""
        retain = None if self.retain is None else self.retain.whole()
        return self._replace(rows=self.rows.whole(), retain=retain)

    def expected(
        self, logits: tf.Tensor, retain_logits: tf.Tensor
    ) -> tf.Tensor:
        """Logits of equation 18."""
        # A rho that is the same for all classes moves no probability.
        if self.retain is None:
            return logits
        return dropmax.expected_logits(logits, retain_logits)

    def predicted(
        self, logits: tf.Tensor, retain_logits: tf.Tensor
    ) -> tf.Tensor:
        """Logits whose softmax is the prediction, of all classes."""
        if self.predict_samples is None:
            return self.expected(logits, retain_logits)
        return dropmax.mixture_log_probabilities(
            logits, retain_logits, self.predict_samples, self.seed
        )

    def all_retain_logits(self, queries: tf.Tensor) -> tf.Tensor:
        """Logits of rho, float32 `[batch, num_classes]`, or a scalar."""
        if self.retain is None:
            return tf.constant(self.retain_logit)
        return self.retain.products(queries)

    def all_logits(self, queries: tf.Tensor) -> tf.Tensor:
        """float32 `[batch, num_classes]`, of the prediction."""
        if self.rows.is_stock:
            return self._stock_logits(queries, 0, self.rows.num_classes)
        with placement.on(self.rows.device):
            logits = self.rows.products(queries)
            return self.predicted(logits, self.all_retain_logits(queries))

    def logits_of(self, queries: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Logits of classes `[batch, q]`.

        Samples of masks are taken from the logits of all classes.
        """
        if self.predict_samples is not None:
            logits = self.all_logits(queries)
            return tf.gather(logits, tf.maximum(ids, 0), axis=1, batch_dims=1)
        with placement.on(self.rows.device):
            return self._expected_at(queries, ids)

    def _expected_at(self, queries, ids):
        """Logits of equation 18 of classes `[batch, q]`."""
        here = self.here()
        logits = logits_at(queries, here.rows, ids)
        if here.retain is None:
            return logits
        return self.expected(logits, logits_at(queries, here.retain, ids))

    def best(
        self, queries: tf.Tensor, k: int, with_logsumexp: bool = True
    ) -> Best:
        """`Best` of the prediction."""
        lib = stock_search if self.rows.is_stock else search
        if self.predict_samples is not None:
            found = lib.best_of_logits(self.all_logits(queries), k)
            # They are log-probabilities already.
            return found._replace(logsumexp=tf.zeros_like(found.logits[:, :1]))
        here, rows = self.here(), self.rows
        if rows.is_stock:
            return stock_search.best_of_blocks(
                lambda *block: here._stock_logits(queries, *block),
                tf.shape(queries)[0],
                rows.num_classes,
                k,
                with_logsumexp,
                stock_search.block_of(rows),
            )
        with placement.on(rows.device):
            blocks = _ExpectedBlocks(queries, here)
            return search.best_of_blocks(blocks, k, with_logsumexp)

    def losses(self, queries: tf.Tensor, targets: Targets) -> tf.Tensor:
        """Cross-entropy of the expected mask, streamed, without gradient."""
        with placement.on(self.rows.device):
            logits = self._expected_at(queries, targets.ids)
            logsumexp = self.best(queries, 1).logsumexp[:, 0]
        target = softmax.TargetTerms(logits, targets, None).weighted()
        losses = softmax.log_ratio(logsumexp, target)
        return tf.where(targets.is_labelled > 0, losses, 0.0)

    def _stock_logits(self, queries, start, size):
        """Logits of the prediction, for a block of classes of an export."""
        logits = stock_search.block_logits(queries, self.rows, start, size)
        retain = tf.constant(self.retain_logit or 0.0)
        if self.retain is not None:
            retain = stock_search.block_logits(
                queries, self.retain, start, size
            )
        return self.predicted(logits, retain)


class _ExpectedBlocks(Blocks):
    """Blocks of logits with the expected mask."""

    def __init__(self, queries, retained):
        super().__init__(queries, retained.rows)
        self.retained = retained
        if retained.retain is not None:
            self.retain = Blocks(queries, retained.retain)

    def logits(self, start, rows=None):
        logits = super().logits(start, rows)
        if self.retained.retain is None:
            return logits
        return self.retained.expected(logits, self.retain.logits(start))
