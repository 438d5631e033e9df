"""Sparsemax as an output layer."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.core.forward import Step
from tfxclass.core.targets import Targets
from tfxclass.core.targets import places_of
from tfxclass.core.targets import take_columns
from tfxclass.layers.class_head import ClassHead
from tfxclass.losses.options import LABEL_OPTIONS
from tfxclass.losses.sparsemax import sparsemax
from tfxclass.losses.sparsemax import sparsemax_loss
from tfxclass.ops import placement
from tfxclass.rows import search
from tfxclass.types import Answers

# Logits that `top_k` asks for at least: most often the whole support is among
# them, and no further pass over the classes is needed.
_SUPPORT = 64


@keras.saving.register_keras_serializable("tfxclass")
class Sparsemax(ClassHead):
    """Sparsemax: a distribution in which most classes have probability zero.

    Use it with up to some ten thousand classes, if you want sparse
    probabilities. Each training step computes three matrix products of [batch,
    dim] by [dim, num_classes], holds [batch, num_classes] logits and as many
    gradients, and updates all class vectors. `top_k` works in blocks where at
    most 64 classes have a probability, and else sorts all logits. The loss is
    `tfxclass.losses.sparsemax_loss`.

    Args:
        activation: `"sparsemax"` (the default), or None for logits.
        **kwargs: other arguments of `ClassHead`, without `loss`.

    Example:

    ```python
    head = tfxclass.layers.Sparsemax(num_classes=10_000)
    ```

    References:
        Martins & Astudillo, From Softmax to Sparsemax, ICML 2016.
    """

    own_activation = "sparsemax"
    has_plain_logits = False
    supported_options = LABEL_OPTIONS

    def activate(self, logits: tf.Tensor) -> tf.Tensor:
        return sparsemax(logits)

    def training_step(self, features: tf.Tensor, targets: Targets) -> Step:
        targets, finish = self.objective.weighted_targets(self, targets)
        margin = self.target_margin()
        return Step(finish(self.exact_loss(features, targets, margin)))

    def exact_loss(
        self, features: tf.Tensor, targets: Targets, margin: Any = None
    ) -> tf.Tensor:
        """The sparsemax loss, which holds `[rows, num_classes]` logits."""
        logits = self.all_logits(features)
        if margin is not None:
            moved = margin(take_columns(logits, targets.ids))
            places, at = places_of(targets.ids)
            moved = tf.gather_nd(moved, places)
            logits = tf.tensor_scatter_nd_update(logits, at, moved)
        return sparsemax_loss(logits, targets)

    def activation_bytes(self, batch: int, dim: int) -> int:
        # Logits and probabilities, or on a GPU also arrays in float64.
        of_logit = 32 if placement.on_gpu(self.rows_device) else 8
        return of_logit * batch * self.num_classes

    def all_scores(self, features: tf.Tensor, weights: Any = None) -> tf.Tensor:
        # `activate` calls an op that an export does not have.
        ids, scores = self.best(features, self.num_classes, weights)
        places = tf.argsort(ids, axis=1)
        return tf.gather(scores, places, axis=1, batch_dims=1)

    def best(self, features: tf.Tensor, k: int, weights: Any = None) -> Answers:
        [(queries, rows)] = self.parts(features, weights)

        def sorted_logits(count):
            return search.best_of_rows(queries, rows, count, False)[:2]

        with placement.on(rows.device):
            if self.activation is None:
                return sorted_logits(k)
            most = min(max(k, _SUPPORT), self.num_classes)
            ids, logits = sorted_logits(most)
            tau = _threshold(logits)
            if most < self.num_classes:
                # The threshold of some logits is too low if none is below it.
                tau = tf.cond(
                    tf.reduce_any(logits[:, -1:] - logits[:, :1] > tau),
                    lambda: _threshold(sorted_logits(self.num_classes)[1]),
                    lambda: tau,
                )
            return ids[:, :k], tf.nn.relu(logits[:, :k] - logits[:, :1] - tau)


def _threshold(logits):
    """tau of falling logits less the greatest, float32 `[batch, 1]`."""
    shifted = logits - logits[:, :1]
    place = tf.range(1.0, tf.cast(tf.shape(shifted)[1], tf.float32) + 1.0)
    inside = 1.0 + place * shifted > tf.cumsum(shifted, axis=1)
    total = tf.reduce_sum(tf.where(inside, shifted, 0.0), 1, keepdims=True)
    count = tf.reduce_sum(tf.cast(inside, tf.float32), 1, keepdims=True)
    return (total - 1) / count
