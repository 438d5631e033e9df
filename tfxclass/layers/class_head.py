"""A head with one row a class: the class matrix and its similarities."""

import functools

import keras
import tensorflow as tf

from tfxclass import optimizers
from tfxclass import placement
from tfxclass import stock_top_k
from tfxclass import streaming
from tfxclass.checks import check_choice
from tfxclass.checks import check_k
from tfxclass.layers.output_head import OutputHead
from tfxclass.losses import targets as targets_lib
from tfxclass.losses.softmax import linear_cross_entropy
from tfxclass.ops.products import row_products

_MARGINS = {"cosface": targets_lib.cosface, "arcface": targets_lib.arcface}
_COSINE_SCALE = 24.0


class ClassHead(OutputHead):
    """Base class of the heads with a matrix `kernel`, a row a class.

    A subclass overrides `compute_training_loss`.

    Logits are `features . row` (`similarity="dot"`), or with both sides
    normalised, times `scale` (`"cosine"`), where `margin` is taken off the
    target in training only (CosFace, Wang et al. 2018; ArcFace, Deng et al.
    2019).

    Args:
        num_classes: int, number of classes.
        similarity: `"dot"` or `"cosine"`.
        scale: float, factor of cosine logits; 24 by default. Not for `"dot"`.
        margin: float >= 0, margin on the target; 0 is none. Not for `"dot"`.
        margin_type: `"cosface"` (off the cosine) or `"arcface"` (radians).
        use_bias: whether logits have a bias. Not for `"cosine"`.
        kernel_initializer: initializer of `kernel`, `[num_classes, dim]`.
        **kwargs: `OutputHead`'s arguments: `activation`, `seed`, and
            `keras.layers.Layer`'s.

    Call arguments and output shape are `OutputHead`'s.

    Raises:
        ValueError: an argument out of range, or features that are not rank 2.
    """

    def __init__(
        self,
        num_classes,
        similarity="dot",
        scale=None,
        margin=0.0,
        margin_type="cosface",
        use_bias=False,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(num_classes, **kwargs)
        check_choice("similarity", similarity, ("dot", "cosine"))
        check_choice("margin_type", margin_type, tuple(_MARGINS))
        self.similarity = similarity
        self.scale = scale
        self.margin = margin
        self.margin_type = margin_type
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._check_similarity()

    def _check_similarity(self):
        if self.similarity == "dot":
            if self.scale is not None or self.margin:
                raise ValueError(
                    '`scale` and `margin` need similarity="cosine". Received: '
                    f"scale={self.scale}, margin={self.margin} with "
                    'similarity="dot".'
                )
            return
        if self.use_bias:
            raise ValueError(
                '`use_bias=True` needs similarity="dot". Received: '
                'similarity="cosine".'
            )
        if self.scale is not None and not self.scale > 0:
            raise ValueError(f"`scale` must be > 0. Received: {self.scale}")
        if not self.margin >= 0:
            raise ValueError(f"`margin` must be >= 0. Received: {self.margin}")

    def build(self, input_shape):
        self.check_features(input_shape)
        shape = (self.num_classes, input_shape[-1])
        self.kernel = self.add_rows("kernel", shape, self.kernel_initializer)
        self.bias = None
        if self.use_bias:
            self.bias = self.add_rows("bias", (self.num_classes,), "zeros")

    @property
    def logit_scale(self):
        """Factor of the logits, float."""
        if self.similarity == "dot":
            return 1.0
        return _COSINE_SCALE if self.scale is None else float(self.scale)

    def exact_loss(self, queries, targets, margin=None):
        """Cross-entropy over all classes, streamed; float32 `[batch]`."""
        with self.beside_rows():
            return linear_cross_entropy(
                queries,
                self.class_matrix(),
                targets,
                bias=self._all_biases(),
                normalize=self.similarity == "cosine",
                margin=margin,
            )

    def _all_biases(self):
        return None if self.bias is None else tf.convert_to_tensor(self.bias)

    def target_margin(self):
        """The margin as a function of target logits, or None."""
        if self.similarity == "dot" or not self.margin:
            return None
        return functools.partial(
            _MARGINS[self.margin_type],
            margin=self.margin,
            scale=self.logit_scale,
        )

    def queries(self, features):
        """float32 `[batch, dim]`: logits are `queries . rows`."""
        features = super().queries(features)
        if self.similarity == "dot":
            return features
        return self.logit_scale * tf.math.l2_normalize(features, axis=-1)

    def rows(self, ids):
        """Class rows of `ids`, with row-sparse gradients; float32."""
        optimizers.catch_up(self.kernel, ids)
        rows = placement.gather(self.kernel, ids)
        if self.similarity == "cosine":
            rows = tf.math.l2_normalize(rows, axis=-1)
        return rows

    def class_matrix(self, settle=True):
        """The whole `kernel` as a tensor, with `settle` all rows up to date."""
        if settle:
            optimizers.catch_up(self.kernel)
        return tf.convert_to_tensor(self.kernel)

    def logits(self, features, settle=True):
        return self.all_logits(self.queries(features), settle)

    def all_logits(self, queries, settle=True):
        """As `logits`, from `queries`."""
        with self.beside_rows():
            kernel = self.class_matrix(settle)
            logits = row_products(queries, kernel)
            if self.similarity == "cosine":
                logits *= streaming.inverse_norms(kernel)
            return logits if self.bias is None else logits + self.bias

    def top_k(self, features, k):
        check_k(k, self.num_classes)
        with self.beside_rows():
            return streaming.top_k(
                self.queries(features),
                self.class_matrix(),
                k,
                bias=self._all_biases(),
                normalize=self.similarity == "cosine",
                probabilities=self.activation == "softmax",
            )

    def export_weights(self):
        """The variables that `export_top_k` reads and an export saves.

        Returns:
            `(rows, bias)`: float32 variables `[num_classes, dim]`, the kernel
            itself or, for cosine, a normalised copy, so that a request does
            not normalise it; and `[num_classes]` or None.
        """
        rows = self.kernel.value
        if self.similarity == "cosine":
            rows = stock_top_k.normalize_rows(tf.convert_to_tensor(rows))
        return rows, None if self.bias is None else self.bias.value

    def export_top_k(self, features, k, weights=None):
        check_k(k, self.num_classes)
        rows, bias = self.export_weights() if weights is None else weights
        return stock_top_k.top_k(
            self.queries(features),
            tf.convert_to_tensor(rows),
            k,
            bias=None if bias is None else tf.convert_to_tensor(bias),
            probabilities=self.activation == "softmax",
        )

    @property
    def has_plain_logits(self):
        """Whether all logits are products of `export_weights`, plus a bias."""
        return (
            type(self).export_top_k is ClassHead.export_top_k
            and type(self).export_weights is ClassHead.export_weights
        )

    def export_scores(self, features, weights=None):
        if not self.has_plain_logits:
            return super().export_scores(features, weights)
        rows, bias = self.export_weights() if weights is None else weights
        logits = stock_top_k.products(self.queries(features), rows)
        if bias is not None:
            logits += tf.convert_to_tensor(bias)
        return self.activate(logits) if self.activation else logits

    def get_config(self):
        config = {
            name: getattr(self, name)
            for name in (
                "similarity",
                "scale",
                "margin",
                "margin_type",
                "use_bias",
            )
        }
        initializer = keras.initializers.serialize(self.kernel_initializer)
        return {
            **super().get_config(),
            **config,
            "kernel_initializer": initializer,
        }
