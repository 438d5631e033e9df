"""Metrics that never make the [batch, num_classes] output.

A Keras metric that reads `y_pred` is right with a head of tfxclass, but makes
the full output live again in every step. These read what the head's loss left
behind instead: in training they rank the labels among the classes that the
step computed anyway (where the head computes all, or in evaluation, among all
classes, streamed in blocks).
"""

import keras
import tensorflow as tf

from tfxclass import streaming
from tfxclass.checks import check_positive_int
from tfxclass.layers.output_head import OutputHead
from tfxclass.losses import records
from tfxclass.losses.targets import as_targets


class HeadMetric(keras.metrics.Mean):
    """Base class: the mean of `values_of` over rows with a label.

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
        weight = targets.is_labelled
        if sample_weight is not None:
            weight *= tf.reshape(tf.cast(sample_weight, tf.float32), [-1])
        super().update_state(values, weight)

    def values_of(self, scored, targets):
        """float32 `[batch]`."""
        raise NotImplementedError

    def get_config(self):
        config = super().get_config()
        return {
            "head": self.head_name,
            "name": config["name"],
            "dtype": config["dtype"],
        }


class _HitsAtK(HeadMetric):
    def __init__(self, head, k=1, name=None, dtype=None):
        check_positive_int("k", k)
        super().__init__(head, name or f"{self._prefix}_{k}", dtype)
        self.k = k

    def hits(self, scored, targets):
        """bool `[batch, p]`: which labels are among the k best."""
        ranking = records.find(self.head_name, records.Ranking)
        if scored.training and ranking is not None:
            return _hits_in_ranking(ranking, self.k)
        ids, _ = scored.head.top_k(scored.features, self.k)
        same = targets.ids[:, :, tf.newaxis] == ids[:, tf.newaxis, :]
        return tf.reduce_any(same, axis=2)

    def get_config(self):
        return {**super().get_config(), "k": self.k}


def _hits_in_ranking(ranking, k):
    columns = tf.maximum(ranking.positions, 0)
    of_labels = tf.gather(ranking.logits, columns, axis=1, batch_dims=1)
    # One label at a time: [batch, n] compared with [batch, 1].
    better = tf.map_fn(
        lambda label: tf.reduce_sum(
            tf.cast(ranking.logits > label[:, tf.newaxis], tf.int32), axis=1
        ),
        tf.transpose(of_labels),
        fn_output_signature=tf.int32,
    )
    return (tf.transpose(better) < k) & (ranking.positions >= 0)


@keras.saving.register_keras_serializable("tfxclass")
class TopKAccuracy(_HitsAtK):
    """Rows with a label among the k best classes; accuracy with `k=1`.

    In training it is a sampled accuracy: among the classes of the step.

    Args:
        head: the head, or its name.
        k: int.
        name: name of the metric; `accuracy_at_<k>` by default.
        dtype: as in `keras.metrics.Metric`.
    """

    _prefix = "accuracy_at"

    def values_of(self, scored, targets):
        hits = self.hits(scored, targets)
        return tf.cast(tf.reduce_any(hits, axis=1), tf.float32)


@keras.saving.register_keras_serializable("tfxclass")
class PrecisionAtK(_HitsAtK):
    """Share of the k best classes that are labels, P@k.

    In training it is a sampled precision: among the classes of the step.

    Args:
        head: the head, or its name.
        k: int.
        name: name of the metric; `precision_at_<k>` by default.
        dtype: as in `keras.metrics.Metric`.
    """

    _prefix = "precision_at"

    def values_of(self, scored, targets):
        hits = tf.cast(self.hits(scored, targets), tf.float32)
        return tf.reduce_sum(hits, axis=1) / self.k


@keras.saving.register_keras_serializable("tfxclass")
class CumulativeProbability(HeadMetric):
    """CP_K: the sum of the k greatest probabilities, all classes counted.

    How few classes carry the softmax; what adaptive allocation goes by. A
    diagnosis, as dear as the full softmax.

    Args:
        head: the head, or its name.
        k: int.
        name: name of the metric; `cumulative_probability_<k>` by default.
        dtype: as in `keras.metrics.Metric`.

    References:
        Zhang et al., AAAI 2018.
    """

    def __init__(self, head, k, name=None, dtype=None):
        check_positive_int("k", k)
        super().__init__(head, name or f"cumulative_probability_{k}", dtype)
        self.k = k

    def values_of(self, scored, targets):
        return tf.reduce_sum(_top_probabilities(scored, self.k), axis=1)

    def get_config(self):
        return {**super().get_config(), "k": self.k}


@keras.saving.register_keras_serializable("tfxclass")
class NormalizedCumulativeGain(CumulativeProbability):
    """NCG_K: probability of the k classes a forest finds over that of the best.

    1 when the forest finds the k best classes; 0 before a first forest is
    ready. A diagnosis, as dear as the full softmax.

    Args:
        head: a `SelectiveSoftmax`, or its name.
        k: int.
        name: name of the metric; `normalized_cumulative_gain_<k>` by default.
        dtype: as in `keras.metrics.Metric`.

    References:
        Zhang et al., AAAI 2018.
    """

    def __init__(self, head, k, name=None, dtype=None):
        name = name or f"normalized_cumulative_gain_{k}"
        super().__init__(head, k, name, dtype)

    def values_of(self, scored, targets):
        head = scored.head
        queries = tf.stop_gradient(head.queries(scored.features))
        if not hasattr(getattr(head, "sampler", None), "neighbors"):
            raise ValueError(
                "NormalizedCumulativeGain needs a head whose sampler searches "
                f"an index. Received: {type(head).__name__} {head.name!r}."
            )
        ids, scores = head.sampler.neighbors(queries, head.kernel, self.k)
        if head.bias is not None:
            scores += tf.gather(head.bias.value, tf.maximum(ids, 0))
        best = streaming.top_logits(
            queries,
            head.class_matrix(),
            min(self.k, head.num_classes),
            bias=_bias_of(head),
            normalize=head.similarity == "cosine",
        )
        top = best[:, :1]
        found = tf.where(ids >= 0, tf.exp(scores - top), 0.0)
        return tf.reduce_sum(found, 1) / tf.reduce_sum(tf.exp(best - top), 1)


def _bias_of(head):
    return None if head.bias is None else tf.convert_to_tensor(head.bias)


def _top_probabilities(scored, k):
    head = scored.head
    probabilities = head.activate(head.logits(scored.features))
    return tf.math.top_k(probabilities, min(k, head.num_classes)).values
