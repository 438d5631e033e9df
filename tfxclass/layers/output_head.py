"""The contract of an output layer: what Keras, metrics and exports call."""

import contextlib
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.checks import check_k
from tfxclass.checks import check_positive_int
from tfxclass.layers.weight_spec import WeightSpec
from tfxclass.losses import forward as forward_lib
from tfxclass.losses import targets as targets_lib
from tfxclass.losses.forward import Step
from tfxclass.losses.head_loss import HeadLoss
from tfxclass.losses.options import ALL_OPTIONS
from tfxclass.losses.options import OF_LOSSES
from tfxclass.losses.options import LossOptions
from tfxclass.losses.options import as_loss_options
from tfxclass.losses.softmax import probabilities
from tfxclass.rows import blocks
from tfxclass.rows import placement
from tfxclass.rows import products
from tfxclass.rows import read
from tfxclass.rows import search
from tfxclass.rows import stock
from tfxclass.rows.class_rows import ClassRows
from tfxclass.rows.loss import cross_entropy
from tfxclass.shards.exchange import ALONE
from tfxclass.shards.exchange import Batch
from tfxclass.types import Array
from tfxclass.types import Config
from tfxclass.types import Initializer
from tfxclass.types import Labels
from tfxclass.types import Margin
from tfxclass.types import Shape

# In a tf.function of the user's, AutoGraph would rewrite all that is called.
do_not_convert = tf.autograph.experimental.do_not_convert


class OutputHead(keras.layers.Layer):
    """Base class of the output layers over `num_classes` classes.

    A head is the last layer of a model. `call` gives the full output; `loss`,
    passed to `compile`, gives the head's own training loss, which never
    computes that output.

    A subclass declares its weights in `weight_specs`, says in `class_rows` and
    `part_queries` which rows are multiplied with what, and gives its
    `training_step`: logits, the exact loss, the best classes and exports are
    made here of these parts. One that is not made of class rows, as a tree,
    gives `exact_loss`, `all_logits`, `best`, `export_weights`, `stock_best`
    and `stock_scores` instead. `ClassHead` is the one for heads with a row a
    class.

    Args:
        num_classes: int, number of classes.
        activation: `"softmax"`, or None for logits.
        kernel_initializer: initializer of the class rows.
        seed: int, seed of all that the head draws.
        loss_options: `tfxclass.losses.LossOptions`: class weights, label
            smoothing, logit adjustment and the like, in training.
        **kwargs: `keras.layers.Layer`'s arguments.

    Call arguments:
        features: float tensor `[batch, dim]`, or with more dimensions, as
            `[batch, time, dim]`; a Keras mask of them leaves positions out of
            the loss.
        labels: optional integers `[batch, ...]` like the features without
            their last dimension, or with one more, padded with -1; with them
            the head adds its mean loss to the model (`add_loss`).
        training: bool.

    Output shape:
        float32 `[batch, ..., num_classes]`.

    Raises:
        ValueError: an argument out of range, or features of another shape.
    """

    #: Names that `activation` may have, beside None.
    activations = ("softmax",)

    #: Names of the `LossOptions` that the head's loss may have.
    supported_options = ALL_OPTIONS

    #: Whether `export_top_k` returns what `top_k` does.
    export_is_exact = True

    #: Whether all compiled ops of a training step run on GPUs.
    has_gpu_ops = True

    #: Whether scores are the softmax, or the logits, of `queries . rows + bias`
    #: with the one `ClassRows` of `export_weights`.
    has_plain_logits = False

    # Whether rows lie elsewhere than the step: on a server, or the host.
    _is_apart = False

    def __init__(
        self,
        num_classes: int,
        activation: str | None = "softmax",
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        loss_options: LossOptions | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_positive_int("num_classes", num_classes)
        check_choice("activation", activation, (*self.activations, None))
        self.num_classes = int(num_classes)
        self.activation = activation
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.loss_options = as_loss_options(loss_options)
        if self.loss_options is not None:
            self.loss_options.check_for(self)
        # The compiled ops have no XLA kernels.
        self.supports_jit = False
        self.supports_masking = True

    def check_features(self, shape: Shape) -> None:
        """Raises ValueError unless `shape` is that of features."""
        if len(shape) < 2 or shape[-1] is None:
            raise ValueError(
                "The features of a head must have shape [batch, dim], or "
                "[batch, time, dim], with a known dim. Received: "
                f"{tuple(shape)}."
            )

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        """The weights of the head for features of width `dim`.

        Returns:
            List of `WeightSpec`; weights are made in this order.
        """
        raise NotImplementedError

    def device_specs(self, dim: int) -> list[WeightSpec]:
        """As `weight_specs`, of the part that lies on one device."""
        return self.weight_specs(dim)

    def build(self, input_shape: Shape) -> None:
        self.check_features(input_shape)
        made = {}
        for spec in self.weight_specs(input_shape[-1]):
            if spec.is_rows:
                made[spec.name] = self.add_rows(spec, made.get("kernel"))
            else:
                made[spec.name] = self._add(spec, made.get("kernel"))
        self.take_weights(made)

    def take_weights(self, made: dict[str, keras.Variable]) -> None:
        """Sets the attributes of weights, a dict by name."""
        raise NotImplementedError

    def add_rows(
        self, spec: WeightSpec, kernel: keras.Variable | None = None
    ) -> keras.Variable:
        """A weight whose rows are gathered, beside `kernel` if given."""
        servers = tf.distribute.ParameterServerStrategy
        self._is_apart = isinstance(tf.distribute.get_strategy(), servers)
        if self._is_on_host():
            self._is_apart = True
            with tf.device("CPU:0"):
                return self._add(spec, kernel)
        return self._add(spec, kernel)

    def _is_on_host(self):
        """Whether rows lie in host memory while the step is elsewhere."""
        reason = placement.why_not_on_gpu(self)
        if reason is None:
            return False
        placement.warn_once(reason)
        return not tf.distribute.has_strategy()

    def _add(self, spec, kernel):
        try:
            # float32 and out of autocast: a cast would copy every row a step.
            with self._beside(kernel):
                return self.add_weight(
                    name=spec.name,
                    shape=spec.shape,
                    initializer=spec.initializer,
                    dtype=spec.dtype,
                    trainable=spec.trainable,
                    autocast=False,
                )
        except tf.errors.OpError as error:
            # Workers send each other what a variable begins with. The first
            # one that ends leaves the others without an answer.
            if "Collective ops is aborted" not in str(error):
                raise
            raise ValueError(
                "All workers have to make the same head. Received: "
                f"`{spec.name}` of shape {list(spec.shape)} for num_classes="
                f"{self.num_classes} here, another shape in another worker, "
                "or no answer from it."
            ) from error

    def kernel_specs(
        self, sizes: Sequence[int], widths: Sequence[int]
    ) -> list[WeightSpec]:
        """Of matrices `[sizes[i], widths[i]]`, which `take_kernels` takes."""
        return [
            WeightSpec(f"kernel_{i}", shape, self.kernel_initializer)
            for i, shape in enumerate(zip(sizes, widths, strict=True))
        ]

    def take_kernels(self, made: dict[str, keras.Variable]) -> None:
        """Sets `kernels`, a list."""
        self.kernels = [v for k, v in made.items() if k.startswith("kernel_")]

    def _beside(self, kernel):
        """Scope of variables that are computed with beside `kernel`."""
        if kernel is None or not self._is_apart:
            return contextlib.nullcontext()
        if not tf.distribute.has_strategy():
            return placement.beside(kernel)
        strategy = tf.distribute.get_strategy()
        return strategy.extended.colocate_vars_with(kernel.value)

    @property
    def rows_device(self) -> str | None:
        """Where all rows are computed with, str; None is with the step."""
        kernel = getattr(self, "kernel", None)
        if kernel is None or not self._is_apart:
            return None
        return placement.device_of(kernel)

    @do_not_convert
    def call(
        self,
        features: tf.Tensor,
        labels: Labels | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        forward = forward_lib.Forward(self, features, training)
        if labels is not None:
            losses = self.compute_loss(features, labels, training)
            self.add_loss(_mean(losses, forward_lib.mask_of(features)))
        # In training nobody needs the full output: no row is settled for it.
        logits = self.logits(features, settle=not training)
        output = self.activate(logits) if self.activation else logits
        return forward_lib.attach(self.guard(output, training), forward)

    def guard(self, output: tf.Tensor, training: bool | None) -> tf.Tensor:
        """`output` as `call` returns it."""
        return output

    def compute_output_shape(
        self, features_shape: Shape, labels_shape: Shape | None = None
    ) -> Shape:
        return (*features_shape[:-1], self.num_classes)

    @property
    def loss(self) -> HeadLoss:
        """The loss for `compile`: a `HeadLoss`."""
        return HeadLoss(self.name)

    @do_not_convert
    def compute_loss(
        self, features: Array, labels: Labels, training: bool | None = None
    ) -> tf.Tensor:
        """Loss of each row: the head's estimate, or exact if not training.

        Args:
            features: float `[batch, dim]`, or with more dimensions before
                the last, as `[batch, time, dim]`.
            labels: integers like the features without their last dimension,
                `[batch]`, or with one more, `[batch, p]`, padded with -1. The
                loss of a row is against the mean of its labels.
            training: bool.

        Returns:
            float32 `[batch]`, or `[batch, time]`; 0 where a Keras mask of the
            features leaves a position out.
        """
        return self.compute_step(features, labels, training).losses

    @do_not_convert
    def compute_step(
        self, features: Array, labels: Labels, training: bool | None = None
    ) -> Step:
        """As `compute_loss`: a `Step`, with what metrics rank by."""
        features = self.as_features(features)
        targets = self.targets(features, labels)
        flat = flatten(features)
        if training:
            step = self.training_step(flat, targets)
        else:
            step = Step(self.exact_loss(flat, targets))
        return step._replace(losses=unflatten(step.losses, features))

    def as_features(self, features: Array) -> tf.Tensor:
        """A tensor of what was given; ValueError while there are no weights."""
        if not self.built:
            raise ValueError(
                f"The head {self.name!r} is not built, so it has no weights. "
                "Call it (or its model) on a batch first, or "
                "head.build((None, dim))."
            )
        return tf.convert_to_tensor(features)

    def targets(
        self, features: tf.Tensor, labels: Labels
    ) -> targets_lib.Targets:
        """`Targets` of labels for the flattened features."""
        return targets_lib.as_targets(
            labels,
            self.num_classes,
            tf.shape(features)[:-1],
            mask=forward_lib.mask_of(features),
        )

    @do_not_convert
    def logits(self, features: Array, settle: bool = True) -> tf.Tensor:
        """All logits, float32 `[..., num_classes]`.

        With `settle`, rows that an optimizer left behind are brought up to
        date first.
        """
        features = self.as_features(features)
        return unflatten(self.all_logits(flatten(features), settle), features)

    def activate(self, logits: tf.Tensor) -> tf.Tensor:
        """Probabilities of logits `[..., num_classes]`."""
        return tf.nn.softmax(logits)

    @do_not_convert
    def top_k(self, features: Array, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """The best classes of each row, exactly, in blocks.

        Args:
            features: float `[..., dim]`.
            k: int, at most `num_classes`.

        Returns:
            `(ids, scores)`: int64 and float32 `[..., k]`, best first; scores
            are probabilities, or logits with `activation=None`.
        """
        check_k(k, self.num_classes)
        features = self.as_features(features)
        found = self.best(flatten(features), k)
        return tuple(unflatten(x, features) for x in found)

    @do_not_convert
    def export_top_k(
        self, features: Array, k: int, weights: Any = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`top_k` with stock TensorFlow ops alone, for an exported graph.

        Args:
            features: float `[..., dim]`.
            k: int, at most `num_classes`.
            weights: what `export_weights` returned; by default it is called,
                which may make variables: not in a `tf.function`.

        Returns:
            As `top_k`, if no logit is NaN.
        """
        check_k(k, self.num_classes)
        weights = self.export_weights() if weights is None else weights
        features = self.as_features(features)
        found = self.stock_best(flatten(features), k, weights)
        return tuple(unflatten(x, features) for x in found)

    @do_not_convert
    def export_scores(self, features: Array, weights: Any = None) -> tf.Tensor:
        """All scores with stock ops alone, float32 `[..., num_classes]`."""
        weights = self.export_weights() if weights is None else weights
        features = self.as_features(features)
        scores = self.stock_scores(flatten(features), weights)
        return unflatten(scores, features)

    # What a head is made of. Features here are float32 `[rows, dim]`.

    def class_rows(self) -> list[ClassRows]:
        """List of `ClassRows`: those of all classes, in their order."""
        raise NotImplementedError

    def queries(self, features: tf.Tensor) -> tf.Tensor:
        """float32 `[rows, dim]`: what class rows are multiplied with."""
        return flatten(features)

    def part_queries(self, features: tf.Tensor) -> list[tf.Tensor]:
        """The queries of each of `class_rows`, or those of all; a list."""
        return [self.queries(features)]

    def query_weights(self) -> list[tf.Variable]:
        """The variables that `part_queries` reads; an export saves them."""
        return []

    def exchange(self, features: tf.Tensor) -> Batch:
        """What the replicas tell each other: of `tfxclass.shards`."""
        return ALONE

    def parts(
        self, features: tf.Tensor, settle: bool = True
    ) -> list[tuple[tf.Tensor, ClassRows]]:
        """List of `(queries, ClassRows)` whose logits are all classes'.

        With `settle`, rows are brought up to date first.
        """
        if settle:
            self.settle()
        return self._paired(flatten(features), self.class_rows())

    def _paired(self, features, class_rows):
        queries = self.part_queries(features)
        if len(queries) == 1:
            queries *= len(class_rows)
        return list(zip(queries, class_rows, strict=True))

    def settle(self) -> None:
        """Brings all rows that an optimizer left behind up to date."""
        for rows in self.class_rows():
            read.settle(rows)

    def target_margin(self) -> Margin | None:
        """The margin as a function of target logits, or None."""
        return None

    def training_step(
        self, features: tf.Tensor, targets: targets_lib.Targets
    ) -> Step:
        """`Step` of a training step; the one place where heads differ.

        By default the exact loss, with the margin and the loss options.
        """
        options, margin = self.loss_options, self.target_margin()
        targets, finish = self.weighed(targets)
        if options is None or set(options.used) <= set(OF_LOSSES):
            losses = self.exact_loss(features, targets, margin)
        else:
            losses = self._shaped_loss(features, targets, margin)
        return Step(finish(losses))

    def weighed(
        self, targets: targets_lib.Targets
    ) -> tuple[targets_lib.Targets, Callable[[tf.Tensor], tf.Tensor]]:
        """What `loss_options` make of labels, and of a loss on them.

        Args:
            targets: `Targets` whose ids are classes.

        Returns:
            `(targets, finish)`: `Targets` with their masses, and a function
            of the rows' losses `[rows]`, without penalties.
        """
        options = self.loss_options
        if options is None:
            return targets, lambda losses: losses
        targets, row_weights = options.weigh(targets, self.num_classes)
        return targets, lambda losses: options.finish(losses, row_weights)

    def _shaped_loss(self, features, targets, margin):
        """`exact_loss` of the logits of `loss_options`."""
        exchange, options = self.exchange(features), self.loss_options
        parts = [(x, read.whole(rows)) for x, rows in self.parts(features)]
        return cross_entropy(
            options.shape_parts(parts, self.num_classes),
            targets_lib.Targets(*map(exchange.gather, targets)),
            exchange=exchange,
            margin=margin,
            uniform=options.label_smoothing / self.num_classes,
        )

    def exact_loss(
        self,
        features: tf.Tensor,
        targets: targets_lib.Targets,
        margin: Margin | None = None,
    ) -> tf.Tensor:
        """Loss over all classes, streamed in blocks; float32 `[rows]`."""
        exchange = self.exchange(features)
        return cross_entropy(
            self.parts(features),
            targets_lib.Targets(*map(exchange.gather, targets)),
            exchange=exchange,
            margin=margin,
        )

    def all_logits(self, features: tf.Tensor, settle: bool = True) -> tf.Tensor:
        """float32 `[rows, num_classes]`."""
        exchange = self.exchange(features)
        logits = [
            _all_products(exchange.gather(queries), rows)
            for queries, rows in self.parts(features, settle)
        ]
        logits = self.adjust_logits(features, exchange.own_from_all(logits))
        return tf.concat(logits, axis=1)

    def best(self, features: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, scores)`, `[rows, k]`: see `top_k`."""
        exchange = self.exchange(features)
        found = [
            search.best(exchange.gather(queries), rows, k, self.needs_logsumexp)
            for queries, rows in self.parts(features)
        ]
        fields = [exchange.own_from_all(list(x)) for x in zip(*found)]
        return self._answer(features, list(map(search.Best, *fields)), k)

    def _answer(self, features, found, k):
        """`(ids, scores)` of the `Best` of each part."""
        best = search.merge(self.adjust_best(features, found), k)
        if self.activation is None:
            return best.ids, tf.cast(best.logits, tf.float32)
        return best.ids, probabilities(best.logits, best.logsumexp)

    @property
    def needs_logsumexp(self) -> bool:
        """Whether the best classes need the log-sum-exp of all logits."""
        return self.activation is not None

    def adjust_logits(
        self, features: tf.Tensor, logits: list[tf.Tensor]
    ) -> list[tf.Tensor]:
        """The logits of the parts, a list, from their products."""
        return logits

    def adjust_best(
        self, features: tf.Tensor, found: list[search.Best]
    ) -> list[search.Best]:
        """As `adjust_logits`, of the `Best` of each part."""
        return found

    def export_weights(self) -> Any:
        """What `export_top_k` reads and an export saves.

        By default a list of `ClassRows` of variables, not to be normalised: the
        kernels themselves or, for cosine, normalised copies, so that a request
        does not normalise them.
        """
        return [stock.servable(rows) for rows in self.class_rows()]

    def stock_best(
        self, features: tf.Tensor, k: int, weights: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`best` with stock ops alone."""
        found = [
            stock.best(queries, rows, k, self.needs_logsumexp)
            for queries, rows in self._paired(features, weights)
        ]
        return self._answer(features, found, k)

    def stock_scores(self, features: tf.Tensor, weights: Any) -> tf.Tensor:
        """All scores with stock ops alone, float32 `[rows, num_classes]`."""
        logits = [
            stock.all_logits(queries, rows)
            for queries, rows in self._paired(features, weights)
        ]
        logits = tf.concat(self.adjust_logits(features, logits), axis=1)
        return self.activate(logits) if self.activation else logits

    def sorted_scores(self, features: tf.Tensor, weights: Any) -> tf.Tensor:
        """`stock_scores` of a head whose search is the only way to them."""
        ids, scores = self.stock_best(features, self.num_classes, weights)
        places = tf.argsort(ids, axis=1)
        return tf.gather(scores, places, axis=1, batch_dims=1)

    def step_rows(self, batch: int) -> int | None:
        """Rows of the weights that a training step moves, int; None is all."""
        return None

    def activation_bytes(self, batch: int, dim: int) -> int:
        """Bytes of logits and the like that a training step holds, int."""
        # A block of logits and its gradient.
        classes = max(blocks.BLOCK_LOGITS // batch, blocks.LEAST_BLOCK)
        return 8 * batch * min(classes, self.num_classes)

    def index_bytes(self, dim: int) -> int:
        """Bytes of a sampler's index and of its refresh, int."""
        return 0

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "activation": self.activation,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
            "seed": self.seed,
            "loss_options": keras.saving.serialize_keras_object(
                self.loss_options
            ),
        }


def _mean(losses, mask):
    """Over the positions that a mask, or None, leaves in."""
    if mask is None:
        return tf.reduce_mean(losses)
    count = tf.reduce_sum(tf.cast(mask, losses.dtype))
    return tf.math.divide_no_nan(tf.reduce_sum(losses), count)


def _all_products(queries, rows):
    with placement.on(rows.device):
        return products.all_products(queries, read.whole(rows))


def flatten(features: tf.Tensor) -> tf.Tensor:
    """Features `[..., dim]` as float32 `[rows, dim]`, a row a position."""
    features = tf.cast(features, tf.float32)
    if features.shape.rank == 2:
        return features
    return tf.reshape(features, [-1, features.shape[-1]])


def unflatten(values: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
    """Values `[rows, ...]` in the leading dimensions of `features`."""
    if features.shape.rank == 2:
        return values
    leading = tf.shape(features)[:-1]
    shape = tf.concat([leading, tf.shape(values)[1:]], axis=0)
    static = features.shape[:-1].concatenate(values.shape[1:])
    return tf.ensure_shape(tf.reshape(values, shape), static)
