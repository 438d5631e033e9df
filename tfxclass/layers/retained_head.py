"""A head whose classes have retain probabilities: how it predicts."""

import math

import tensorflow as tf

from tfxclass import optimizers
from tfxclass import placement
from tfxclass import stock_top_k
from tfxclass import streaming
from tfxclass.checks import check_k
from tfxclass.checks import check_positive_int
from tfxclass.layers.sampled_head import SampledHead
from tfxclass.losses import dropmax
from tfxclass.losses import softmax
from tfxclass.ops.products import row_products


class RetainedHead(SampledHead):
    """Base class of `DropMax`: prediction with retain probabilities rho.

    By default with the expected mask (the paper's equation 18), in blocks of
    classes where the head trains on a sampler's; with `predict_samples` the
    mean over that many masks (equation 17), holding `[batch, num_classes]`.

    Args:
        num_classes: int, number of classes.
        retain_probability: float in (0, 1], rho of every class; None to learn
            it for each class and row.
        predict_samples: int, masks of a prediction; None for the expected one.
        **kwargs: `SampledHead`'s arguments.
    """

    sampler_is_optional = True

    def __init__(
        self,
        num_classes,
        retain_probability=None,
        predict_samples=None,
        **kwargs,
    ):
        super().__init__(num_classes, **kwargs)
        if retain_probability is not None and not 0 < retain_probability <= 1:
            raise ValueError(
                "`retain_probability` must be in (0, 1]. Received: "
                f"{retain_probability}"
            )
        if predict_samples is not None:
            check_positive_int("predict_samples", predict_samples)
        self.retain_probability = retain_probability
        self.predict_samples = predict_samples

    def build(self, input_shape):
        super().build(input_shape)
        self.retain = None
        if self.retain_probability is None:
            self.retain = self.add_affine("retain", input_shape[-1])

    def add_affine(self, name, dim):
        """`(kernel, bias)` of logits of their own, from zeros."""
        kernel = self.add_rows(
            f"{name}_kernel", (self.num_classes, dim), "zeros"
        )
        return kernel, self.add_rows(f"{name}_bias", kernel.shape[:1], "zeros")

    def affine(self, queries, weights, ids=None, settle=True):
        """Logits of `add_affine`'s weights for the classes `ids`, or all."""

        def read(variable):
            if settle:
                optimizers.catch_up(variable, ids)
            if ids is None:
                return tf.convert_to_tensor(variable)
            return placement.gather(variable, ids)

        kernel, bias = map(read, weights)
        return row_products(queries, kernel) + bias

    def retain_logits(self, queries, ids=None, settle=True):
        """Logits of rho, float32 `[batch, n]`; a scalar where rho is given."""
        if self.retain is not None:
            return self.affine(queries, self.retain, ids, settle)
        p = self.retain_probability
        return tf.constant(math.log(p) - math.log1p(-p) if p < 1 else 1e4)

    def retain_probabilities(self, features):
        """rho, float32 `[batch, num_classes]`."""
        with self.beside_rows():
            logits = self.retain_logits(self.queries(features))
        shape = [tf.shape(features)[0], self.num_classes]
        return tf.broadcast_to(tf.sigmoid(logits), shape)

    def expected_logits(self, logits, retain_logits):
        """Those of equation 18, of classes whose logits are given."""
        # A rho that is the same for all classes moves no probability.
        if self.retain is None:
            return logits
        return dropmax.expected_logits(logits, retain_logits)

    def predicted_logits(self, logits, retain_logits):
        """Those whose softmax is the prediction, of all classes."""
        if self.predict_samples is None:
            return self.expected_logits(logits, retain_logits)
        return dropmax.mixture_log_probabilities(
            logits, retain_logits, self.predict_samples, self.seed or 0
        )

    def raw_logits(self, queries, settle=True):
        """Logits before any mask, float32 `[batch, num_classes]`."""
        return super().all_logits(queries, settle)

    def all_logits(self, queries, settle=True):
        with self.beside_rows():
            logits = self.raw_logits(queries, settle)
            retain_logits = self.retain_logits(queries, settle=settle)
            return self.predicted_logits(logits, retain_logits)

    def exact_loss(self, queries, targets):
        """Cross-entropy of the prediction; float32 `[batch]`.

        With a sampler it is streamed in blocks, and has no gradient.
        """
        if self.sampler is None or self.predict_samples is not None:
            logits = self.all_logits(queries)
            return softmax.softmax_cross_entropy(logits, targets)
        return self._streamed_loss(queries, targets)

    def _streamed_loss(self, queries, targets):
        with self.beside_rows():
            logits = self._target_logits(queries, targets.ids)
            _, _, logsumexp = self._best(queries, 1)
        terms = softmax.TargetTerms(logits, targets, None)
        return self._without_loss_gradient(terms.loss(logsumexp[:, 0]))

    @tf.custom_gradient
    def _without_loss_gradient(self, losses):
        def grad(upstream):
            raise ValueError(
                f"The loss of {self.name!r} has a gradient with "
                "training=True, or without a sampler. Received: "
                "training=False."
            )

        return tf.identity(losses), grad

    def _target_logits(self, queries, ids):
        """Logits of equation 18, float32 `[batch, p]`."""

        def of(kernel, bias, normalize=False):
            return softmax.target_logits(queries, kernel, bias, normalize, ids)

        logits = of(
            self.class_matrix(),
            _tensor(self.bias),
            self.similarity == "cosine",
        )
        if self.retain is None:
            return logits
        return self.expected_logits(logits, of(*map(_tensor, self.retain)))

    def _best(self, queries, k, with_logsumexp=True):
        """`streaming.best_of_blocks` with the expected mask."""
        with self.beside_rows():
            blocks = _ExpectedBlocks(self, tf.shape(queries)[0])
            return streaming.best_of_blocks(blocks, queries, k, with_logsumexp)

    def top_k(self, features, k):
        check_k(k, self.num_classes)
        queries = self.queries(features)
        if self.predict_samples is not None:
            best = streaming.best_of_logits(self.all_logits(queries), k)
            return self._scored(*best, logsumexp=0.0)
        return self._scored(
            *self._best(queries, k, self.activation == "softmax")
        )

    def _scored(self, ids, logits, logsumexp):
        if self.activation is None:
            return ids, logits
        return ids, tf.exp(logits - logsumexp)

    def export_weights(self):
        """As `ClassHead`'s, and the kernel and bias of rho, or None twice."""
        retain = (None, None)
        if self.retain is not None:
            retain = tuple(variable.value for variable in self.retain)
        return (*super().export_weights(), *retain)

    def export_top_k(self, features, k, weights=None):
        check_k(k, self.num_classes)
        weights = self.export_weights() if weights is None else weights
        rows, bias, *retain = map(_tensor, weights)
        queries = self.queries(features)
        batch = tf.shape(queries)[0]

        def logits_of(start, size):
            logits = _block(queries, rows, bias, start, size)
            if self.retain is None:
                return logits, self.retain_logits(queries)
            return logits, _block(queries, *retain, start, size)

        if self.predict_samples is not None:
            logits = self.predicted_logits(*logits_of(0, self.num_classes))
            scores, ids = tf.math.top_k(logits, k)
            return self._scored(tf.cast(ids, tf.int64), scores, 0.0)
        return self._scored(
            *stock_top_k.best_of_blocks(
                lambda *block: self.expected_logits(*logits_of(*block)),
                batch,
                self.num_classes,
                k,
                self.activation == "softmax",
            )
        )

    def get_config(self):
        return {
            **super().get_config(),
            "retain_probability": self.retain_probability,
            "predict_samples": self.predict_samples,
        }


class _ExpectedBlocks(softmax.Blocks):
    """The class matrix, block by block, whose logits have the expected mask."""

    def __init__(self, head, batch):
        kernel, bias = head.class_matrix(), _tensor(head.bias)
        super().__init__(kernel, bias, head.similarity == "cosine", batch)
        self.head = head
        self.retain = None
        if head.retain is not None:
            for variable in head.retain:
                optimizers.catch_up(variable)
            self.retain = [_tensor(variable) for variable in head.retain]

    def logits(self, queries, start, rows):
        logits = super().logits(queries, start, rows)
        if self.retain is None:
            return logits
        retain_logits = _block(queries, *self.retain, start, self.size)
        return self.head.expected_logits(logits, retain_logits)


def _tensor(variable):
    return None if variable is None else tf.convert_to_tensor(variable)


def _block(queries, rows, bias, start, size):
    """Logits of the classes from `start` on."""
    rows = rows[start : start + size]
    logits = tf.matmul(queries, rows, transpose_b=True)
    return logits if bias is None else logits + bias[start : start + size]
