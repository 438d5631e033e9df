"""Metrics of where the labels are among the best classes."""

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.core.forward import Forward
from tfxclass.core.targets import Targets
from tfxclass.layers.output_head import OutputHead
from tfxclass.metrics.head_metric import HeadMetric
from tfxclass.types import Config


class RankingMetric(HeadMetric):
    """Base class of what goes by the ranks of the labels.

    In training, heads that compute some of the classes rank among those. A row
    with a NaN logit, or whose loss is not finite, finds none of its labels.

    Args:
        head: the head, or its name.
        k: int.
        name: name of the metric; `<prefix>_<k>` by default.
        dtype: as in `keras.metrics.Metric`.
    """

    def __init__(
        self,
        head: OutputHead | str,
        k: int = 1,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        k = check_positive_int("k", k)
        super().__init__(head, name or f"{self._prefix}_{k}", dtype)
        self.k = k

    def ranks(self, forward: Forward, targets: Targets) -> tf.Tensor:
        """int32 `[rows, p]`: ranks of the labels from 0; k past the k best
        and for padding."""
        if forward.training and forward.ranking is not None:
            ranks = tf.minimum(_ranks_in(forward.ranking), self.k)
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
    """Rows with a label among the k best classes; accuracy with `k=1`.

    In training it is a sampled accuracy: among the classes of the step.

    Args:
        head: the head, or its name.
        k: int.
        name: name of the metric; `accuracy_at_<k>` by default.
        dtype: as in `keras.metrics.Metric`.
    """

    _prefix = "accuracy_at"

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        return tf.reduce_max(self.hits(forward, targets), axis=1)


@keras.saving.register_keras_serializable("tfxclass")
class PrecisionAtK(RankingMetric):
    """Share of the k best classes that are labels, P@k.

    In training it is a sampled precision: among the classes of the step.

    Args:
        head: the head, or its name.
        k: int.
        name: name of the metric; `precision_at_<k>` by default.
        dtype: as in `keras.metrics.Metric`.
    """

    _prefix = "precision_at"

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        return tf.reduce_sum(self.hits(forward, targets), axis=1) / self.k


@keras.saving.register_keras_serializable("tfxclass")
class NDCGAtK(RankingMetric):
    """Normalised discounted cumulative gain of the k best classes, nDCG@k.

    A label at rank r, from 1, gains 1 / log2(r + 1); the sum is divided by
    that of a ranking with all labels of the row in front. In training it is a
    sampled one: among the classes of the step.

    Args:
        head: the head, or its name.
        k: int.
        name: name of the metric; `ndcg_at_<k>` by default.
        dtype: as in `keras.metrics.Metric`.

    References:
        Jarvelin and Kekalainen, ACM TOIS 2002; with binary gains as in the
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
