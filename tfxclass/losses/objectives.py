"""What a head's `loss` is: one softmax over the classes, or one vs. rest.

Keras calls `HeadLoss`.
"""

import functools
import warnings
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.core import forward as forward_lib
from tfxclass.core import one_vs_rest
from tfxclass.core.one_vs_rest import one_vs_rest_loss
from tfxclass.core.softmax import probabilities
from tfxclass.core.softmax import softmax_cross_entropy
from tfxclass.core.targets import Targets
from tfxclass.keras_internals import get_mask
from tfxclass.keras_internals import is_keras_building
from tfxclass.keras_internals import set_mask
from tfxclass.losses.options import ALL_OPTIONS
from tfxclass.losses.options import LABEL_OPTIONS
from tfxclass.losses.options import LOSS_OPTIONS
from tfxclass.losses.options import LossOptions
from tfxclass.losses.options import finished
from tfxclass.rows import loss
from tfxclass.rows.loss_parts import OneVsRestPart
from tfxclass.types import Array
from tfxclass.types import Config
from tfxclass.types import Labels
from tfxclass.types import Margin

Finish = Callable[[tf.Tensor], tf.Tensor]
NO_OPTIONS = LossOptions()


class Softmax:
    """Cross-entropy against the mean of a row's labels."""

    name = "softmax"
    #: What makes probabilities of logits.
    activation = "softmax"
    #: Names of the `LossOptions` that it may have.
    options = ALL_OPTIONS
    #: Whether a probability depends on the logits of all classes.
    needs_logsumexp = True
    #: Whether it is a sum over all classes, as a sample has to estimate.
    is_sum = False
    #: Function that makes probabilities of logits `[..., num_classes]`.
    activate = staticmethod(tf.nn.softmax)
    #: Function of logits `[rows, k]` and their logsumexp `[rows, 1]`.
    probabilities = staticmethod(probabilities)

    def is_plain(self, options: LossOptions) -> bool:
        """Whether all of `options` is in what `weighted_targets` makes."""
        return set(options.used) <= set(LOSS_OPTIONS)

    def targets(self, targets: Targets) -> Targets:
        """`Targets` with the weights of this loss, from ones that sum to 1."""
        return targets

    def weighted_targets(
        self, head: Any, targets: Targets
    ) -> tuple[Targets, Finish]:
        """Applies the loss options of a head to labels and to their losses.

        Returns `(targets, finish)`: `Targets` with their weights, and a
        function of the rows' losses `[rows]`, without penalties.
        """
        options = head.options
        if not options.used:
            return targets, lambda losses: losses
        targets, row_weights = options.normalized_targets(
            targets, head.num_classes
        )
        return targets, lambda losses: finished(
            losses, row_weights, options.focal_gamma
        )

    def streamed(
        self, options: LossOptions = NO_OPTIONS, num_classes: int = 1
    ) -> Callable[..., tf.Tensor]:
        """The `rows.loss.streamed_loss` over parts, from `shape_parts`."""
        share = options.label_smoothing / num_classes
        return functools.partial(loss.cross_entropy, uniform=share)

    def sampled(
        self,
        head: Any,
        logits: tf.Tensor,
        sample: Any,
        targets: Targets,
        margin: Margin | None,
    ) -> tf.Tensor:
        """The loss on the classes of a step, float32 `[rows]`, unfinished.

        `logits` are float32 `[rows, n]`, -inf where the mask leaves one out.
        `targets` are what `weighted_targets` returned.
        """
        options, num_classes = head.options, head.num_classes
        columns = Targets(sample.positions, targets.weights)
        logits = options.adjust_logits(logits, sample.ids, num_classes)
        losses = softmax_cross_entropy(
            _minus(logits, sample.log_expected_count), columns, margin
        )
        if options.label_smoothing:
            # The logits of a sample stand for the logits of all classes.
            share = columns.is_labelled * options.label_smoothing / num_classes
            weighted = tf.math.multiply_no_nan(logits, sample.inverse_counts)
            losses -= share * tf.reduce_sum(weighted, axis=1)
        return losses


def _minus(logits, log_counts):
    """Logits less `log_counts`, one number for a class or for each logit."""
    log_counts = tf.convert_to_tensor(log_counts)
    if log_counts.shape.rank == 1:
        # It becomes a part of the product, and costs no pass over the logits.
        return tf.nn.bias_add(logits, -log_counts)
    return logits - log_counts


class OneVsRest:
    """The sum over classes of a binary loss, with the methods of `Softmax`.

    Labels are independent: each of a row weighs 1. On a sample, losses of
    classes that are no labels are divided by their expected counts.
    """

    activation = "sigmoid"
    needs_logsumexp = False
    is_sum = True
    activate = staticmethod(tf.sigmoid)

    def __init__(self, name: str, options: Sequence[str]) -> None:
        self.name, self.options = name, options

    def is_plain(self, options: LossOptions) -> bool:
        return set(options.used) <= set(LABEL_OPTIONS)

    def targets(self, targets: Targets) -> Targets:
        """`Targets` whose labels weigh 1 each."""
        ids = targets.ids
        return Targets(ids, tf.cast(ids >= 0, tf.float32))

    def weighted_targets(
        self, head: Any, targets: Targets
    ) -> tuple[Targets, Finish]:
        """As in `Softmax`, but only the loss of a label is weighted."""
        masses = head.options.label_weights(targets, head.num_classes)
        return Targets(targets.ids, masses), lambda losses: losses

    def streamed(
        self, options: LossOptions = NO_OPTIONS, num_classes: int = 1
    ) -> Callable[..., tf.Tensor]:
        binary = self._binary(options)
        return functools.partial(
            loss.streamed_loss, OneVsRestPart, binary=binary
        )

    def _binary(self, options):
        found = one_vs_rest.BINARY[self.name]
        if options.focal_gamma:
            found = one_vs_rest.focal(found, options.focal_gamma)
        if options.label_smoothing:
            found = one_vs_rest.smoothed(found, options.label_smoothing)
        return found

    def sampled(
        self,
        head: Any,
        logits: tf.Tensor,
        sample: Any,
        targets: Targets,
        margin: Margin | None,
    ) -> tf.Tensor:
        return one_vs_rest_loss(
            logits,
            Targets(sample.positions, targets.weights),
            self._binary(head.options),
            sample.inverse_counts,
            margin,
        )

    def probabilities(
        self, logits: tf.Tensor, logsumexp: tf.Tensor
    ) -> tf.Tensor:
        return tf.sigmoid(tf.cast(logits, tf.float32))


#: What `loss` of a head may be.
OBJECTIVES: dict[str, Softmax | OneVsRest] = {
    "softmax": Softmax(),
    "sigmoid": OneVsRest("sigmoid", (*LOSS_OPTIONS, "label_smoothing")),
    "squared_hinge": OneVsRest("squared_hinge", LABEL_OPTIONS),
}
SOFTMAX_ALONE = ("softmax",)
ALL_OBJECTIVES = tuple(OBJECTIVES)


@keras.saving.register_keras_serializable("tfxclass")
class HeadLoss(keras.losses.Loss):
    """The training loss of a head, for `compile`.

    Get it as `head.loss`. It reads the forward pass that comes with `y_pred`,
    and no values: a `tf.function` never computes the [batch, num_classes]
    output. Labels keep their integer dtype (Keras' own losses cast them to
    float32). Positions that a Keras mask leaves out do not count in the mean.

    Args:
        head_name: str, name of the head.
        reduction, name, dtype: as in `keras.losses.Loss`.

    Raises:
        ValueError: if it is called without a `y_pred`, or with one that is not
            the output of the head, or with a `sample_weight` of another shape.
    """

    def __init__(
        self,
        head_name: str,
        reduction: str | None = "sum_over_batch_size",
        name: str = "head_loss",
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.head_name = head_name

    @tf.autograph.experimental.do_not_convert
    def __call__(
        self,
        y_true: Labels = None,
        y_pred: tf.Tensor = None,
        sample_weight: Array | None = None,
    ) -> tf.Tensor:
        """Reduced loss. Keras calls it with labels and outputs.

        `y_true` are labels as in a call of the head, `y_pred` its output, and
        `sample_weight` floats `[batch, ...]` or None.
        """
        if y_true is None and y_pred is None:
            raise ValueError(
                f"The loss of {self.head_name!r} was called without labels and "
                "outputs. Fix: pass it to compile as loss=head.loss, without "
                "parentheses"
            )
        if is_keras_building():
            return tf.zeros([])
        forward = forward_lib.forward_of(y_pred, self.head_name, self.name)
        rank = len(y_pred.shape) - 1
        if sample_weight is not None:
            forward_lib.check_weight_shape(sample_weight, y_pred.shape[:-1])
            if forward.training:
                _warn_of_class_weight(forward.head, y_true, sample_weight, rank)
        # By its name TensorBoard draws all of the head's loss as one box.
        with tf.name_scope(forward.head.name):
            losses, forward.ranking = forward.head.compute_step(
                forward.features, y_true, forward.training
            )
        forward.losses = losses
        set_mask(losses, get_mask(forward.features))
        if sample_weight is not None:
            # Keras would multiply by the weights from the last axis on.
            sample_weight = forward_lib.with_rank(sample_weight, rank)
        # Keras weighs and averages what `call` returns.
        return super().__call__(losses, losses, sample_weight)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return y_pred

    def get_config(self) -> Config:
        return {**super().get_config(), "head_name": self.head_name}


def _warn_of_class_weight(head, labels, weights, rank):
    """Warns once of row weights that Keras may have made of `class_weight`."""
    shape = tf.TensorShape(getattr(labels, "shape", None))
    has_several = (shape.rank or 0) > rank and shape[-1] != 1
    is_of_rows = tf.TensorShape(weights.shape).rank in (None, 1)
    if head.has_warned or not has_several or not is_of_rows:
        return
    head.has_warned = True
    warnings.warn(
        f"{head.name!r} trains with sample weights on labels of shape {shape}. "
        "If they come from `class_weight` of `fit`, they are wrong: of several "
        "labels Keras takes the place of the greatest id as the class. Fix: "
        "loss_options=tfxclass.losses.LossOptions(class_weight=...). Weights "
        "from `sample_weight` are right.",
        stacklevel=2,
    )
