"""What the metrics share: they read what the head's loss left behind."""

import keras
import tensorflow as tf

from tfxclass.layers.output_head import OutputHead
from tfxclass.losses import records
from tfxclass.losses.targets import as_targets


class HeadMetric(keras.metrics.Mean):
    """Base class: the mean of `values_of`, each row weighed by `weights_of`.

    Args:
        head: the head, or its name. The model must be compiled with its loss.
        name: name of the metric.
        dtype: as in `keras.metrics.Metric`.
    """

    def __init__(self, head, name=None, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.head_name = head.name if isinstance(head, OutputHead) else head

    def update_state(self, y_true, y_pred, sample_weight=None):
        if records.is_keras_building():
            return
        scored = records.find(self.head_name, records.Scored)
        if scored is None:
            raise ValueError(
                f"{type(self).__name__} needs a model compiled with the loss "
                f"of the head {self.head_name!r}: loss=head.loss."
            )
        targets = as_targets(y_true, scored.head.num_classes)
        values = self.values_of(scored, targets)
        weight = self.weights_of(targets)
        if sample_weight is not None:
            weight *= tf.reshape(tf.cast(sample_weight, tf.float32), [-1])
        self.add_values(values, weight)

    def add_values(self, values, weight):
        """Takes in what `values_of` gave, and weights `[batch]`."""
        super().update_state(values, weight)

    def values_of(self, scored, targets):
        """float32 `[batch]`."""
        raise NotImplementedError

    def weights_of(self, targets):
        """float32 `[batch]`: rows without a label count for nothing."""
        return targets.is_labelled

    def get_config(self):
        config = super().get_config()
        return {
            "head": self.head_name,
            "name": config["name"],
            "dtype": config["dtype"],
        }
