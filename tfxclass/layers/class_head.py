"""What all output layers share: the class matrix, logits, loss, top k."""

import functools

import keras
import tensorflow as tf

from tfxclass import optimizers
from tfxclass import stock_top_k
from tfxclass import streaming
from tfxclass.checks import check_choice
from tfxclass.checks import check_k
from tfxclass.checks import check_positive_int
from tfxclass.losses import records
from tfxclass.losses import targets as targets_lib
from tfxclass.losses.head_loss import HeadLoss
from tfxclass.losses.softmax import linear_cross_entropy

_MARGINS = {"cosface": targets_lib.cosface, "arcface": targets_lib.arcface}
_COSINE_SCALE = 24.0


class ClassHead(keras.layers.Layer):
    """Base class of the output layers over `num_classes` classes.

    A head is the last layer of a model. `call` gives the full output; `loss`,
    passed to `compile`, gives the head's own training loss, which never
    computes that output. A subclass overrides `compute_training_loss`.

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
        activation: `"softmax"`, or None for logits.
        kernel_initializer: initializer of `kernel`, `[num_classes, dim]`.
        seed: int, seed of all that the head draws.
        **kwargs: `keras.layers.Layer`'s arguments.

    Call arguments:
        features: float tensor `[batch, dim]`.
        labels: optional integers `[batch]`, or `[batch, p]` padded with -1;
            with them the head adds its mean loss to the model (`add_loss`).
        training: bool.

    Output shape:
        float32 `[batch, num_classes]`.

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
        activation="softmax",
        kernel_initializer="glorot_uniform",
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive_int("num_classes", num_classes)
        check_choice("similarity", similarity, ("dot", "cosine"))
        check_choice("margin_type", margin_type, tuple(_MARGINS))
        check_choice("activation", activation, ("softmax", None))
        self.num_classes = int(num_classes)
        self.similarity = similarity
        self.scale = scale
        self.margin = margin
        self.margin_type = margin_type
        self.use_bias = use_bias
        self.activation = activation
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self._check_similarity()
        # The compiled ops have no XLA kernels.
        self.supports_jit = False

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
        if len(input_shape) != 2 or input_shape[-1] is None:
            raise ValueError(
                "The features of a head must have shape [batch, dim] with a "
                f"known dim. Received: {tuple(input_shape)}. Flatten or pool "
                "sequences first."
            )
        # float32 and out of autocast: a cast would copy every row a step.
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.num_classes, input_shape[-1]),
            initializer=self.kernel_initializer,
            dtype="float32",
            autocast=False,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=(self.num_classes,),
                initializer="zeros",
                dtype="float32",
                autocast=False,
            )

    def call(self, features, labels=None, training=None):
        records.leave(self.name, records.Forward(self, features, training))
        if labels is not None:
            losses = self.compute_loss(features, labels, training)
            self.add_loss(tf.reduce_mean(losses))
        # In training nobody needs the full output: no row is settled for it.
        logits = self.logits(features, settle=not training)
        return tf.nn.softmax(logits) if self.activation else logits

    def compute_output_shape(self, features_shape, labels_shape=None):
        return (features_shape[0], self.num_classes)

    @property
    def loss(self):
        """The loss for `compile`: a `HeadLoss`."""
        return HeadLoss(self.name)

    @property
    def logit_scale(self):
        """Factor of the logits, float."""
        if self.similarity == "dot":
            return 1.0
        return _COSINE_SCALE if self.scale is None else float(self.scale)

    def compute_loss(self, features, labels, training=None):
        """Loss of each row: the head's estimate, or exact if not training.

        Args:
            features: float `[batch, dim]`.
            labels: integers `[batch]`, or `[batch, p]` padded with -1. The
                loss of a row is against the mean of its labels.
            training: bool.

        Returns:
            float32 `[batch]`.
        """
        targets = targets_lib.as_targets(labels, self.num_classes)
        queries = self.queries(features)
        if training:
            return self.compute_training_loss(queries, targets)
        return self.exact_loss(queries, targets)

    def compute_training_loss(self, queries, targets):
        """float32 `[batch]`; the one place where heads differ."""
        raise NotImplementedError

    def exact_loss(self, queries, targets, margin=None):
        """Cross-entropy over all classes, streamed; float32 `[batch]`."""
        return linear_cross_entropy(
            queries,
            self.class_matrix(),
            targets,
            bias=None if self.bias is None else tf.convert_to_tensor(self.bias),
            normalize=self.similarity == "cosine",
            margin=margin,
        )

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
        features = tf.cast(features, tf.float32)
        if self.similarity == "dot":
            return features
        return self.logit_scale * tf.math.l2_normalize(features, axis=-1)

    def rows(self, ids):
        """Class rows of `ids`, with row-sparse gradients; float32."""
        optimizers.catch_up(self.kernel, ids)
        # A read and a gather, not a sparse read of the variable: after that
        # TensorFlow copies the whole matrix at each full read, also at the
        # one whose product, the full output, has been pruned.
        rows = tf.gather(tf.convert_to_tensor(self.kernel), ids)
        if self.similarity == "cosine":
            rows = tf.math.l2_normalize(rows, axis=-1)
        return rows

    def class_matrix(self, settle=True):
        """The whole `kernel` as a tensor, with `settle` all rows up to date."""
        if settle:
            optimizers.catch_up(self.kernel)
        return tf.convert_to_tensor(self.kernel)

    def logits(self, features, settle=True):
        """All logits, float32 `[batch, num_classes]`."""
        kernel = self.class_matrix(settle)
        logits = tf.matmul(self.queries(features), kernel, transpose_b=True)
        if self.similarity == "cosine":
            logits *= streaming.inverse_norms(kernel)
        return logits if self.bias is None else logits + self.bias

    def top_k(self, features, k):
        """The best classes of each row, exactly, in blocks.

        Args:
            features: float `[batch, dim]`.
            k: int, at most `num_classes`.

        Returns:
            `(ids, scores)`: int64 and float32 `[batch, k]`, best first;
            scores are probabilities, or logits with `activation=None`.
        """
        check_k(k, self.num_classes)
        return streaming.top_k(
            self.queries(features),
            self.class_matrix(),
            k,
            bias=None if self.bias is None else tf.convert_to_tensor(self.bias),
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
        """`top_k` with stock TensorFlow ops alone, for an exported graph.

        Args:
            features: float `[batch, dim]`.
            k: int, at most `num_classes`.
            weights: what `export_weights` returned; by default it is called,
                which makes a variable for cosine: not in a `tf.function`.

        Returns:
            As `top_k`, if no logit is NaN.
        """
        check_k(k, self.num_classes)
        rows, bias = self.export_weights() if weights is None else weights
        return stock_top_k.top_k(
            self.queries(features),
            tf.convert_to_tensor(rows),
            k,
            bias=None if bias is None else tf.convert_to_tensor(bias),
            probabilities=self.activation == "softmax",
        )

    def get_config(self):
        config = {
            name: getattr(self, name)
            for name in (
                "num_classes",
                "similarity",
                "scale",
                "margin",
                "margin_type",
                "use_bias",
                "activation",
                "seed",
            )
        }
        initializer = keras.initializers.serialize(self.kernel_initializer)
        return {
            **super().get_config(),
            **config,
            "kernel_initializer": initializer,
        }
