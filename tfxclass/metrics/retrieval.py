"""Metrics of which of a row's labels are found among the best classes."""

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.core.forward import Forward
from tfxclass.core.targets import Targets
from tfxclass.layers.output_head import OutputHead
from tfxclass.metrics.ranking import RankingMetric
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class RecallAtK(RankingMetric):
    """Fraction of the labels that are among the k best classes.

    In training, a head that samples classes ranks the labels among the sample.
    Training values are then higher than validation values, which rank among all
    classes.

    Args:
        head: the head, or its name.
        k: int, number of answers.
        name: str, name of the metric. Defaults to `recall_at_<k>`.
        dtype: as in `keras.metrics.Metric`.

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(10_000)
    metric = tfxclass.metrics.RecallAtK(head, k=20)
    ```
    """

    _prefix = "recall_at"

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        found = tf.reduce_sum(self.hits(forward, targets), axis=1)
        return tf.math.divide_no_nan(found, _num_labels(targets))


@keras.saving.register_keras_serializable("tfxclass")
class RPrecisionAtK(RankingMetric):
    """Labels among the k best classes, divided by min(k, number of labels).

    It is recall for examples with few labels, and precision for examples with
    many.

    In training, a head that samples classes ranks the labels among the sample.
    Training values are then higher than validation values, which rank among all
    classes.

    Args:
        head: the head, or its name.
        k: int, number of answers.
        name: str, name of the metric. Defaults to `r_precision_at_<k>`.
        dtype: as in `keras.metrics.Metric`.

    References:
        Chalkidis et al., Large-Scale Multi-Label Text Classification on EU
        Legislation, ACL 2019, section 5.
    """

    _prefix = "r_precision_at"

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        found = tf.reduce_sum(self.hits(forward, targets), axis=1)
        most = tf.minimum(_num_labels(targets), float(self.k))
        return tf.math.divide_no_nan(found, most)


@keras.saving.register_keras_serializable("tfxclass")
class MeanReciprocalRank(RankingMetric):
    """Mean of 1 / rank of the best label, with 0 past rank k.

    In training, a head that samples classes ranks the labels among the sample.
    Training values are then higher than validation values, which rank among all
    classes.

    Args:
        head: the head, or its name.
        k: int, largest rank that counts.
        name: str, name of the metric. Defaults to `mean_reciprocal_rank_<k>`.
        dtype: as in `keras.metrics.Metric`.

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(10_000)
    metric = tfxclass.metrics.MeanReciprocalRank(head, k=100)
    ```
    """

    _prefix = "mean_reciprocal_rank"

    def __init__(
        self,
        head: OutputHead | str,
        k: int = 100,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        super().__init__(head, k, name, dtype)

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        ranks = tf.reduce_min(self.ranks(forward, targets), axis=1)
        inverse = 1 / tf.cast(ranks + 1, tf.float32)
        return tf.where(ranks < self.k, inverse, 0.0)


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
    counters = ()

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
    coverage. In training, a head that samples classes ranks the labels among
    the sample, so training values are higher than validation values.

    Args:
        head: the head, or its name.
        k: int, number of answers.
        num_classes: int. Not needed if `head` is a head.
        name: str, name of the metric. Defaults to `coverage_at_<k>`.
        dtype: as in `keras.metrics.Metric`.
    """

    _prefix = "coverage_at"
    counters = ("labels", "found")

    def values_of(
        self, forward: Forward, targets: Targets
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The labels, and 1 for each one that is found; `[rows, p]`."""
        return targets.ids, self.hits(forward, targets)

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


def _num_labels(targets):
    """float32 `[rows]`."""
    return tf.math.count_nonzero(targets.ids >= 0, axis=1, dtype=tf.float32)
