"""Base of the metrics, which read the forward pass behind `y_pred`."""

import keras
import tensorflow as tf

from tfxclass.checks import check_value
from tfxclass.core.forward import Forward
from tfxclass.core.forward import forward_of
from tfxclass.core.forward import row_weights
from tfxclass.core.targets import Targets
from tfxclass.core.targets import take_columns
from tfxclass.keras_internals import is_keras_building
from tfxclass.layers.output_head import OutputHead
from tfxclass.rows import search
from tfxclass.types import Array
from tfxclass.types import Config
from tfxclass.types import Labels


class HeadMetric(keras.metrics.Mean):
    """Base class: the mean of `values_of`, weighted by `weights_of`.

    Args:
        head: the head, or its name.
        name, dtype: as in `keras.metrics.Metric`.
    """

    #: Whether a training step of a sampled head computes all classes for it.
    reads_y_pred = False

    def __init__(
        self,
        head: OutputHead | str,
        name: str | None = None,
        dtype: str | keras.DTypePolicy | None = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        call = f"{type(self).__name__}(head, ...)"
        wanted = f"a head of tfxclass.layers, or its name: {call}"
        check_value("head", head, isinstance(head, (OutputHead, str)), wanted)
        self.head_name = head
        if isinstance(head, OutputHead):
            self.check_head(head)
            self.head_name = head.name

    def check_head(self, head: OutputHead) -> None:
        """Raises ValueError if the metric means nothing for `head`."""

    @tf.autograph.experimental.do_not_convert
    def update_state(
        self,
        y_true: Labels,
        y_pred: tf.Tensor,
        sample_weight: Array | None = None,
    ) -> None:
        if is_keras_building():
            return
        forward = forward_of(y_pred, self.head_name, type(self).__name__)
        self.check_head(forward.head)
        targets = forward.head.targets(forward.features, y_true)
        values = self.values_of(forward, targets)
        weight = self.weights_of(targets)
        if sample_weight is not None:
            weight *= row_weights(sample_weight, forward.features)
        self.add_values(values, weight)

    def add_values(self, values: tf.Tensor, weight: tf.Tensor) -> None:
        """Adds the result of `values_of`, with weights `[rows]`."""
        # A row that does not count may be NaN.
        super().update_state(tf.where(weight > 0, values, 0.0), weight)

    def values_of(self, forward: Forward, targets: Targets) -> tf.Tensor:
        """Value of each example of a batch, float32 `[rows]`."""
        raise NotImplementedError

    def weights_of(self, targets: Targets) -> tf.Tensor:
        """Weight of each example, float32 `[rows]`; 0 without a label."""
        return targets.is_labelled

    def best(self, forward: Forward, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """The k best of all classes: ids and scores, `[rows, k]`.

        In training they are by the class vectors of before the update. Rows
        with a NaN logit have ids -1 and scores NaN.
        """
        if tf.executing_eagerly():  # Weights may have changed since.
            return _best(forward, k)
        # Metrics that ask for this `k`, or later for a smaller one, share it.
        found = forward.answers.setdefault(tf.compat.v1.get_default_graph(), {})
        most = min((other for other in found if other >= k), default=k)
        if most not in found:
            found[most] = _best(forward, most)
        ids, scores = found[most]
        return ids[:, :k], scores[:, :k]

    def reset_state(self) -> None:
        for variable in self.variables:
            variable.assign(tf.zeros_like(variable.value))

    def get_config(self) -> Config:
        return {**super().get_config(), "head": self.head_name}


def _best(forward, k):
    head = forward.head
    if forward.logits is None:
        found = head.top_k(forward.features, k)
        ids, scores = (tf.reshape(x, [-1, k]) for x in found)
        is_wrong = tf.reduce_any(tf.math.is_nan(scores), axis=1)
    else:
        logits = tf.reshape(forward.logits, [-1, head.num_classes])
        ids = search.best_of_logits(logits, k).ids
        scores = head.activate(logits) if head.activation else logits
        scores = take_columns(scores, ids)
        is_wrong = tf.reduce_any(tf.math.is_nan(logits), axis=1)
    is_wrong |= ids[:, 0] < 0
    is_wrong |= forward.has_diverged(tf.shape(ids)[0])
    is_wrong = is_wrong[:, tf.newaxis]
    ids = tf.where(is_wrong, tf.constant(-1, ids.dtype), ids)
    return ids, tf.where(is_wrong, float("nan"), scores)
