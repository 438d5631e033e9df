"""The contract of an output layer: what Keras, metrics and exports call."""

import contextlib

import keras
import tensorflow as tf

from tfxclass import placement
from tfxclass.checks import check_choice
from tfxclass.checks import check_positive_int
from tfxclass.losses import records
from tfxclass.losses import softmax
from tfxclass.losses import targets as targets_lib
from tfxclass.losses.head_loss import HeadLoss


class OutputHead(keras.layers.Layer):
    """Base class of the output layers over `num_classes` classes.

    A head is the last layer of a model. `call` gives the full output; `loss`,
    passed to `compile`, gives the head's own training loss, which never
    computes that output.

    A subclass makes its weights in `build` and gives `logits`,
    `compute_training_loss`, `exact_loss`, `top_k`, `export_weights` and
    `export_top_k`. `ClassHead` is the one for heads with a row a class.

    Args:
        num_classes: int, number of classes.
        activation: `"softmax"`, or None for logits.
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

    #: Names that `activation` may have, beside None.
    activations = ("softmax",)

    #: Whether `export_top_k` returns what `top_k` does.
    export_is_exact = True

    #: Whether all compiled ops of a training step run on GPUs.
    has_gpu_ops = True

    # Whether rows lie elsewhere than the step: on a server, or the host.
    _is_apart = False

    def __init__(self, num_classes, activation="softmax", seed=None, **kwargs):
        super().__init__(**kwargs)
        check_positive_int("num_classes", num_classes)
        check_choice("activation", activation, (*self.activations, None))
        self.num_classes = int(num_classes)
        self.activation = activation
        self.seed = seed
        # The compiled ops have no XLA kernels.
        self.supports_jit = False

    def check_features(self, shape):
        """Raises ValueError unless `shape` is that of features."""
        if len(shape) != 2 or shape[-1] is None:
            raise ValueError(
                "The features of a head must have shape [batch, dim] with a "
                f"known dim. Received: {tuple(shape)}. Flatten or pool "
                "sequences first."
            )

    def add_rows(self, name, shape, initializer):
        """A trainable float32 weight whose rows are gathered."""
        servers = tf.distribute.ParameterServerStrategy
        self._is_apart = isinstance(tf.distribute.get_strategy(), servers)
        if self._is_on_host():
            self._is_apart = True
            with tf.device("CPU:0"):
                return self._add_rows(name, shape, initializer)
        return self._add_rows(name, shape, initializer)

    def _is_on_host(self):
        """Whether rows lie in host memory while the step is elsewhere."""
        reason = placement.why_not_on_gpu(self)
        if reason is None:
            return False
        placement.warn_once(reason)
        return not tf.distribute.has_strategy()

    def _add_rows(self, name, shape, initializer):
        try:
            # float32 and out of autocast: a cast would copy every row a step.
            with self._made_beside_rows():
                return self.add_weight(
                    name=name,
                    shape=shape,
                    initializer=initializer,
                    dtype="float32",
                    autocast=False,
                )
        except tf.errors.OpError as error:
            # Workers send each other what a variable begins with. The first
            # one that ends leaves the others without an answer.
            if "Collective ops is aborted" not in str(error):
                raise
            raise ValueError(
                "All workers have to make the same head. Received: "
                f"`{name}` of shape {list(shape)} for num_classes="
                f"{self.num_classes} here, another shape in another worker, "
                "or no answer from it."
            ) from error

    def _made_beside_rows(self):
        """Scope of variables that are computed with beside `kernel`."""
        kernel = getattr(self, "kernel", None)
        # A mere shape in an estimate of the memory.
        if not isinstance(kernel, keras.Variable) or not self._is_apart:
            return contextlib.nullcontext()
        if not tf.distribute.has_strategy():
            return placement.beside(kernel)
        strategy = tf.distribute.get_strategy()
        return strategy.extended.colocate_vars_with(kernel.value)

    def beside_rows(self):
        """Where to compute with all rows of `kernel`: they stay there."""
        kernel = getattr(self, "kernel", None)
        if not self._is_apart or kernel is None:
            return contextlib.nullcontext()
        return placement.beside(kernel)

    def call(self, features, labels=None, training=None):
        records.leave(self.name, records.Forward(self, features, training))
        if labels is not None:
            losses = self.compute_loss(features, labels, training)
            self.add_loss(tf.reduce_mean(losses))
        # In training nobody needs the full output: no row is settled for it.
        logits = self.logits(features, settle=not training)
        return self.activate(logits) if self.activation else logits

    def compute_output_shape(self, features_shape, labels_shape=None):
        return (features_shape[0], self.num_classes)

    @property
    def loss(self):
        """The loss for `compile`: a `HeadLoss`."""
        return HeadLoss(self.name)

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

    def exact_loss(self, queries, targets):
        """The loss of evaluation, over all classes; float32 `[batch]`."""
        raise NotImplementedError

    def queries(self, features):
        """float32 `[batch, dim]`: what the weights are multiplied with."""
        return tf.cast(features, tf.float32)

    def logits(self, features, settle=True):
        """All logits, float32 `[batch, num_classes]`.

        With `settle`, rows that an optimizer left behind are brought up to
        date first.
        """
        raise NotImplementedError

    def activate(self, logits):
        """Probabilities of logits `[batch, num_classes]`."""
        return tf.nn.softmax(logits)

    def top_k(self, features, k):
        """The best classes of each row, exactly, in blocks.

        Args:
            features: float `[batch, dim]`.
            k: int, at most `num_classes`.

        Returns:
            `(ids, scores)`: int64 and float32 `[batch, k]`, best first;
            scores are probabilities, or logits with `activation=None`.
        """
        raise NotImplementedError

    def step_rows(self, batch):
        """Rows of the weights that a training step moves, int; None is all."""
        return None

    def activation_bytes(self, batch):
        """Bytes of logits and the like that a training step holds, int."""
        # A block of logits and its gradient.
        classes = max(softmax.BLOCK_LOGITS // batch, softmax.LEAST_BLOCK)
        return 8 * batch * min(classes, self.num_classes)

    def index_bytes(self):
        """Bytes of a sampler's index and of its refresh, int."""
        return 0

    def query_weights(self):
        """The variables that `queries` reads, a list; an export saves them."""
        return []

    def export_weights(self):
        """The variables that `export_top_k` reads and an export saves."""
        raise NotImplementedError

    def export_top_k(self, features, k, weights=None):
        """`top_k` with stock TensorFlow ops alone, for an exported graph.

        Args:
            features: float `[batch, dim]`.
            k: int, at most `num_classes`.
            weights: what `export_weights` returned; by default it is called,
                which may make variables: not in a `tf.function`.

        Returns:
            As `top_k`, if no logit is NaN.
        """
        raise NotImplementedError

    def export_scores(self, features, weights=None):
        """All scores with stock ops alone, float32 `[batch, num_classes]`."""
        # A head that can do without the sort overrides this.
        ids, scores = self.export_top_k(features, self.num_classes, weights)
        places = tf.argsort(ids, axis=1)
        return tf.gather(scores, places, axis=1, batch_dims=1)

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "activation": self.activation,
            "seed": self.seed,
        }
