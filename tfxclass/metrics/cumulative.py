"""How much of the probability the best classes carry: diagnoses."""

import keras
import tensorflow as tf

from tfxclass import streaming
from tfxclass.checks import check_positive_int
from tfxclass.metrics.head_metric import HeadMetric


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
        with head.beside_rows():
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
