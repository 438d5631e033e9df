"""Metrics that count for each class: coverage and F1."""

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
from tfxclass.metrics.ranking import RankingMetric
from tfxclass.types import Config


class ClassCounts(RankingMetric):
    """Base class of metrics that count for each class.

    Args:
        head: the head, or its name.
        k: int.
        num_classes: int; taken from `head` where it is one.
        name: name of the metric; `<prefix>_<k>` by default.
        dtype: as in `keras.metrics.Metric`.
    """

    #: Names of the counters.
    counters: tuple[str, ...] = ()

    def __init__(
        self,
        head: OutputHead | str,
        k: int = 1,
        num_classes: int | None = None,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        super().__init__(head, k, name, dtype)
        if num_classes is None and isinstance(head, OutputHead):
            num_classes = head.num_classes
        self.num_classes = check_positive_int("num_classes", num_classes)
        self.counts = {
            # float32 counts to 2^24.
            counter: self.add_variable(
                (self.num_classes,), initializer="zeros", name=counter
            )
            for counter in self.counters
        }

    def add(self, counter: str, ids: tf.Tensor, weight: tf.Tensor) -> None:
        """Adds weights `[n]` to the counts of the classes `[n]`; -1 is none."""
        weight = tf.where(ids >= 0, weight, 0.0)
        added = tf.math.unsorted_segment_sum(
            weight, tf.maximum(ids, 0), self.num_classes
        )
        variable = self.counts[counter]
        variable.assign_add(tf.cast(added, variable.dtype))

    def reset_state(self) -> None:
        super().reset_state()
        for variable in self.counts.values():
            variable.assign(tf.zeros_like(variable.value))

    def get_config(self) -> Config:
        return {**super().get_config(), "num_classes": self.num_classes}


@keras.saving.register_keras_serializable("tfxclass")
class CoverageAtK(ClassCounts):
    """Fraction of the classes in the data that were found at least once.

    A class is found if it is a label and among the k best classes of the same
    example. A model that answers only frequent classes has a high P@k and a low
    coverage. It takes the arguments of `TopKAccuracy`, and `num_classes`, which
    a head by name needs. It is called `coverage_at_<k>`.
    """

    _prefix = "coverage_at"
    counters = ("labels", "found")

    def values_of(
        self, forward: Forward, targets: Targets
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The labels, and 1 for each one that is found; `[rows, p]`."""
        found = self.ranks(forward, targets) < self.k
        return targets.ids, tf.cast(found, tf.float32)

    def add_values(
        self, values: tuple[tf.Tensor, tf.Tensor], weight: tf.Tensor
    ) -> None:
        ids, hits = values
        of_rows = tf.broadcast_to(weight[:, tf.newaxis], tf.shape(hits))
        ids, flat = tf.reshape(ids, [-1]), tf.reshape(of_rows, [-1])
        self.add("labels", ids, flat)
        self.add("found", ids, flat * tf.reshape(hits, [-1]))

    def result(self) -> tf.Tensor:
        labels, found = (
            tf.math.count_nonzero(self.counts[x].value, dtype=tf.float32)
            for x in self.counters
        )
        return tf.math.divide_no_nan(found, labels)


@keras.saving.register_keras_serializable("tfxclass")
class F1Score(ClassCounts):
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

    _prefix = "f1"
    counters = ("labels", "answers", "hits")

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
        name = name or f"{average}_f1"
        super().__init__(head, k, num_classes, name, dtype)
        self.threshold, self.average = threshold, average

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
        self._add_rows("labels", labels, tf.ones_like(labels), weight)
        self._add_rows("answers", ids, is_answer, weight)
        self._add_rows("hits", ids, is_hit, weight)

    def _add_rows(self, counter, ids, counted, weight):
        weight = tf.cast(counted, tf.float32) * weight[:, tf.newaxis]
        self.add(counter, tf.reshape(ids, [-1]), tf.reshape(weight, [-1]))

    def result(self) -> tf.Tensor:
        labels, answers, hits = (self.counts[x].value for x in self.counters)
        total = labels + answers
        if self.average == "micro":
            hits, total = tf.reduce_sum(hits), tf.reduce_sum(total)
            return tf.math.divide_no_nan(2 * hits, total)
        f1 = tf.math.divide_no_nan(2 * hits, total)
        counted = tf.math.count_nonzero(total, dtype=tf.float32)
        return tf.math.divide_no_nan(tf.reduce_sum(f1), counted)

    def get_config(self) -> Config:
        own = {"threshold": self.threshold, "average": self.average}
        return {**super().get_config(), **own}
