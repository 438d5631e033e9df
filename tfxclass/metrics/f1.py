"""F1 of the classes whose probability reaches a threshold."""

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.checks import check_positive_int
from tfxclass.core.forward import Forward
from tfxclass.core.targets import Targets
from tfxclass.inference.thresholds import check_threshold
from tfxclass.inference.thresholds import threshold_of
from tfxclass.layers.output_head import OutputHead
from tfxclass.metrics.head_metric import HeadMetric
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class F1Score(HeadMetric):
    """F1 of the classes whose probability reaches a threshold.

    Use it for independent labels. `average="micro"` counts all pairs of example
    and class together. `"macro"` is the mean of 2 tp / (2 tp + fp + fn) over
    the classes that were a label or an answer. The answers are among the `k`
    best classes, so no [batch, num_classes] matrix is needed. All classes are
    searched in training, too.

    Args:
        head: the head, or its name.
        threshold: float in [0, 1], or `"calibrated"` for the thresholds that
            `tfxclass.calibrate` found. Defaults to 0.5.
        average: `"micro"` or `"macro"`. Defaults to `"micro"`.
        k: int, largest number of answers for an example.
        num_classes: int. Not needed if `head` is a head.
        name: str, name of the metric. Defaults to `<average>_f1`.
        dtype: as in `keras.metrics.Metric`.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(100, loss="sigmoid")
    model = keras.Sequential([keras.layers.Dense(64), head])
    f1 = tfxclass.metrics.F1Score(head, threshold=0.5, average="micro")
    model.compile("adam", loss=head.loss, metrics=[f1])
    ```
    """

    reads_y_pred = True

    def __init__(
        self,
        head: OutputHead | str,
        threshold: float | str = 0.5,
        average: str = "micro",
        k: int = 100,
        num_classes: int | None = None,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        check_choice("average", average, ("micro", "macro"))
        super().__init__(head, name or f"{average}_f1", dtype)
        self.k = check_positive_int("k", k)
        if num_classes is None and isinstance(head, OutputHead):
            num_classes = head.num_classes
        self.num_classes = check_positive_int("num_classes", num_classes)
        self.threshold, self.average = threshold, average
        self.labels, self.answers, self.hits = (
            # float32 counts to 2^24.
            self.add_variable(
                (self.num_classes,), initializer="zeros", name=name
            )
            for name in ("labels", "answers", "hits")
        )

    def values_of(
        self, forward: Forward, targets: Targets
    ) -> tuple[tf.Tensor, ...]:
        """Labels `[rows, p]`, and classes, answers and hits `[rows, k]`."""
        head, k = forward.head, min(self.k, forward.head.num_answers)
        check_threshold(self.threshold, head)
        ids, scores = self.best(forward, k)
        least = threshold_of(self.threshold, head)
        if isinstance(least, np.ndarray):
            least = tf.gather(least, tf.maximum(ids, 0))
        is_answer = (ids >= 0) & (scores >= least)
        same = ids[:, :, tf.newaxis] == targets.ids[:, tf.newaxis, :]
        is_hit = is_answer & tf.reduce_any(same, axis=2)
        return targets.ids, ids, is_answer, is_hit

    def add_values(
        self, values: tuple[tf.Tensor, ...], weight: tf.Tensor
    ) -> None:
        labels, ids, is_answer, is_hit = values
        self._add(self.labels, labels, labels >= 0, weight)
        self._add(self.answers, ids, is_answer, weight)
        self._add(self.hits, ids, is_hit, weight)

    def _add(self, variable, ids, counted, weight):
        """Adds the weights of the rows to the classes that are counted."""
        weight = tf.cast(counted, tf.float32) * weight[:, tf.newaxis]
        ids = tf.reshape(tf.maximum(ids, 0), [-1])
        added = tf.math.unsorted_segment_sum(
            tf.reshape(weight, [-1]), ids, self.num_classes
        )
        variable.assign_add(tf.cast(added, variable.dtype))

    def result(self) -> tf.Tensor:
        total = self.labels.value + self.answers.value
        hits = self.hits.value
        if self.average == "micro":
            hits, total = tf.reduce_sum(hits), tf.reduce_sum(total)
            return tf.math.divide_no_nan(2 * hits, total)
        f1 = tf.math.divide_no_nan(2 * hits, total)
        counted = tf.math.count_nonzero(total, dtype=tf.float32)
        return tf.math.divide_no_nan(tf.reduce_sum(f1), counted)

    def get_config(self) -> Config:
        names = ("threshold", "average", "k", "num_classes")
        own = {name: getattr(self, name) for name in names}
        return {**super().get_config(), **own}
