"""Metrics of where the labels are among the best classes."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_k
from tfxclass.core.forward import Forward
from tfxclass.core.targets import Targets
from tfxclass.layers.output_head import OutputHead
from tfxclass.metrics.head_metric import MetricAtK
from tfxclass.retrieval import measures


class RankingMetric(MetricAtK):
    """Base class of what goes by the ranks of the labels.

    In training, ranks are by the class vectors of before the update. A row with
    a NaN logit, or whose loss is not finite, finds none of its labels.
    """

    #: A function of `measures`.
    measure: Any = None

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        count = tf.math.count_nonzero(
            targets.ids >= 0, axis=1, dtype=tf.float32
        )
        return self.measure(self.ranks(forward, targets), count, self.k)

    def ranks(self, forward: Forward, targets: Targets) -> tf.Tensor:
        """Ranks of labels from 0, k past the k best; int32 `[rows, p]`."""
        if not forward.training or forward.ranking is None:
            # Ids are -1, as padding is, where a logit is NaN.
            ids, _ = self.best(forward, min(self.k, forward.head.num_answers))
            return measures.ranks_of(ids, targets.ids, self.k)
        ranks = tf.minimum(_ranks_in(forward.ranking), self.k)
        rows = forward.ranking.rows
        if rows is not None:
            none = tf.fill(tf.shape(targets.ids), self.k)
            rows = rows[:, tf.newaxis]
            ranks = tf.tensor_scatter_nd_update(none, rows, ranks)
        is_wrong = forward.has_diverged(tf.shape(ranks)[0])
        return tf.where(is_wrong[:, tf.newaxis], self.k, ranks)


def _ranks_in(ranking):
    """Ranks of the labels, equal logits in the order of the columns."""
    logits = ranking.logits
    columns = tf.maximum(ranking.positions, 0)
    own = tf.gather(logits, columns, axis=1, batch_dims=1)
    order = tf.range(tf.shape(logits, tf.int64)[1])

    def rank(label):
        own, column = (x[:, tf.newaxis] for x in label)
        is_ahead = (logits > own) | ((logits == own) & (order < column))
        return tf.math.count_nonzero(is_ahead, axis=1, dtype=tf.int32)

    # One label at a time: [batch, n] compared with [batch, 1].
    labels = tf.transpose(own), tf.transpose(columns)
    ranks = tf.map_fn(rank, labels, fn_output_signature=tf.int32)
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
        k: int, number of answers. Defaults to 1.
        name, dtype: as in `keras.metrics.Metric`. The name is
            `accuracy_at_<k>`.

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
    measure = staticmethod(measures.accuracy)

    def check_head(self, head: OutputHead) -> None:
        check_k(self.k, head.num_classes)


@keras.saving.register_keras_serializable("tfxclass")
class PrecisionAtK(RankingMetric):
    """P@k: fraction of the k best classes that are labels.

    It takes the arguments of `TopKAccuracy` and is called `precision_at_<k>`.
    """

    _prefix = "precision_at"
    measure = staticmethod(measures.precision)


@keras.saving.register_keras_serializable("tfxclass")
class RecallAtK(RankingMetric):
    """Fraction of the labels that are among the k best classes.

    It takes the arguments of `TopKAccuracy` and is called `recall_at_<k>`.
    """

    _prefix = "recall_at"
    measure = staticmethod(measures.recall)


@keras.saving.register_keras_serializable("tfxclass")
class RPrecisionAtK(RankingMetric):
    """Labels among the k best classes, divided by min(k, number of labels).

    It is recall for examples with few labels, and precision for examples with
    many. It takes the arguments of `TopKAccuracy` and is called
    `r_precision_at_<k>`.

    References:
        Chalkidis et al., Large-Scale Multi-Label Text Classification on EU
        Legislation, ACL 2019, section 5.
    """

    _prefix = "r_precision_at"
    measure = staticmethod(measures.r_precision)


@keras.saving.register_keras_serializable("tfxclass")
class NDCGAtK(RankingMetric):
    """nDCG@k: normalized discounted cumulative gain of the k best classes.

    A label at rank r = 1, 2, ... gains 1 / log2(r + 1). The sum is divided by
    the sum of a ranking with all labels first. It takes the arguments of
    `TopKAccuracy` and is called `ndcg_at_<k>`.

    References:
        Jarvelin and Kekalainen, ACM TOIS 2002, with binary gains as in the
        Extreme Classification Repository.
    """

    _prefix = "ndcg_at"
    measure = staticmethod(measures.ndcg)


@keras.saving.register_keras_serializable("tfxclass")
class MeanReciprocalRank(RankingMetric):
    """Mean of 1 / rank of the best label, with 0 past rank k.

    It takes the arguments of `TopKAccuracy`, with k = 100 by default, and is
    called `mean_reciprocal_rank_<k>`.
    """

    _prefix = "mean_reciprocal_rank"
    measure = staticmethod(measures.reciprocal_rank)

    def __init__(
        self,
        head: OutputHead | str,
        k: int = 100,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        super().__init__(head, k, name, dtype)
