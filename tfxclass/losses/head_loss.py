"""The Keras loss through which a head computes its own training loss."""

import warnings

import keras
import tensorflow as tf

from tfxclass.core import flat_features
from tfxclass.core import forward as forward_lib
from tfxclass.keras_internals import is_keras_building
from tfxclass.keras_internals import set_mask
from tfxclass.types import Array
from tfxclass.types import Config
from tfxclass.types import Labels


@keras.saving.register_keras_serializable("tfxclass")
class HeadLoss(keras.losses.Loss):
    """The training loss of a head, for `compile`.

    Get it as `head.loss`. The values of `y_pred` are not read. The loss uses
    the forward pass that comes with `y_pred`, so a `tf.function` never computes
    the [batch, num_classes] output. Labels keep their integer dtype (Keras' own
    losses cast them to float32, where id 16,777,217 becomes 16,777,216).
    Positions that a Keras mask leaves out have loss 0 and do not count in the
    mean.

    Args:
        head_name: str, name of the head.
        reduction: as in `keras.losses.Loss`.
        name: str, name of the loss.
        dtype: as in `keras.losses.Loss`.

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

        Args:
            y_true: integers `[batch, ...]` like the features without their
                last dimension, or one dimension more, padded with -1.
            y_pred: float32 `[batch, ..., num_classes]`, of the head.
            sample_weight: float, `[batch, ...]`, or None.
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
        if sample_weight is not None:
            flat_features.check_weight_shape(sample_weight, y_pred.shape[:-1])
            if forward.training:
                _warn_of_class_weight(forward.head, y_true)
        # By its name TensorBoard draws all of the head's loss as one box.
        with tf.name_scope(forward.head.name):
            losses, forward.ranking = forward.head.compute_step(
                forward.features, y_true, forward.training
            )
        forward.losses = losses
        set_mask(losses, forward_lib.mask_of(forward.features))
        return super().__call__(losses, losses, sample_weight)

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return y_pred

    def get_config(self) -> Config:
        return {**super().get_config(), "head_name": self.head_name}


def _warn_of_class_weight(head, labels):
    """Warns once of weights that Keras may have made of `class_weight`.

    Keras turns `class_weight` into sample weights before it calls a loss, and
    the loss sees these alone.
    """
    shape = tf.TensorShape(getattr(labels, "shape", None))
    has_several = shape.rank is not None and shape.rank > 1 and shape[-1] != 1
    if head.has_warned or not has_several:
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
