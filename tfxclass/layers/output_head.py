"""The contract of an output layer: what Keras, metrics and exports call."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass import saved_random
from tfxclass.checks import check_choice
from tfxclass.checks import check_distinct_names
from tfxclass.checks import check_k
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.checks import suggesting_arguments
from tfxclass.core import forward as forward_lib
from tfxclass.core.class_update import ClassUpdate
from tfxclass.core.forward import Step
from tfxclass.core.forward import flatten
from tfxclass.core.forward import unflatten
from tfxclass.core.targets import Targets
from tfxclass.core.targets import as_targets
from tfxclass.core.targets import uniform_targets
from tfxclass.keras_internals import get_mask
from tfxclass.keras_internals import names_of_functions
from tfxclass.keras_internals import untrack
from tfxclass.layers import head_config
from tfxclass.layers import head_weights
from tfxclass.layers.class_growth import ClassGrowth
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.losses.objectives import OBJECTIVES
from tfxclass.losses.objectives import SOFTMAX_ALONE
from tfxclass.losses.objectives import HeadLoss
from tfxclass.losses.options import ALL_OPTIONS
from tfxclass.losses.options import LossOptions
from tfxclass.losses.options import as_loss_options
from tfxclass.ops import placement
from tfxclass.rows import blocks
from tfxclass.rows import search
from tfxclass.rows.best import Best
from tfxclass.rows.best import mask_missing
from tfxclass.rows.best import merge
from tfxclass.rows.class_matrix import KEPT_BYTES
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.rows.search import Parts
from tfxclass.shards.exchange import NO_EXCHANGE
from tfxclass.shards.exchange import ReplicaGroup
from tfxclass.types import Answers
from tfxclass.types import Array
from tfxclass.types import Config
from tfxclass.types import Initializer
from tfxclass.types import Labels
from tfxclass.types import Margin
from tfxclass.types import Shape
from tfxclass.types import Store

# In a tf.function of the user's, AutoGraph would rewrite all that is called.
do_not_convert = tf.autograph.experimental.do_not_convert


class OutputHead(keras.layers.Layer):
    """Base class of the output layers ("heads") over `num_classes` classes.

    A head is the last layer of a model, and returns the probabilities of all
    classes. Pass its `loss` to `compile`: it never computes the full output.

    A subclass declares its weights in `weight_specs`: `build` makes each one,
    an attribute with its name. It tells in `class_rows` and `part_queries`
    which class vectors are multiplied by which features, and may define
    `training_step`. A head without class vectors, such as a tree, defines
    `exact_loss`, `all_logits`, `best` and `export_weights` instead.

    Args:
        num_classes: int, number of classes.
        activation: `"auto"` for the probabilities that belong to `loss`,
            `"softmax"`, `"sigmoid"` where labels are independent, or None for
            logits.
        kernel_initializer: initializer of the class vectors.
        seed: int or None, seed of all sampling. Class vectors start from
            `kernel_initializer`, which has a seed of its own.
            `keras.utils.set_random_seed` sets both.
        loss_options: a `tfxclass.losses.LossOptions` with class weights, label
            smoothing, logit adjustment and more, for training.
        kernel_dtype: `"float32"`, or `"bfloat16"` to store the class vectors in
            half the memory. They are read as float32 and rounded stochastically
            after each step, by an optimizer of `tfxclass.optimizers` (others
            raise ValueError). Not for trees, and only on a CPU.
        loss: `"softmax"`, which is cross-entropy over all classes, or for
            independent labels a binary loss, `"sigmoid"` (logistic) or
            `"squared_hinge"`, summed over all classes. A sampled head estimates
            the sum without bias. Each label of an example then has weight 1 and
            a probability of its own. For `"squared_hinge"` it is the sigmoid of
            the margin, which ranks correctly; see `tfxclass.calibrate`.
        class_names: sequence of distinct str, the name of each class, for the
            answers of exported models.
        num_negatives: int, number of hard negatives in the last columns of the
            labels, `[batch, ..., p + num_negatives]`, padded with -1. A sampled
            training step includes them for all examples of the batch, with an
            expected count of 1. Everything else ignores them.
        **kwargs: arguments of `keras.layers.Layer`, and `removed` in a
            configuration.

    Attributes:
        removed: list of int, classes that are never an answer. Their labels
            count as padding. `tfxclass.remove_classes` makes a head with them.

    Call arguments:
        features: float tensor `[batch, dim]`, or with more dimensions, such as
            `[batch, time, dim]`. A Keras mask leaves positions out of the loss.
        labels: optional integers, of the shape of the features without their
            last dimension, or with one more dimension, padded with -1. With
            labels, the head adds its mean loss to the model (`add_loss`).
        training: bool, whether the training loss is computed.

    Output shape:
        float32 `[batch, ..., num_classes]`.

    Raises:
        ValueError: if an argument is out of range, or features have another
            shape.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(num_classes=100)
    model = keras.Sequential([keras.Input([20]), head])
    model.compile("adam", loss=head.loss)
    ids, scores = head.top_k(np.ones([2, 20]), k=5)
    ```
    """

    #: Names that `kernel_dtype` may have.
    kernel_dtypes: tuple[str, ...] = ("float32", "bfloat16")

    #: Names that `loss` may have.
    loss_kinds: tuple[str, ...] = SOFTMAX_ALONE

    #: Names of the `LossOptions` that the head's loss may have.
    supported_options: tuple[str, ...] = ALL_OPTIONS

    #: Whether logits are products with class vectors (`class_rows`). Others
    #: search in exports by a beam.
    has_class_rows = True

    #: Bytes of exponentials that a step of the exact softmax may keep.
    kept_bytes = KEPT_BYTES

    #: What logits are divided by before they become probabilities.
    answer_temperature = 1.0

    #: Whether scores are the softmax, or the logits, of `queries . rows + bias`
    #: with the one `ClassRows` of `export_weights`.
    has_plain_logits = False

    #: Whether training steps compute all classes where they could sample. A
    #: step has to be traced anew: `tfxclass.callbacks.ExactLast` sets it.
    trains_on_all = False

    #: The `keras.random.SeedGenerator` of a head whose steps draw numbers.
    random: Any = None

    #: The `ClassMatrix` of a head with one class vector for each class.
    class_matrix: Any = None

    #: The `Shards` of a head whose classes are shared out, or None.
    shards: Any = None

    #: The `Sampler` of a head that samples classes, or None.
    sampler: Any = None

    def __init__(
        self,
        num_classes: int,
        activation: str | None = "auto",
        kernel_initializer: Initializer = "glorot_uniform",
        seed: int | None = None,
        loss_options: LossOptions | None = None,
        kernel_dtype: str = "float32",
        loss: str = "softmax",
        class_names: Sequence[str] | None = None,
        num_negatives: int = 0,
        **kwargs: Any,
    ) -> None:
        # `remove_classes` and files have it; a user gives none.
        removed = kwargs.pop("removed", ())
        with suggesting_arguments(type(self), kwargs):
            super().__init__(**kwargs)
        num_classes = check_positive_int("num_classes", num_classes)
        head_config.check_loss(self, loss)
        # `loss` itself is what `compile` takes.
        self.objective = OBJECTIVES[loss]
        known = self.own_activation
        if activation == "auto":
            activation = known
        check_choice("activation", activation, (known, None))
        self.num_classes = num_classes
        is_count = isinstance(num_negatives, int) and num_negatives >= 0
        check_value("num_negatives", num_negatives, is_count, "an int >= 0")
        self.num_negatives = num_negatives
        self.removed = head_config.checked_removed(removed, num_classes)
        self.class_names = class_names
        self.activation = activation
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.loss_options = as_loss_options(loss_options)
        #: As `loss_options`, or the defaults.
        self.options = self.loss_options or LossOptions()
        self.options.check_for(self)
        name, kinds = type(self).__name__, self.kernel_dtypes
        wanted = f"fitting: class rows of {name} are {' or '.join(kinds)}"
        check_value("kernel_dtype", kernel_dtype, kernel_dtype in kinds, wanted)
        self.kernel_dtype = kernel_dtype
        #: Whether a loss has warned of weights of rows with several labels.
        self.has_warned = False
        # The compiled ops have no XLA kernels.
        self.supports_jit = False
        self.supports_masking = True

    @property
    def class_names(self) -> list[str] | None:
        """The name of each class; None without names."""
        return self._class_names

    @class_names.setter
    def class_names(self, names: Sequence[str] | None) -> None:
        names = head_config.unpacked_names(names)
        if names is not None:
            names = head_config.checked_names(
                "class_names", names, self.num_classes
            )
            check_distinct_names("class_names", names, self.removed)
        self._class_names = names

    @property
    def own_activation(self) -> str:
        """The activation that turns logits into probabilities, str."""
        return self.objective.activation

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        """The weights for features of width `dim`, made in this order."""
        raise NotImplementedError

    def device_specs(self, dim: int) -> list[WeightSpec]:
        """The part of `weight_specs` that lies on one device."""
        return self.weight_specs(dim)

    def shared_rows(self, dim: int) -> dict[str, keras.Variable]:
        """Weights by name that belong to another layer, which saves them."""
        return {}

    def build(self, input_shape: Shape) -> None:
        self.dim = dim = head_weights.width_of(input_shape)
        shared = self.shared_rows(dim)
        #: The weights, and the `ClassMatrix` of class vectors, by name.
        self.weights_by_name, self.class_matrices = head_weights.add_weights(
            self, self.weight_specs(dim), shared
        )
        self.class_matrix = self.class_matrices.get("kernel")
        for name, weight in self.weights_by_name.items():
            setattr(self, name, weight)
        for variable in shared.values():
            untrack(self, variable)

    def next_seed(self) -> tf.Tensor:
        """int64 `[2]`, another one each step, of a head with `random`."""
        return tf.cast(self.random.next(), tf.int64)

    def save_own_variables(self, store: Store) -> None:
        super().save_own_variables(store)
        saved_random.save(self.random, store)

    def load_own_variables(self, store: Store) -> None:
        with head_weights.loading_into(self):
            super().load_own_variables(saved_random.load(self.random, store))

    def is_on_host(self) -> bool:
        """Whether class vectors lie in host memory, and the step does not."""
        reason = placement.why_not_on_gpu(self)
        if reason is None:
            return False
        placement.warn_once(reason)
        return not tf.distribute.has_strategy()

    @property
    def rows_device(self) -> str | None:
        """The device that reads all class vectors, str; None is the step's."""
        return None if self.class_matrix is None else self.class_matrix.device

    @do_not_convert
    def call(
        self,
        features: tf.Tensor,
        labels: Labels | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        forward = forward_lib.Forward(self, features, training)
        if forward_lib.is_features_only():
            shape = [*tf.unstack(tf.shape(features)[:-1]), self.num_classes]
            return forward_lib.attach(tf.zeros(shape), forward)
        if labels is not None:
            losses = self.compute_loss(features, labels, training)
            self.add_loss(forward_lib.mean(losses, get_mask(features)))
        logits = self.logits(features)
        if training:
            # Another tensor than the output, which has the pass as attribute.
            forward.logits = tf.identity(logits)
        output = self.activate(logits) if self.activation else logits
        return forward_lib.attach(self.guard(output, training), forward)

    def guard(self, output: tf.Tensor, training: bool | None) -> tf.Tensor:
        """Returns `output` in the form that `call` returns."""
        return output

    def compute_output_shape(
        self, features_shape: Shape, labels_shape: Shape | None = None
    ) -> Shape:
        return (*features_shape[:-1], self.num_classes)

    @property
    def loss(self) -> HeadLoss:
        """The loss to pass to `compile`, a `HeadLoss`."""
        return HeadLoss(self.name)

    @do_not_convert
    def compute_loss(
        self, features: Array, labels: Labels, training: bool | None = None
    ) -> tf.Tensor:
        """The training loss of each example, else the exact loss.

        The arguments are as in a call. Losses are float32 `[batch]`, or
        `[batch, time]`. Positions that a Keras mask leaves out have loss 0,
        plus a penalty (`l2`) if the head has one.
        """
        return self.compute_step(features, labels, training).losses

    @do_not_convert
    def compute_step(
        self, features: Array, labels: Labels, training: bool | None = None
    ) -> Step:
        """As `compute_loss`, as a `Step` with the ranks for metrics."""
        features = self.as_features(features)
        flat, targets = flatten(features), self.targets(features, labels)
        if not training:
            step = Step(self.exact_loss(flat, targets))
        elif len(features.shape) > 2 and self.may_skip_rows():
            step = self._labelled_step(flat, targets)
        else:
            step = self.training_step(flat, targets)
        return step._replace(losses=unflatten(step.losses, features))

    def targets(self, features: tf.Tensor, labels: Labels) -> Targets:
        """`Targets` of a batch, with a row for each position of features."""
        labels, negatives = head_config.split_negatives(
            labels, self.num_negatives, len(features.shape)
        )
        if negatives is not None:
            negatives = self._as_targets(features, negatives).ids
        found = self.objective.targets(self._as_targets(features, labels))
        return found._replace(negatives=negatives)

    def _as_targets(self, features, ids):
        leading, mask = tf.shape(features)[:-1], get_mask(features)
        found = as_targets(ids, self.num_classes, leading, mask=mask)
        if not self.removed:
            return found
        ids = head_config.live_ids(found.ids, self.removed)
        return uniform_targets(ids)

    def _labelled_step(self, flat, targets):
        """`training_step` of the rows with a label; padding costs nothing."""
        rows = tf.where(targets.is_labelled > 0)[:, 0]
        # One at least: not every op takes none.
        is_empty = tf.cast(tf.equal(tf.size(rows), 0), tf.int32)
        rows = tf.concat([rows, tf.zeros([is_empty], tf.int64)], axis=0)
        step = self.training_step(
            tf.gather(flat, rows), targets.map(lambda x: tf.gather(x, rows))
        )
        shape = tf.shape(flat, tf.int64)[:1]
        losses = tf.scatter_nd(rows[:, tf.newaxis], step.losses, shape)
        ranking = step.ranking and step.ranking._replace(rows=rows)
        return Step(losses, ranking)

    def may_skip_rows(self) -> bool:
        """Whether a step may leave out the examples without labels."""
        return False

    def as_features(self, features: Array) -> tf.Tensor:
        """Converts features to a tensor; ValueError if not built."""
        if not self.built:
            raise ValueError(
                f"The head {self.name!r} is not built, so it has no weights. "
                "Call it (or its model) on a batch first, or "
                "head.build((None, dim))."
            )
        return tf.convert_to_tensor(features)

    @property
    def num_answers(self) -> int:
        """Number of classes that can be answers: all but the removed ones."""
        return self.num_classes - len(self.removed)

    # How classes come and go.

    def class_weights(self) -> list[WeightSpec]:
        """The weights that have a row for each of some consecutive classes."""
        return [x for x in self.weight_specs(self.dim) if x.is_rows]

    @property
    def growth(self) -> ClassGrowth:
        """Describes where the weights come from after a change of classes."""
        return ClassGrowth(self)

    def changed_config(self, change: ClassUpdate) -> Config:
        """The configuration after `change`, with all values of classes."""
        removed = set(self.removed) - set(change.added.tolist())
        names, options = self.class_names, self.loss_options
        if names is not None and change.names is not None:
            names = [*names, *[""] * (change.num_classes - len(names))]
            for number, name in zip(change.added, change.names, strict=True):
                names[number] = name
        return {
            **self.get_config(),
            "num_classes": change.num_classes,
            "class_names": names,
            "removed": sorted(removed | set(change.removed.tolist())),
            "loss_options": options and options.changed(change),
        }

    @do_not_convert
    def logits(self, features: Array) -> tf.Tensor:
        """Logits of all classes, float32 `[..., num_classes]`."""
        features = self.as_features(features)
        return unflatten(self.all_logits(flatten(features)), features)

    def activate(self, logits: tf.Tensor) -> tf.Tensor:
        """Turns logits `[..., num_classes]` into probabilities."""
        if self.answer_scale != 1.0:
            logits = self.answer_scale * logits
        return self.objective.activate(logits)

    @do_not_convert
    def top_k(self, features: Array, k: int, weights: Any = None) -> Answers:
        """The exact best classes of each example, computed in blocks.

        Args:
            features: float `[..., dim]`, the input of the head. For the inputs
                of a model, use `tfxclass.top_k`.
            k: int, at most `num_answers`, the classes that were not removed.
            weights: the result of `export_weights`, for an exported graph of
                TensorFlow's own ops, or None.

        Returns:
            `(ids, scores)`, int64 and float32 `[..., k]`, best first. Scores
            are probabilities, or logits with `activation=None`. Where a score
            is NaN, the id is -1 and the score 0.
        """
        k = check_k(k, self.num_answers)
        features = self.as_features(features)
        found = mask_missing(*self.best(flatten(features), k, weights))
        return tuple(unflatten(x, features) for x in found)

    # What a head is made of. Features here are float32 `[rows, dim]`.

    def queries(self, features: tf.Tensor) -> tf.Tensor:
        """float32 `[rows, dim]`: logits are `queries . class vectors`."""
        return flatten(features)

    def query_weights(self) -> list[tf.Variable]:
        """The variables that `part_queries` reads, which an export saves."""
        return []

    def class_rows(self) -> list[ClassRows]:
        """Lists the `ClassRows` of all classes, in their order."""
        raise NotImplementedError

    def part_queries(self, features: tf.Tensor) -> list[tf.Tensor]:
        """Lists the queries of each entry of `class_rows`, or one for all."""
        return [self.queries(features)]

    def parts(self, features: tf.Tensor, weights: Any = None) -> Parts:
        """Lists `(queries, ClassRows)` of `weights`, None for `class_rows`."""
        rows = self.class_rows() if weights is None else weights
        queries = self.part_queries(flatten(features))
        if len(queries) == 1:
            queries *= len(rows)
        return list(zip(queries, rows, strict=True))

    def exchange(self, features: tf.Tensor) -> ReplicaGroup:
        """Communication between the replicas (see `tfxclass.shards`)."""
        return NO_EXCHANGE

    def target_margin(self) -> Margin | None:
        """The margin as a function of the labels' logits, or None."""
        return None

    def training_step(self, features: tf.Tensor, targets: Targets) -> Step:
        """Returns the `Step` of a training step. Heads differ here alone.

        By default it is the exact loss, with the margin and the loss options.
        """
        targets, finish = self.objective.weighted_targets(self, targets)
        is_plain = self.objective.is_plain(self.options)
        if is_plain and self.target_margin() is None:
            return Step(finish(self.exact_loss(features, targets)))
        exchange, parts = self.exchange(features), self.parts(features)
        if not is_plain:
            parts = [(x, rows.whole()) for x, rows in parts]
        targets = targets.map(exchange.gather)
        return Step(finish(self.streamed_loss(parts, targets, exchange)))

    def streamed_loss(
        self,
        parts: Parts,
        targets: Targets,
        exchange: ReplicaGroup,
        columns: list[tf.Tensor] | None = None,
        ids: list[tf.Tensor] | None = None,
    ) -> tf.Tensor:
        """The loss over parts, with the margin and the loss options.

        `columns` and `ids` are of a sample, see `rows.loss.streamed_loss` and
        `shape_parts`.
        """
        options, num_classes = self.options, self.num_classes
        return self.objective.streamed(options, num_classes)(
            options.shape_parts(parts, num_classes, ids),
            targets,
            columns=columns,
            exchange=exchange,
            margin=self.target_margin(),
        )

    def exact_loss(self, features: tf.Tensor, targets: Targets) -> tf.Tensor:
        """Loss over all classes, computed in blocks, float32 `[rows]`."""
        exchange = self.exchange(features)
        targets = targets.map(exchange.gather)
        return self.objective.streamed()(
            self.parts(features), targets, exchange=exchange
        )

    # Answers. `weights` are those of an export, which TensorFlow's own ops
    # read, or None for the class vectors as they are.

    def export_weights(self) -> Any:
        """The weights that an export reads: by default `ClassRows`."""
        return [rows.servable() for rows in self.class_rows()]

    def all_logits(self, features: tf.Tensor, weights: Any = None) -> tf.Tensor:
        """Logits of all classes, float32 `[rows, num_classes]`."""
        parts, exchange = self._read(features, weights)
        return tf.concat(search.logits(parts, exchange), axis=1)

    def all_scores(self, features: tf.Tensor, weights: Any = None) -> tf.Tensor:
        """Scores of all classes, float32 `[rows, num_classes]`."""
        logits = self.all_logits(features, weights)
        return self.activate(logits) if self.activation else logits

    def logits_of(
        self, features: tf.Tensor, ids: tf.Tensor, weights: Any = None
    ) -> tf.Tensor:
        """Logits of classes, int64 `[rows, q]`; any number for an id -1."""
        return search.logits_of(self.parts(features, weights), ids)

    def best(self, features: tf.Tensor, k: int, weights: Any = None) -> Answers:
        """The best classes, `(ids, scores)`, `[rows, k]` (see `top_k`)."""
        parts, exchange = self._read(features, weights)
        if self.answer_scale != 1.0:
            parts = search.scaled(parts, self.answer_scale)
        found = search.best(parts, k, self.needs_logsumexp, exchange)
        return self.as_answers(found, k)

    def _read(self, features, weights):
        """`(parts, exchange)` of an answer; an export has no replicas."""
        exchange = self.exchange(features) if weights is None else NO_EXCHANGE
        return self.parts(features, weights), exchange

    def as_answers(self, found: Sequence[Best], k: int) -> Answers:
        """`(ids, scores)` of the `Best` of each part."""
        best = merge(found, k)
        if self.activation is None:
            return best.ids, tf.cast(best.logits, tf.float32)
        scores = self.objective.probabilities(best.logits, best.logsumexp)
        return best.ids, scores

    @property
    def answer_scale(self) -> float:
        """The factor of logits in answers."""
        return 1.0 if self.activation is None else 1.0 / self.answer_temperature

    @property
    def needs_logsumexp(self) -> bool:
        """Whether the best classes need the log-sum-exp of all logits."""
        return self.activation is not None and self.objective.needs_logsumexp

    # What estimates of memory and the optimizer ask.

    def step_rows(self, batch: int) -> int | None:
        """Number of class vectors that a training step updates; None is all."""
        return None

    @property
    def steps_by_class(self) -> bool:
        """Whether the optimizer gets the gradient class by class."""
        return False

    @property
    def is_sampled(self) -> bool:
        """Whether a training step computes only some of the classes."""
        return self.step_rows(1) is not None

    @property
    def measured(self) -> dict[str, Any]:
        """What samplers measure of themselves, numbers by name."""
        return {} if self.sampler is None else self.sampler.gauges

    def activation_bytes(self, batch: int, dim: int) -> int:
        """Memory of the logits and other activations of a step, in bytes."""
        on_gpu = placement.on_gpu(self.rows_device)
        kept = 4 * batch * self.num_classes
        is_softmax = self.objective.name == "softmax"
        if is_softmax and not on_gpu and kept <= self.kept_bytes:
            return kept
        # Logits and their gradient, on a GPU also class vectors, of a block.
        classes = blocks.block_size(batch, on_gpu, dim if on_gpu else 1)
        return 8 * (batch + on_gpu * dim) * min(classes, self.num_classes)

    def index_bytes(self, dim: int) -> int:
        """Memory of a sampler's index and of its refresh, in bytes."""
        if self.sampler is None:
            return 0
        return self.sampler.index_bytes(*self.device_specs(dim)[0].shape)

    def __repr__(self):
        parts = [f"name={self.name}", f"built={self.built}"]
        parts.append(f"{self.num_classes:,} classes")
        if self.built:
            sizes = [w.shape.num_elements() for w in self.trainable_variables]
            parts.append(f"{sum(sizes):,} parameters")
        if self.sampler is not None:
            more = " or more" if self.sampler.follows_batch else ""
            size = f"{self.sampler.num_sampled:,}{more} a step"
            parts.append(f"{type(self.sampler).__name__} of {size}")
        return f"<{type(self).__name__} {', '.join(parts)}>"

    def get_config(self) -> Config:
        initializer = keras.initializers.serialize(self.kernel_initializer)
        options = keras.saving.serialize_keras_object(self.loss_options)
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "activation": self.activation,
            "kernel_initializer": initializer,
            "seed": self.seed,
            "loss_options": options,
            "kernel_dtype": self.kernel_dtype,
            "loss": self.objective.name,
            "num_negatives": self.num_negatives,
            "class_names": head_config.packed_names(self.class_names),
            "removed": [int(x) for x in self.removed],
        }

    @classmethod
    def from_config(cls, config: Config) -> "OutputHead":
        return super().from_config(names_of_functions(config))
