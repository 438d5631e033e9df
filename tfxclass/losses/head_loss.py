"""The Keras loss through which a head computes its own training loss."""

import keras
import tensorflow as tf

from tfxclass.losses import records


@keras.saving.register_keras_serializable("tfxclass")
class HeadLoss(keras.losses.Loss):
    """Calls `compute_loss` of the head that made `y_pred`.

    `y_pred` itself is not read, so in a `tf.function` the
    [batch, num_classes] product that would make it is pruned. Labels keep
    their integer dtype (Keras' own losses cast them to float32, where id
    16,777,217 becomes 16,777,216).

    Args:
        head_name: name of the head. Use `head.loss`.
        reduction: as in `keras.losses.Loss`.
        name: name of the loss.
        dtype: as in `keras.losses.Loss`.
    """

    def __init__(
        self,
        head_name,
        reduction="sum_over_batch_size",
        name="head_loss",
        dtype=None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.head_name = head_name

    def __call__(self, y_true, y_pred, sample_weight=None):
        """Reduced loss of integer `y_true`, `[batch]` or `[batch, p]`."""
        if records.is_keras_building():
            return tf.zeros([])
        forward = records.take(self.head_name, records.Forward)
        if forward is None:
            raise ValueError(
                f"`{type(self).__name__}` found no forward pass of a head "
                f"named {self.head_name!r} before it. It works with the "
                "output of that head alone, called in the same step. "
                f"Received: y_pred={y_pred!r}"
            )
        records.take(self.head_name, records.Ranking)
        records.leave(self.head_name, records.Scored(*forward))
        losses = forward.head.compute_loss(
            forward.features, y_true, training=forward.training
        )
        return super().__call__(losses, losses, sample_weight)

    def call(self, y_true, y_pred):
        return y_pred

    def get_config(self):
        return {**super().get_config(), "head_name": self.head_name}
