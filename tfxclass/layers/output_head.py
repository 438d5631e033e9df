"""The contract of an output layer: what Keras, metrics and exports call."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.checks import check_k
from tfxclass.checks import check_positive_int
from tfxclass.core import forward as forward_lib
from tfxclass.core import targets as targets_lib
from tfxclass.core.class_update import ClassUpdate
from tfxclass.core.forward import Step
from tfxclass.h5_config import names_of_functions
from tfxclass.keras_internals import untrack
from tfxclass.layers import class_set
from tfxclass.layers import head_weights
from tfxclass.layers.class_growth import ClassGrowth
from tfxclass.layers.class_set import ClassWeight
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.losses import negatives as negatives_lib
from tfxclass.losses import teacher
from tfxclass.losses.head_loss import HeadLoss
from tfxclass.losses.objectives import OBJECTIVES
from tfxclass.losses.objectives import SOFTMAX_ALONE
from tfxclass.losses.options import LABEL_OPTIONS
from tfxclass.losses.options import LossOptions
from tfxclass.losses.options import as_loss_options
from tfxclass.ops import placement
from tfxclass.rows import blocks
from tfxclass.rows import search
from tfxclass.types import Array
from tfxclass.types import Config
from tfxclass.types import Initializer
from tfxclass.types import Labels
from tfxclass.types import Shape

# In a tf.function of the user's, AutoGraph would rewrite all that is called.
do_not_convert = tf.autograph.experimental.do_not_convert


class OutputHead(keras.layers.Layer):
    """Base class of the output layers over `num_classes` classes.

    A head is the last layer of a model. `call` gives the full output; `loss`,
    passed to `compile`, gives the head's own training loss, which never
    computes that output.

    A subclass declares its weights in `weight_specs` and defines
    `training_step`, `exact_loss`, `all_logits`, `best`, `export_weights`,
    `servable_best` and `servable_scores`, as a tree does. `PartitionedHead`
    defines all but the first two from its partitions of class vectors;
    `ClassHead` is the base of heads with one class vector for each class.

    Args:
        num_classes: int, number of classes.
        activation: `"auto"`, the probabilities of `loss`: `"softmax"`, or
            `"sigmoid"` where labels are independent; or None for logits.
        kernel_initializer: initializer of the class rows.
        seed: int, seed of all that the head draws.
        loss_options: `tfxclass.losses.LossOptions`: class weights, label
            smoothing, logit adjustment and the like, in training.
        kernel_dtype: `"float32"`, or `"bfloat16"` for the class vectors alone:
            half the memory. They are read as float32, and rounded
            stochastically after each step, which needs an optimizer of
            `tfxclass.optimizers`: others round small steps to none
            (`tfxclass.check` tells). For all heads but those of trees, on a
            CPU.
        loss: `"softmax"`, cross-entropy over all classes; or for labels that
            are independent of each other, one vs. rest: `"sigmoid"` (logistic)
            or `"squared_hinge"`, a binary loss for each class, summed over all
            of them (on a sample an unbiased estimate of the sum). A label of
            a row then weighs 1, and a probability is its label's own; of a
            squared hinge's margins it is the sigmoid, which ranks right and
            is a probability after `tfxclass.calibrate`.
        class_names: sequence of str, the name of each class, which exports
            answer with; or None.
        num_negatives: int, classes that come with the labels of a row, in the
            last columns: labels are `[batch, ..., p + num_negatives]`, padded
            with -1. A training step on a sample has them in it beside the
            labels, for all rows of the batch, as labels of other rows are: for
            sure, so their weight is 1 (the log of the expected count is 0),
            and the loss estimates what it did. What computes all classes
            anyway, evaluations and metrics pass them by.
        **kwargs: `keras.layers.Layer`'s arguments; in a configuration also
            `removed`.

    Attributes:
        removed: list of int, classes that are never an answer. Their labels
            count as padding. `tfxclass.remove_classes` makes a head with them.

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

    #: Names that `kernel_dtype` may have.
    kernel_dtypes = ("float32",)

    #: Names that `loss` may have.
    loss_kinds = SOFTMAX_ALONE

    #: Names of the `LossOptions` that the head's loss may have.
    supported_options = LABEL_OPTIONS

    #: Whether `export_top_k` returns what `top_k` does.
    export_is_exact = True

    #: Whether all compiled ops of a training step run on GPUs.
    has_gpu_ops = True

    #: Whether they do with rows in bfloat16, too.
    has_gpu_half_ops = True

    #: Whether scores are the softmax, or the logits, of `queries . rows + bias`
    #: with the one `ClassRows` of `export_weights`.
    has_plain_logits = False

    # Whether rows lie on another device than the step: a server, or the host.
    _is_apart = False

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
        super().__init__(**kwargs)
        num_classes = check_positive_int("num_classes", num_classes)
        self._check_loss(loss)
        # `loss` itself is what `compile` takes.
        self.objective = OBJECTIVES[loss]
        known = self.own_activation
        if activation == "auto":
            activation = known
        check_choice("activation", activation, (known, None))
        self.num_classes = num_classes
        if not isinstance(num_negatives, int) or num_negatives < 0:
            raise ValueError(
                "`num_negatives` must be an int >= 0. Received: "
                f"{num_negatives}"
            )
        self.num_negatives = num_negatives
        self.class_names = class_set.checked_names(class_names, num_classes)
        self.removed = class_set.checked_removed(removed, num_classes)
        self.activation = activation
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.seed = seed
        self.loss_options = as_loss_options(loss_options)
        if self.loss_options is not None:
            self.loss_options.check_for(self)
        self.kernel_dtype = kernel_dtype
        self._check_kernel_dtype()
        # The compiled ops have no XLA kernels.
        self.supports_jit = False
        self.supports_masking = True

    def _check_loss(self, loss):
        check_choice("loss", loss, tuple(OBJECTIVES))
        if loss not in self.loss_kinds:
            raise ValueError(
                f"The loss of a {type(self).__name__} is its own, of one label "
                f'or their mean. Received: loss="{loss}". Fix: leave it out, '
                "or take FullSoftmax, SampledSoftmax, SelectiveSoftmax, "
                "LSHSoftmax or ShardedSoftmax."
            )

    @property
    def own_activation(self) -> str:
        """What makes probabilities of logits, str."""
        return self.objective.activation

    def _check_kernel_dtype(self):
        check_choice("kernel_dtype", self.kernel_dtype, ("float32", "bfloat16"))
        if self.kernel_dtype not in self.kernel_dtypes:
            raise ValueError(
                f"The class rows of {type(self).__name__} are float32. "
                f'Received: kernel_dtype="{self.kernel_dtype}". Fix: leave it '
                "out, or take a head of class rows, e.g. SampledSoftmax."
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

    def shared_rows(self, dim: int) -> dict[str, keras.Variable]:
        """Weights by name that belong to another layer, which saves them."""
        return {}

    def take_weights(self, weights_by_name: dict[str, keras.Variable]) -> None:
        """Sets the attributes of weights, a dict by name."""
        raise NotImplementedError

    def check_features(self, shape: Shape) -> None:
        """Raises ValueError unless `shape` is that of features."""
        if len(shape) < 2 or shape[-1] is None:
            raise ValueError(
                "The features of a head must have shape [batch, dim], or "
                "[batch, time, dim], with a known dim. Received: "
                f"{tuple(shape)}."
            )

    def build(self, input_shape: Shape) -> None:
        self.check_features(input_shape)
        weights_by_name = {}
        shared = self.shared_rows(input_shape[-1])
        for spec in self.weight_specs(input_shape[-1]):
            kernel = weights_by_name.get("kernel")
            if spec.name in shared:
                weights_by_name[spec.name] = shared[spec.name]
            elif spec.is_rows:
                weights_by_name[spec.name] = self.add_rows(spec, kernel)
            else:
                kernel = kernel if self._is_apart else None
                weights_by_name[spec.name] = head_weights.add_weight(
                    self, spec, kernel
                )
        #: The weights by name.
        self.weights_by_name = weights_by_name
        self.take_weights(weights_by_name)
        for variable in shared.values():
            untrack(self, variable)

    def add_rows(
        self, spec: WeightSpec, kernel: keras.Variable | None = None
    ) -> keras.Variable:
        """Makes a weight whose rows are gathered; see `head_weights`."""
        variable, self._is_apart = head_weights.add_rows(self, spec, kernel)
        return variable

    def is_on_host(self) -> bool:
        """Whether rows lie in host memory while the step is elsewhere."""
        reason = placement.why_not_on_gpu(self)
        if reason is None:
            return False
        placement.warn_once(reason)
        return not tf.distribute.has_strategy()

    @property
    def rows_device(self) -> str | None:
        """The device that computes with all rows, str; None is the step's."""
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
        if forward_lib.is_features_only():
            shape = [*tf.unstack(tf.shape(features)[:-1]), self.num_classes]
            return forward_lib.attach(tf.zeros(shape), forward)
        if labels is not None:
            losses = self.compute_loss(features, labels, training)
            self.add_loss(_mean(losses, forward_lib.mask_of(features)))
        logits = self.logits(features)
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
            float32 `[batch]`, or `[batch, time]`; where a Keras mask of the
            features leaves a position out, 0 or a penalty of the head (`l2`),
            which is in every row.
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
            step = self._trained(flat, targets, features, labels)
        else:
            step = Step(self.exact_loss(flat, targets))
        return step._replace(losses=unflatten(step.losses, features))

    def _trained(self, flat, targets, features, labels):
        """`Step` of training; where there is a teacher, from both."""
        labels, negatives = self._split(features, labels)
        if negatives is not None:
            negatives = self._as_targets(features, negatives).ids
            targets = targets._replace(negatives=negatives)
        if not self.teacher_weight:
            if len(features.shape) > 2 and self.may_skip_rows():
                return self._labelled_step(flat, targets)
            return self.training_step(flat, targets)
        both = teacher.add_distillation_targets(
            labels,
            targets,
            self.teacher_weight,
            self.num_classes,
            tf.shape(features)[:-1],
            mask=forward_lib.mask_of(features),
            is_distribution=not self.objective.is_sum,
        )
        both = both._replace(negatives=targets.negatives)
        step = self.training_step(flat, both)
        if step.ranking is None:
            return step
        # Metrics rank the labels alone.
        own = tf.where(targets.ids >= 0, step.ranking.positions, -1)
        return step._replace(ranking=step.ranking._replace(positions=own))

    def may_skip_rows(self) -> bool:
        """Whether a step may be computed without the rows of padding."""
        return False

    def _labelled_step(self, flat, targets):
        """`training_step` of the rows with a label; others have loss 0.

        Sequences are padded, and a product with the class vectors would cost
        as much for padding as for items.
        """
        rows = tf.where(targets.is_labelled > 0)[:, 0]
        # One at least: not every op takes none.
        is_empty = tf.cast(tf.equal(tf.size(rows), 0), tf.int32)
        rows = tf.concat([rows, tf.zeros([is_empty], tf.int64)], axis=0)
        step = self.training_step(
            tf.gather(flat, rows), targets.map(lambda x: tf.gather(x, rows))
        )
        shape = tf.shape(flat, tf.int64)[:1]
        losses = tf.scatter_nd(rows[:, tf.newaxis], step.losses, shape)
        ranking = step.ranking
        if ranking is not None:
            ranking = ranking._replace(rows=rows)
        return step._replace(losses=losses, ranking=ranking)

    @property
    def teacher_weight(self) -> float:
        """Mass of a teacher in the training loss; 0 without `loss_options`."""
        options = self.loss_options
        return 0.0 if options is None else options.teacher_weight

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
        labels, _ = self._split(features, labels)
        if self.teacher_weight:
            labels = teacher.labels_alone(labels)
        return self.objective.targets(self._as_targets(features, labels))

    def _split(self, features, labels):
        """`(labels, negatives)`, or None for these."""
        if not self.num_negatives:
            return labels, None
        return negatives_lib.split(
            labels, self.num_negatives, len(features.shape)
        )

    def _as_targets(self, features, ids):
        targets = targets_lib.as_targets(
            ids,
            self.num_classes,
            tf.shape(features)[:-1],
            mask=forward_lib.mask_of(features),
        )
        if not self.removed:
            return targets
        return targets_lib.uniform_targets(self.live_ids(targets.ids))

    @property
    def num_answers(self) -> int:
        """Classes that can be answers: all but the removed ones; int."""
        return self.num_classes - len(self.removed)

    def live_ids(self, ids: tf.Tensor) -> tf.Tensor:
        """Ids, int64 of any shape, with -1 for those of removed classes."""
        return class_set.live_ids(ids, self.removed)

    # How classes come and go.

    def class_weights(self) -> list[ClassWeight]:
        """The weights with a row a class."""
        raise NotImplementedError

    @property
    def growth(self) -> ClassGrowth:
        """Where the rows of a head after a change of classes come from."""
        return ClassGrowth(self)

    def changed_config(self, change: ClassUpdate) -> Config:
        """The configuration of this head after `change`.

        A subclass adds what its configuration has for each class.
        """
        removed = set(self.removed) - set(change.added.tolist())
        names = self.class_names
        if names is not None and change.names is not None:
            names = [*names, *[""] * (change.num_classes - len(names))]
            for number, name in zip(change.added, change.names, strict=True):
                names[number] = name
        options = self.loss_options
        return {
            **self.get_config(),
            "num_classes": change.num_classes,
            "class_names": names,
            "removed": sorted(removed | set(change.removed.tolist())),
            "loss_options": options and options.changed(change),
        }

    @do_not_convert
    def logits(self, features: Array) -> tf.Tensor:
        """All logits, float32 `[..., num_classes]`."""
        features = self.as_features(features)
        return unflatten(self.all_logits(flatten(features)), features)

    def activate(self, logits: tf.Tensor) -> tf.Tensor:
        """Probabilities of logits `[..., num_classes]`."""
        return self.objective.activate(logits)

    @do_not_convert
    def top_k(self, features: Array, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """The best classes of each row, exactly, in blocks.

        Args:
            features: float `[..., dim]`.
            k: int, at most `num_answers`: `num_classes` but the removed ones.

        Returns:
            `(ids, scores)`: int64 and float32 `[..., k]`, best first; scores
            are probabilities, or logits with `activation=None`. Where a score
            is NaN, as of features that are NaN, the id is -1 and the score 0.
        """
        k = check_k(k, self.num_answers)
        features = self.as_features(features)
        found = search.answers(*self.best(flatten(features), k))
        return tuple(unflatten(x, features) for x in found)

    @do_not_convert
    def export_top_k(
        self, features: Array, k: int, weights: Any = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`top_k` with stock TensorFlow ops alone, for an exported graph.

        Args:
            features: float `[..., dim]`.
            k: int, at most `num_answers`.
            weights: what `export_weights` returned; by default it is called,
                which may make variables: not in a `tf.function`.

        Returns:
            As `top_k`.
        """
        k = check_k(k, self.num_answers)
        weights = self.export_weights() if weights is None else weights
        features = self.as_features(features)
        found = self.servable_best(flatten(features), k, weights)
        found = search.answers(*found)
        return tuple(unflatten(x, features) for x in found)

    @do_not_convert
    def export_scores(self, features: Array, weights: Any = None) -> tf.Tensor:
        """All scores with stock ops alone, float32 `[..., num_classes]`."""
        weights = self.export_weights() if weights is None else weights
        features = self.as_features(features)
        scores = self.servable_scores(flatten(features), weights)
        return unflatten(scores, features)

    # What a head is made of. Features here are float32 `[rows, dim]`.

    def queries(self, features: tf.Tensor) -> tf.Tensor:
        """float32 `[rows, dim]`: what class rows are multiplied with."""
        return flatten(features)

    def query_weights(self) -> list[tf.Variable]:
        """The variables that `part_queries` reads; an export saves them."""
        return []

    def training_step(
        self, features: tf.Tensor, targets: targets_lib.Targets
    ) -> Step:
        """`Step` of a training step; the one place where heads differ.

        By default the exact loss, with the loss options.
        """
        targets, finish = self.apply_class_weights(targets)
        return Step(finish(self.exact_loss(features, targets)))

    def apply_class_weights(
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
        return self.objective.apply_class_weights(
            options, targets, self.num_classes
        )

    def exact_loss(
        self, features: tf.Tensor, targets: targets_lib.Targets
    ) -> tf.Tensor:
        """Loss over all classes; float32 `[rows]`."""
        raise NotImplementedError

    def all_logits(self, features: tf.Tensor) -> tf.Tensor:
        """float32 `[rows, num_classes]`."""
        raise NotImplementedError

    def best(self, features: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, scores)`, `[rows, k]`: see `top_k`."""
        raise NotImplementedError

    def logits_of(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Logits of some classes, int64 `[rows, q]`, of each row.

        They are float32 `[rows, q]`, of any class where an id is -1. Here
        taken from those of all classes.
        """
        logits = self.all_logits(features)
        return tf.gather(logits, tf.maximum(ids, 0), axis=1, batch_dims=1)

    def export_weights(self) -> Any:
        """What `export_top_k` reads and an export saves."""
        raise NotImplementedError

    def servable_best(
        self, features: tf.Tensor, k: int, weights: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`best` with stock ops alone."""
        raise NotImplementedError

    def servable_scores(self, features: tf.Tensor, weights: Any) -> tf.Tensor:
        """All scores with stock ops alone, float32 `[rows, num_classes]`."""
        raise NotImplementedError

    def sorted_scores(self, features: tf.Tensor, weights: Any) -> tf.Tensor:
        """`servable_scores` of a head whose search is the only way to them."""
        ids, scores = self.servable_best(features, self.num_classes, weights)
        places = tf.argsort(ids, axis=1)
        return tf.gather(scores, places, axis=1, batch_dims=1)

    def step_rows(self, batch: int) -> int | None:
        """Rows of the weights that a training step moves, int; None is all."""
        return None

    @property
    def steps_by_class(self) -> bool:
        """Whether an optimizer gets the kernel's gradient class by class."""
        return False

    @property
    def is_sampled(self) -> bool:
        """Whether a training step computes some of the classes alone."""
        return self.step_rows(1) is not None

    def activation_bytes(self, batch: int, dim: int) -> int:
        """Bytes of logits and the like that a training step holds, int."""
        # A block of logits and its gradient.
        on_gpu = placement.on_gpu(self.rows_device)
        classes = blocks.classes_of(batch, on_gpu)
        return 8 * batch * min(classes, self.num_classes)

    def index_bytes(self, dim: int) -> int:
        """Bytes of a sampler's index and of its refresh, int."""
        return 0

    def __repr__(self):
        parts = [f"name={self.name}", f"built={self.built}"]
        parts.append(f"{self.num_classes:,} classes")
        if self.built:
            sizes = [w.shape.num_elements() for w in self.trainable_variables]
            parts.append(f"{sum(sizes):,} parameters")
        sampler = getattr(self, "sampler", None)
        if sampler is not None:
            more = " or more" if sampler.follows_batch else ""
            of = f"{sampler.num_sampled:,}{more} a step"
            parts.append(f"{type(sampler).__name__} of {of}")
        return f"<{type(self).__name__} {', '.join(parts)}>"

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
            "kernel_dtype": self.kernel_dtype,
            "loss": self.objective.name,
            "num_negatives": self.num_negatives,
            "class_names": class_set.packed_names(self.class_names),
            "removed": [int(x) for x in self.removed],
        }

    @classmethod
    def from_config(cls, config: Config) -> "OutputHead":
        return super().from_config(names_of_functions(config))


def _mean(losses, mask):
    """Over the positions that a mask, or None, leaves in."""
    if mask is None:
        return tf.reduce_mean(losses)
    count = tf.reduce_sum(tf.cast(mask, losses.dtype))
    return tf.math.divide_no_nan(tf.reduce_sum(losses), count)


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
