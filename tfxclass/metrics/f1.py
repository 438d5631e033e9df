"""The metric `F1Score`."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.checks import check_positive_int
from tfxclass.core.forward import Forward
from tfxclass.core.targets import Targets
from tfxclass.inference.thresholds import above
from tfxclass.inference.thresholds import checked_threshold
from tfxclass.layers.output_head import OutputHead
from tfxclass.metrics.head_metric import HeadMetric
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class F1Score(HeadMetric):
    """F1 of the classes whose probability reaches a threshold.

    Use it for independent labels. `average="micro"` counts all pairs of example
    and class together. `"macro"` is the mean of 2 tp / (2 tp + fp + fn) over
    the classes that were a label or an answer. Answers are among the `k` best
    of all classes, which are searched in training, too.

    Args:
        head: the head, or its name.
        threshold: float in [0, 1], or `"calibrated"` for the thresholds that
            `tfxclass.calibrate` found.
        average: `"micro"` or `"macro"`.
        k: int, largest number of answers for an example.
        num_classes: int. Not needed if `head` is a head.
        name, dtype: as in `keras.metrics.Metric`. The name is `<average>_f1`.

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
        **kwargs: Any,
    ) -> None:
        check_choice("average", average, ("micro", "macro"))
        super().__init__(head, name or f"{average}_f1", **kwargs)
        self.k = check_positive_int("k", k)
        if num_classes is None and isinstance(head, OutputHead):
            num_classes = head.num_classes
        self.num_classes = check_positive_int("num_classes", num_classes)
        self.threshold, self.average = threshold, average
        self.labels, self.answers, self.hits = (
            # float32 counts to 2^24.
            self.add_variable((self.num_classes,), "zeros", name=name)
            for name in ("labels", "answers", "hits")
        )

    def values_of(self, forward: Forward, targets: Targets) -> Any:
        """Ids of labels `[rows, p]`, answers and hits `[rows, k]`, or -1."""
        head = forward.head
        least = checked_threshold(self.threshold, head)
        found = self.best(forward, min(self.k, head.num_answers))
        ids, _ = above(least, *found)
        same = ids[:, :, tf.newaxis] == targets.ids[:, tf.newaxis, :]
        is_hit = (ids >= 0) & tf.reduce_any(same, axis=2)
        return targets.ids, ids, tf.where(is_hit, ids, -1)

    def add_values(self, values: Any, weight: tf.Tensor) -> None:
        counts = (self.labels, self.answers, self.hits)
        for variable, ids in zip(counts, values):
            of_ids = tf.cast(ids >= 0, tf.float32) * weight[:, tf.newaxis]
            added = tf.math.unsorted_segment_sum(
                of_ids, tf.maximum(ids, 0), self.num_classes
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
