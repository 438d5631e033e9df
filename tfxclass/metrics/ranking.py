"""Metrics of where the labels are among the best classes."""

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_k
from tfxclass.checks import check_positive_int
from tfxclass.core.forward import Forward
from tfxclass.core.targets import Targets
from tfxclass.layers.output_head import OutputHead
from tfxclass.metrics.head_metric import HeadMetric
from tfxclass.types import Config


class RankingMetric(HeadMetric):
    """Base class of what goes by the ranks of the labels.

    A head that computes a sample of the classes in training ranks the labels
    among the sample there. Such training values are higher than validation
    values, which rank among all classes. In training, ranks are by the class
    vectors of before the update. A row with a NaN logit, or whose loss is not
    finite, finds none of its labels.

    Args:
        head: the head, or its name.
        k: int.
        name: name of the metric; `<prefix>_<k>` by default.
        dtype: as in `keras.metrics.Metric`.
    """

    def __init__(
        self,
        # Without the default, Python's error would name this class.
        head: OutputHead | str | None = None,
        k: int = 1,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        self.k = check_positive_int("k", k)
        super().__init__(head, name or f"{self._prefix}_{self.k}", dtype)

    def ranks(self, forward: Forward, targets: Targets) -> tf.Tensor:
        """int32 `[rows, p]`: ranks of the labels from 0; k past the k best
        and for padding."""
        if forward.training and forward.ranking is not None:
            ranks = tf.minimum(_ranks_in(forward.ranking), self.k)
            rows = forward.ranking.rows
            if rows is not None:
                none = tf.fill(tf.shape(targets.ids), self.k)
                ranks = tf.tensor_scatter_nd_update(
                    none, rows[:, tf.newaxis], ranks
                )
            is_wrong = forward.has_diverged(tf.shape(ranks)[0])
            return tf.where(is_wrong[:, tf.newaxis], self.k, ranks)
        k = min(self.k, forward.head.num_answers)
        ids = self.best(forward, k)[0][:, tf.newaxis]
        # Ids are -1, as padding is, where a logit is NaN.
        same = (targets.ids[:, :, tf.newaxis] == ids) & (ids >= 0)
        return tf.reduce_min(tf.where(same, tf.range(k), self.k), axis=2)

    def hits(self, forward: Forward, targets: Targets) -> tf.Tensor:
        """float32 `[rows, p]`: 1 for labels among the k best, else 0."""
        return tf.cast(self.ranks(forward, targets) < self.k, tf.float32)

    def get_config(self) -> Config:
        return {**super().get_config(), "k": self.k}


def _ranks_in(ranking):
    """Ranks of the labels, equal logits in the order of the columns.

    No label of a row with a NaN logit has a rank.
    """
    logits = ranking.logits
    columns = tf.maximum(ranking.positions, 0)
    own = tf.gather(logits, columns, axis=1, batch_dims=1)
    order = tf.range(tf.shape(logits, tf.int64)[1])

    def better(label):
        own, column = (x[:, tf.newaxis] for x in label)
        ahead = (logits > own) | ((logits == own) & (order < column))
        return tf.reduce_sum(tf.cast(ahead, tf.int32), axis=1)

    # One label at a time: [batch, n] compared with [batch, 1].
    ranks = tf.map_fn(
        better,
        (tf.transpose(own), tf.transpose(columns)),
        fn_output_signature=tf.int32,
    )
    # NaN is neither greater nor less: without this, it would rank first.
    is_number = ~tf.reduce_any(tf.math.is_nan(logits), axis=1, keepdims=True)
    is_ranked = (ranking.positions >= 0) & is_number
    return tf.where(is_ranked, tf.transpose(ranks), tf.int32.max)


@keras.saving.register_keras_serializable("tfxclass")
class TopKAccuracy(RankingMetric):
    """Fraction of examples with a label among the k best classes.

    In training, a head that samples classes ranks the labels among the sample.
    Training values are then higher than validation values, which rank among all
    classes.

    Args:
        head: the head, or its name.
        k: int, number of answers, at most the number of classes. Defaults to
            1.
        name: str, name of the metric. Defaults to `accuracy_at_<k>`.
        dtype: as in `keras.metrics.Metric`.

    Raises:
        ValueError: if `head` is missing, or `k` is larger than the number of
            classes, where the accuracy would always be 1.

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(10_000)
    model = keras.Sequential([keras.layers.Dense(64), head])
    accuracy = tfxclass.metrics.TopKAccuracy(head, k=10)
    optimizer = tfxclass.optimizers.HeadAdam()
    model.compile(optimizer, loss=head.loss, metrics=[accuracy])
    ```
    """

    _prefix = "accuracy_at"

    def check_head(self, head: OutputHead) -> None:
        check_k(self.k, head.num_classes)

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        return tf.reduce_max(self.hits(forward, targets), axis=1)


@keras.saving.register_keras_serializable("tfxclass")
class PrecisionAtK(RankingMetric):
    """P@k: fraction of the k best classes that are labels.

    In training, a head that samples classes ranks the labels among the sample.
    Training values are then higher than validation values, which rank among all
    classes.

    Args:
        head: the head, or its name.
        k: int, number of answers.
        name: str, name of the metric. Defaults to `precision_at_<k>`.
        dtype: as in `keras.metrics.Metric`.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(1_000, loss="sigmoid")
    metric = tfxclass.metrics.PrecisionAtK(head, k=5)
    ```
    """

    _prefix = "precision_at"

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        return tf.reduce_sum(self.hits(forward, targets), axis=1) / self.k


@keras.saving.register_keras_serializable("tfxclass")
class NDCGAtK(RankingMetric):
    """nDCG@k: normalized discounted cumulative gain of the k best classes.

    A label at rank r = 1, 2, ... gains 1 / log2(r + 1). The sum is divided by
    the sum of a ranking with all labels first.

    In training, a head that samples classes ranks the labels among the sample.
    Training values are then higher than validation values, which rank among all
    classes.

    Args:
        head: the head, or its name.
        k: int, number of answers.
        name: str, name of the metric. Defaults to `ndcg_at_<k>`.
        dtype: as in `keras.metrics.Metric`.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(1_000, loss="sigmoid")
    metric = tfxclass.metrics.NDCGAtK(head, k=5)
    ```

    References:
        Jarvelin and Kekalainen, ACM TOIS 2002, with binary gains as in the
        Extreme Classification Repository.
    """

    _prefix = "ndcg_at"

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        gains = 1 / np.log2(np.arange(2, self.k + 2))
        gain_at = tf.constant([*gains, 0.0], tf.float32)
        best = tf.constant([0.0, *np.cumsum(gains)], tf.float32)
        gained = tf.gather(gain_at, self.ranks(forward, targets))
        num_labels = tf.math.count_nonzero(targets.ids >= 0, axis=1)
        return tf.math.divide_no_nan(
            tf.reduce_sum(gained, axis=1),
            tf.gather(best, tf.minimum(num_labels, self.k)),
        )
