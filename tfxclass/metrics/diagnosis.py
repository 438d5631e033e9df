"""Diagnoses: how sure a model is, and where its gradients are."""

import keras
import tensorflow as tf

from tfxclass.core.forward import Forward
from tfxclass.core.targets import Targets
from tfxclass.metrics.head_metric import MetricAtK


@keras.saving.register_keras_serializable("tfxclass")
class CumulativeProbability(MetricAtK):
    """CP_K: the sum of the k greatest probabilities.

    It tells how few classes share the probability mass, which is what adaptive
    allocation uses. Use it for diagnosis only, since it costs as much as the
    full softmax.

    Args:
        head: the head, or its name.
        k: int, number of classes. Defaults to 1.
        name, dtype: as in `keras.metrics.Metric`. The name is
            `cumulative_probability_<k>`.

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
    p are the probabilities and y the weights of the labels.

    It takes the arguments of `CumulativeProbability`, whose paper it is from,
    and is called `normalized_cumulative_gradient_<k>`.
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
