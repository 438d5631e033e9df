"""Diagnoses: what a sampler measures, and how sure a model is."""

import keras
import tensorflow as tf

from tfxclass.core.forward import Forward
from tfxclass.core.targets import Targets
from tfxclass.layers.output_head import OutputHead
from tfxclass.metrics.head_metric import HeadMetric
from tfxclass.metrics.head_metric import MetricAtK
from tfxclass.samplers.label_overflow import LabelOverflow
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class SamplerState(HeadMetric):
    """A measurement that the sampler of a head makes of itself.

    Use it in `compile` to watch a sampler during training. `docs/watching.md`
    explains the values.

    Args:
        head: a head with a sampler, or its name.
        measure: str, name of the measurement. See the list below.
        name, dtype: as in `keras.metrics.Metric`. The name is `measure`.

    Values of `measure`:

    * `"overflow_steps"`: number of steps whose batch had more distinct labels
      than `num_sampled`. For every sampler.
    * `"overflow_labels"`: the largest number of labels in such a batch.
    * `"recall"`, for an index: fraction of the ten greatest logits that the
      index finds. It is measured on a few examples every few steps.
    * `"fill_rate"`, for an index: fraction of the places reserved for similar
      classes that similar classes fill.
    * `"table_hit_rate"`, for LSH: fraction of the found classes that is
      sampled.

    For a sharded head the value is the mean over the worker's shards.

    Example:

    ```python
    head = tfxclass.layers.SelectiveSoftmax(10_000)
    metric = tfxclass.metrics.SamplerState(head, "recall")
    ```
    """

    def __init__(
        self,
        head: OutputHead | str,
        measure: str,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        super().__init__(head, name or measure, dtype)
        self.measure = measure

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        measured = getattr(forward.head, "measured", {})
        if self.measure not in measured:
            raise ValueError(
                f"`measure` must be one of {tuple(measured)}, which the "
                f"sampler of {forward.head.name!r} measures. Received: "
                f"{self.measure!r}"
            )
        value = tf.convert_to_tensor(measured[self.measure])
        return tf.fill(tf.shape(targets.ids)[:1], value)

    def add_values(self, values: tf.Tensor, weight: tf.Tensor) -> None:
        if self.measure in LabelOverflow.names:
            # These are counts: the last one says it, and not their mean.
            self.reset_state()
        super().add_values(values, weight)

    def get_config(self) -> Config:
        return {**super().get_config(), "measure": self.measure}


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
