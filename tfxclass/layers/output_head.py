"""The contract of an output layer: what Keras, metrics and exports call."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.checks import check_k
from tfxclass.checks import check_positive_int
from tfxclass.checks import suggesting_arguments
from tfxclass.core import early_answers
from tfxclass.core import forward as forward_lib
from tfxclass.core import targets as targets_lib
from tfxclass.core.class_update import ClassUpdate
from tfxclass.core.forward import Step
from tfxclass.h5_config import names_of_functions
from tfxclass.keras_internals import untrack
from tfxclass.layers import class_set
from tfxclass.layers import head_weights
from tfxclass.layers import public_names
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
    """Base class of the output layers ("heads") over `num_classes` classes.

    A head is the last layer of a model. `call` returns the probabilities of all
    classes. `loss` is the training loss of the head, to be passed to `compile`.
    It never computes the full output.

    A subclass declares its weights in `weight_specs` and defines
    `training_step`, `exact_loss`, `all_logits`, `best`, `export_weights`,
    `servable_best` and `servable_scores`. `PartitionedHead` defines all but the
    first two, for heads whose logits are products with class vectors.
    `ClassHead` is the base of heads with one class vector for each class.

    Args:
        num_classes: int, number of classes.
        activation: `"auto"` for the probabilities that belong to `loss`,
            `"softmax"`, `"sigmoid"` where labels are independent, or None for
            logits. Defaults to `"auto"`.
        kernel_initializer: initializer of the class vectors. Defaults to
            `"glorot_uniform"`.
        seed: int or None, seed of the initial weights and of all sampling.
        loss_options: a `tfxclass.losses.LossOptions` with class weights, label
            smoothing, logit adjustment and more, for training. Defaults to
            None.
        kernel_dtype: `"float32"`, or `"bfloat16"` to store the class vectors in
            half the memory. They are read as float32 and rounded stochastically
            after each step. This needs an optimizer of `tfxclass.optimizers`,
            since others lose small updates to rounding (`tfxclass.check`
            reports this). Not for trees, and only on a CPU. Defaults to
            `"float32"`.
        loss: `"softmax"`, which is cross-entropy over all classes, or a binary
            loss for each class (one-vs-rest), for independent labels:
            `"sigmoid"` (logistic) or `"squared_hinge"`. Binary losses are
            summed over all classes, and a sampled head estimates the sum
            without bias. Each label of an example then has weight 1 and a
            probability of its own. For `"squared_hinge"` the probability is the
            sigmoid of the margin: it ranks correctly, and `tfxclass.calibrate`
            makes it a probability. Defaults to `"softmax"`.
        class_names: sequence of str, the name of each class, for the answers of
            exported models. Defaults to None.
        num_negatives: int, number of hard negatives that come with the labels,
            in the last columns. Labels are then `[batch, ..., p +
            num_negatives]`, padded with -1. A sampled training step includes
            these classes for all examples of the batch, with weight 1 (expected
            count 1), so the loss estimates the same value. Exact losses,
            evaluations and metrics ignore them. Defaults to 0.
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
        with suggesting_arguments(type(self), kwargs):
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

    def __dir__(self) -> list[str]:
        return public_names.without_internals(self, super().__dir__())

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
        """The activation that turns logits into probabilities, str."""
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
        """The part of `weight_specs` that lies on one device."""
        return self.weight_specs(dim)

    def shared_rows(self, dim: int) -> dict[str, keras.Variable]:
        """Weights by name that belong to another layer, which saves them."""
        return {}

    def take_weights(self, weights_by_name: dict[str, keras.Variable]) -> None:
        """Sets the attributes of weights from a dict by name."""
        raise NotImplementedError

    def check_features(self, shape: Shape) -> None:
        """Raises ValueError unless `shape` is a valid shape of features."""
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
        """Makes a weight whose rows are gathered (see `head_weights`)."""
        variable, self._is_apart = head_weights.add_rows(self, spec, kernel)
        return variable

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
        """Loss of each example: the training loss, or the exact loss.

        Args:
            features: float `[batch, dim]`, or with more dimensions, such as
                `[batch, time, dim]`.
            labels: integers of the shape of the features without their last
                dimension, `[batch]`, or with one more, `[batch, p]`, padded
                with -1. The loss of an example is against the mean of its
                labels.
            training: bool. False computes the exact loss over all classes.

        Returns:
            float32 `[batch]`, or `[batch, time]`. Positions that a Keras mask
            leaves out have loss 0, plus a penalty (`l2`) if the head has one.
        """
        return self.compute_step(features, labels, training).losses

    @do_not_convert
    def compute_step(
        self, features: Array, labels: Labels, training: bool | None = None
    ) -> Step:
        """As `compute_loss`, as a `Step` with the ranks for metrics."""
        features = self.as_features(features)
        targets = self.targets(features, labels)
        flat = flatten(features)
        if training:
            step = self._trained(flat, targets, features, labels)
        else:
            step = Step(self.exact_loss(flat, targets))
        return step._replace(losses=unflatten(step.losses, features))

    def early_answers(
        self, features: Array, labels: Labels, ranks_all: bool
    ) -> dict[int | None, tuple[tf.Tensor, tf.Tensor]]:
        """The best classes that metrics ask for, before the update.

        Args:
            features: float `[..., dim]`.
            labels: as of `compute_loss`.
            ranks_all: bool, whether metrics of all examples rank all classes.

        Returns:
            `(ids, scores)` of `top_k` by the number of examples, None for all.
        """
        asked = early_answers.asked(self.name)
        if not ranks_all:
            asked.pop(None, None)
        if not asked:
            return {}
        targets = self.targets(features, labels)
        flat = tf.stop_gradient(flatten(self.as_features(features)))
        found = {}
        for count, k in asked.items():
            some = flat
            if count is not None:
                rows = early_answers.some_rows(targets.is_labelled, count)
                some = tf.gather(flat, rows)
            found[count] = self.top_k(some, min(k, self.num_answers))
        return found

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
        """Whether a step may leave out the examples without labels."""
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
        """Weight of the teacher in the loss, 0 without `loss_options`."""
        options = self.loss_options
        return 0.0 if options is None else options.teacher_weight

    def as_features(self, features: Array) -> tf.Tensor:
        """Converts features to a tensor; ValueError if not built."""
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
        """Returns the `Targets` of labels, for flattened features."""
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
        """Number of classes that can be answers: all but the removed ones."""
        return self.num_classes - len(self.removed)

    def live_ids(self, ids: tf.Tensor) -> tf.Tensor:
        """Replaces the ids of removed classes by -1 (int64, any shape)."""
        return class_set.live_ids(ids, self.removed)

    # How classes come and go.

    def class_weights(self) -> list[ClassWeight]:
        """The weights that have one row for each class."""
        raise NotImplementedError

    @property
    def growth(self) -> ClassGrowth:
        """Describes where the weights come from after a change of classes."""
        return ClassGrowth(self)

    def changed_config(self, change: ClassUpdate) -> Config:
        """The configuration of this head after `change`.

        A subclass adds the values that its configuration has for each class.
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
        """Logits of all classes, float32 `[..., num_classes]`."""
        features = self.as_features(features)
        return unflatten(self.all_logits(flatten(features)), features)

    def activate(self, logits: tf.Tensor) -> tf.Tensor:
        """Turns logits `[..., num_classes]` into probabilities."""
        return self.objective.activate(logits)

    @do_not_convert
    def top_k(self, features: Array, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """The exact best classes of each example, computed in blocks.

        Args:
            features: float `[..., dim]`, the input of the head. For the inputs
                of a model, use `tfxclass.top_k`.
            k: int, at most `num_answers`, the classes that were not removed.

        Returns:
            `(ids, scores)`, int64 and float32 `[..., k]`, best first. Scores
            are probabilities, or logits with `activation=None`. Where a score
            is NaN, for example because features are NaN, the id is -1 and the
            score 0.
        """
        k = check_k(k, self.num_answers)
        features = self.as_features(features)
        found = search.answers(*self.best(flatten(features), k))
        return tuple(unflatten(x, features) for x in found)

    @do_not_convert
    def export_top_k(
        self, features: Array, k: int, weights: Any = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`top_k` with TensorFlow's own ops only, for an exported graph.

        Args:
            features: float `[..., dim]`.
            k: int, at most `num_answers`.
            weights: the result of `export_weights`. Defaults to calling it,
                which may create variables, so not in a `tf.function`.

        Returns:
            The same as `top_k`.
        """
        k = check_k(k, self.num_answers)
        weights = self.export_weights() if weights is None else weights
        features = self.as_features(features)
        found = self.servable_best(flatten(features), k, weights)
        found = search.answers(*found)
        return tuple(unflatten(x, features) for x in found)

    @do_not_convert
    def export_scores(self, features: Array, weights: Any = None) -> tf.Tensor:
        """Scores of all classes with TensorFlow's own ops only."""
        weights = self.export_weights() if weights is None else weights
        features = self.as_features(features)
        scores = self.servable_scores(flatten(features), weights)
        return unflatten(scores, features)

    # What a head is made of. Features here are float32 `[rows, dim]`.

    def queries(self, features: tf.Tensor) -> tf.Tensor:
        """float32 `[rows, dim]`: logits are `queries . class vectors`."""
        return flatten(features)

    def query_weights(self) -> list[tf.Variable]:
        """The variables that `part_queries` reads, which an export saves."""
        return []

    def training_step(
        self, features: tf.Tensor, targets: targets_lib.Targets
    ) -> Step:
        """Returns the `Step` of a training step. Heads differ here alone.

        By default it computes the exact loss, with the loss options.
        """
        targets, finish = self.apply_class_weights(targets)
        return Step(finish(self.exact_loss(features, targets)))

    def apply_class_weights(
        self, targets: targets_lib.Targets
    ) -> tuple[targets_lib.Targets, Callable[[tf.Tensor], tf.Tensor]]:
        """Applies `loss_options` to labels and to their losses.

        Args:
            targets: `Targets` whose ids are classes.

        Returns:
            `(targets, finish)`: `Targets` with their weights, and a function
            that is applied to the losses `[rows]`, without penalties.
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
        """Loss over all classes, float32 `[rows]`."""
        raise NotImplementedError

    def all_logits(self, features: tf.Tensor) -> tf.Tensor:
        """Logits of all classes, float32 `[rows, num_classes]`."""
        raise NotImplementedError

    def best(self, features: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """The best classes, `(ids, scores)`, `[rows, k]` (see `top_k`)."""
        raise NotImplementedError

    def logits_of(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Logits of some classes, int64 `[rows, q]`, of each example.

        The result is float32 `[rows, q]`. Where an id is -1, it is any number.
        By default the logits of all classes are computed first.
        """
        logits = self.all_logits(features)
        return tf.gather(logits, tf.maximum(ids, 0), axis=1, batch_dims=1)

    def export_weights(self) -> Any:
        """The weights that `export_top_k` reads and an export saves."""
        raise NotImplementedError

    def servable_best(
        self, features: tf.Tensor, k: int, weights: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`best` with TensorFlow's own ops only."""
        raise NotImplementedError

    def servable_scores(self, features: tf.Tensor, weights: Any) -> tf.Tensor:
        """Scores of all classes, `[rows, num_classes]`, with stock ops only."""
        raise NotImplementedError

    def sorted_scores(self, features: tf.Tensor, weights: Any) -> tf.Tensor:
        """`servable_scores` for heads that can only search for the best."""
        ids, scores = self.servable_best(features, self.num_classes, weights)
        places = tf.argsort(ids, axis=1)
        return tf.gather(scores, places, axis=1, batch_dims=1)

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

    def activation_bytes(self, batch: int, dim: int) -> int:
        """Memory of the logits and other activations of a step, in bytes."""
        # A block of logits and its gradient.
        on_gpu = placement.on_gpu(self.rows_device)
        classes = blocks.classes_of(batch, on_gpu)
        return 8 * batch * min(classes, self.num_classes)

    def index_bytes(self, dim: int) -> int:
        """Memory of a sampler's index and of its refresh, in bytes."""
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
