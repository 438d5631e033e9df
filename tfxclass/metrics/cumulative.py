"""How much of the probability the best classes carry: diagnoses."""

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.core.forward import Forward
from tfxclass.core.targets import Targets
from tfxclass.core.targets import take_columns
from tfxclass.layers.output_head import OutputHead
from tfxclass.metrics.head_metric import HeadMetric
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class CumulativeProbability(HeadMetric):
    """CP_K: the sum of the k greatest probabilities.

    It tells how few classes share the probability mass, which is what adaptive
    allocation uses. Use it for diagnosis only, since it costs as much as the
    full softmax.

    Args:
        head: the head, or its name.
        k: int, number of classes.
        name: str, name of the metric. Defaults to `cumulative_probability_<k>`.
        dtype: as in `keras.metrics.Metric`.

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018.
    """

    _prefix = "cumulative_probability"

    def __init__(
        self,
        head: OutputHead | str,
        k: int,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        k = check_positive_int("k", k)
        super().__init__(head, name or f"{self._prefix}_{k}", dtype)
        self.k = k

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        head = forward.head
        probabilities = head.activate(_logits(forward))
        best = tf.math.top_k(probabilities, min(self.k, head.num_classes))
        return tf.reduce_sum(best.values, axis=1)

    def get_config(self) -> Config:
        return {**super().get_config(), "k": self.k}


@keras.saving.register_keras_serializable("tfxclass")
class NormalizedCumulativeGain(CumulativeProbability):
    """Probability of the k classes that a forest finds, relative to the best.

    It is 1 if the forest finds the k best classes, and 0 before a first forest
    is ready. Use it for diagnosis only, since it costs as much as the full
    softmax.

    It takes the arguments of `CumulativeProbability`, where `head` is a
    `SelectiveSoftmax`, and is called `normalized_cumulative_gain_<k>`.

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018.
    """

    _prefix = "normalized_cumulative_gain"

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        head = forward.head
        if not hasattr(getattr(head, "sampler", None), "neighbors"):
            raise ValueError(
                "NormalizedCumulativeGain needs a head whose sampler searches "
                f"an index. Received: {type(head).__name__} {head.name!r}."
            )
        logits = _logits(forward)
        best = tf.math.top_k(logits, min(self.k, head.num_classes)).values
        queries = tf.stop_gradient(head.queries(forward.features))
        ids, _ = head.sampler.neighbors(queries, head.kernel, self.k)
        top = best[:, :1]
        found = tf.exp(take_columns(logits, ids) - top)
        found = tf.where(ids >= 0, found, 0.0)
        return tf.reduce_sum(found, 1) / tf.reduce_sum(tf.exp(best - top), 1)


@keras.saving.register_keras_serializable("tfxclass")
class NormalizedCumulativeGradient(CumulativeProbability):
    """NCG_K: the fraction of the gradient's energy in the top k classes.

    It is the sum of (p - y)^2 of an example over the k classes with the highest
    logits, divided by the sum over all classes (equation 5 of the paper). Here
    p are the probabilities and y the weights of the labels. Use it for
    diagnosis only, since it costs as much as the full softmax.

    It takes the arguments of `CumulativeProbability`, and is called
    `normalized_cumulative_gradient_<k>`.

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018, equation 5 and Fig. 1b.
    """

    _prefix = "normalized_cumulative_gradient"

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        logits = _logits(forward)
        gradient = forward.head.activate(logits)
        places = tf.where(targets.ids >= 0)
        columns = tf.gather_nd(targets.ids, places)
        gradient = tf.tensor_scatter_nd_sub(
            gradient,
            tf.stack([places[:, 0], columns], axis=1),
            tf.gather_nd(targets.weights, places),
        )
        energy = tf.square(gradient)
        best = tf.math.top_k(logits, min(self.k, forward.head.num_classes))
        of_best = tf.gather(energy, best.indices, axis=1, batch_dims=1)
        of_best = tf.reduce_sum(of_best, axis=1)
        return tf.math.divide_no_nan(of_best, tf.reduce_sum(energy, axis=1))


def _logits(forward):
    """Logits of all classes, float32 `[rows, num_classes]`."""
    logits = forward.logits
    if logits is None:
        logits = forward.head.logits(forward.features)
    logits = tf.reshape(logits, [-1, forward.head.num_classes])
    # TensorFlow's top_k may pass single NaN by.
    is_nan = tf.reduce_any(tf.math.is_nan(logits), axis=1, keepdims=True)
    return tf.where(is_nan, float("nan"), logits)
