"""Whether a model is right as often as it says."""

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.core.forward import Forward
from tfxclass.core.targets import Targets
from tfxclass.layers.output_head import OutputHead
from tfxclass.metrics.head_metric import HeadMetric
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class ExpectedCalibrationError(HeadMetric):
    """ECE: the mean gap between confidence and accuracy, over bins.

    Examples are put into `num_bins` bins of equal width by the probability of
    their best class. The gap of a bin is the difference between its mean
    probability and the fraction of examples whose best class is a label. Gaps
    are weighted by the number of examples. All classes are searched, in
    training, too. The result is NaN if an example has a NaN logit.

    Args:
        head: the head, or its name. Its activation must give probabilities.
        num_bins: int, number of bins. Defaults to 15.
        name: str, name of the metric. Defaults to `expected_calibration_error`.
        dtype: as in `keras.metrics.Metric`.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(1_000)
    metric = tfxclass.metrics.ExpectedCalibrationError(head)
    ```

    References:
        Guo et al., On Calibration of Modern Neural Networks, ICML 2017.
    """

    reads_y_pred = True

    def __init__(
        self,
        head: OutputHead | str,
        num_bins: int = 15,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        num_bins = check_positive_int("num_bins", num_bins)
        super().__init__(head, name or "expected_calibration_error", dtype)
        self.num_bins = int(num_bins)
        self.sums = self.add_variable(
            (self.num_bins, 3), initializer="zeros", name="sums"
        )

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        """Confidence, and 1 where the best class is a label; `[rows, 2]`."""
        head = forward.head
        if head.activation is None:
            raise ValueError(
                "ExpectedCalibrationError needs probabilities. Received: the "
                f"head {head.name!r} with activation=None."
            )
        ids, scores = self.best(forward, 1)
        hits = tf.reduce_any((targets.ids == ids) & (ids >= 0), axis=1)
        return tf.stack([scores[:, 0], tf.cast(hits, tf.float32)], axis=1)

    def add_values(self, values: tf.Tensor, weight: tf.Tensor) -> None:
        # A row that does not count may be NaN.
        values = tf.where(weight[:, tf.newaxis] > 0, values, 0.0)
        bins = tf.cast(values[:, 0] * self.num_bins, tf.int32)
        bins = tf.clip_by_value(bins, 0, self.num_bins - 1)
        ones = tf.ones_like(values[:, :1])
        parts = tf.concat([ones, values], axis=1) * weight[:, tf.newaxis]
        added = tf.math.unsorted_segment_sum(parts, bins, self.num_bins)
        self.sums.assign_add(tf.cast(added, self.sums.dtype))

    def result(self) -> tf.Tensor:
        total, confidence, hits = tf.unstack(self.sums.value, axis=1)
        gap = tf.reduce_sum(tf.abs(confidence - hits))
        return tf.math.divide_no_nan(gap, tf.reduce_sum(total))

    def get_config(self) -> Config:
        return {**super().get_config(), "num_bins": self.num_bins}
