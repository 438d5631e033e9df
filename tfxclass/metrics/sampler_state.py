"""The measurements of a head's sampler, in `logs`."""

import keras
import tensorflow as tf

from tfxclass.core.forward import Forward
from tfxclass.core.targets import Targets
from tfxclass.layers.output_head import OutputHead
from tfxclass.metrics.head_metric import HeadMetric
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
        name: str, name of the metric. Defaults to `measure`.
        dtype: as in `keras.metrics.Metric`.

    Values of `measure`:

    * `"overflow_steps"`: number of steps whose batch had more distinct labels
      than `num_sampled`. For every sampler.
    * `"overflow_labels"`: the largest number of labels in such a batch.
    * `"recall"`, for an index: fraction of the ten greatest logits that the
      index finds. It is measured on a few examples every few steps.
    * `"fill_rate"`, for an index: fraction of the places reserved for similar
      classes that similar classes fill.
    * `"tables_probed"`, for LSH: number of tables that a query reads.
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
        rows = tf.shape(targets.ids)[0]
        return tf.fill([rows], tf.convert_to_tensor(measured[self.measure]))

    def add_values(self, values: tf.Tensor, weight: tf.Tensor) -> None:
        if self.measure in LabelOverflow.names:
            # These are counts: the last one says it, and not their mean.
            self.reset_state()
        super().add_values(values, weight)

    def get_config(self) -> Config:
        return {**super().get_config(), "measure": self.measure}
