"""Metrics of the k best classes, and of where the labels are among them."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_k
from tfxclass.checks import check_positive_int
from tfxclass.core.forward import Forward
from tfxclass.core.targets import Targets
from tfxclass.layers.output_head import OutputHead
from tfxclass.metrics.head_metric import HeadMetric
from tfxclass.retrieval import measures
from tfxclass.types import Config


class MetricAtK(HeadMetric):
    """Base class of metrics of k classes, which are named `<prefix>_<k>`."""

    _prefix = ""

    def __init__(
        self,
        # Without the default, Python's error would name this class.
        head: Any = None,
        k: int = 1,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        self.k = check_positive_int("k", k)
        super().__init__(head, name or f"{self._prefix}_{self.k}", dtype)

    def get_config(self) -> Config:
        return {**super().get_config(), "k": self.k}


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
        k: int, number of answers, at most the number of classes.
        name, dtype: as in `keras.metrics.Metric`. The name is
            `accuracy_at_<k>`.

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

    def __init__(self, head: Any = None, k: int = 100, **kwargs: Any) -> None:
        super().__init__(head, k, **kwargs)


@keras.saving.register_keras_serializable("tfxclass")
class CumulativeProbability(MetricAtK):
    """CP_K: the sum of the k greatest probabilities.

    It tells how few classes share the probability mass. Use it for diagnosis
    only, since it costs as much as the full softmax. It takes the arguments of
    `TopKAccuracy` and is called `cumulative_probability_<k>`.

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018.
    """

    _prefix = "cumulative_probability"

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        head = forward.head
        probabilities = head.activate(_logits(forward))
        best = tf.math.top_k(probabilities, min(self.k, head.num_classes))
        return tf.reduce_sum(best.values, axis=1)


@keras.saving.register_keras_serializable("tfxclass")
class NormalizedCumulativeGradient(CumulativeProbability):
    """NCG_K: the fraction of the gradient's energy in the top k classes.

    It is the sum of (p - y)^2 of an example over the k classes with the highest
    logits, divided by the sum over all classes (equation 5 of the paper). Here
    p are the probabilities and y the weights of the labels. It takes the
    arguments of `CumulativeProbability`, whose paper it is from, and is called
    `normalized_cumulative_gradient_<k>`.
    """

    _prefix = "normalized_cumulative_gradient"

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        logits = _logits(forward)
        places = tf.where(targets.ids >= 0)
        columns = tf.gather_nd(targets.ids, places)
        gradient = tf.tensor_scatter_nd_sub(
            forward.head.activate(logits),
            tf.stack([places[:, 0], columns], axis=1),
            tf.gather_nd(targets.weights, places),
        )
        energy = tf.square(gradient)
        best = tf.math.top_k(logits, min(self.k, forward.head.num_classes))
        of_best = tf.gather(energy, best.indices, axis=1, batch_dims=1)
        sums = (tf.reduce_sum(x, axis=1) for x in (of_best, energy))
        return tf.math.divide_no_nan(*sums)


def _logits(forward):
    """Logits of all classes, float32 `[rows, num_classes]`."""
    logits = forward.logits
    if logits is None:
        logits = forward.head.logits(forward.features)
    logits = tf.reshape(logits, [-1, forward.head.num_classes])
    # TensorFlow's top_k may pass single NaN by.
    is_nan = tf.reduce_any(tf.math.is_nan(logits), axis=1, keepdims=True)
    return tf.where(is_nan, float("nan"), logits)
