"""Sparsemax as an output layer."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.core.targets import Targets
from tfxclass.core.targets import places_of
from tfxclass.core.targets import take_columns
from tfxclass.layers.class_head import ClassHead
from tfxclass.layers.output_head import sorted_scores
from tfxclass.losses.options import LABEL_OPTIONS
from tfxclass.losses.sparsemax import sparsemax
from tfxclass.losses.sparsemax import sparsemax_loss
from tfxclass.ops import placement
from tfxclass.rows import search
from tfxclass.rows.blocks import Blocks
from tfxclass.types import Margin

# Logits that `top_k` asks for at least: most often the whole support is among
# them, and no further pass over the classes is needed.
_SUPPORT = 64


@keras.saving.register_keras_serializable("tfxclass")
class Sparsemax(ClassHead):
    """Sparsemax: a distribution in which most classes have probability zero.

    Use it with up to some ten thousand classes, if you want sparse
    probabilities. All logits of an example are needed to find its nonzero
    probabilities. Each training step computes three matrix products of [batch,
    dim] by [dim, num_classes], holds [batch, num_classes] logits and as many
    gradients, and updates all class vectors. `top_k` works in blocks.

    The gradient of the loss with respect to the logits is `sparsemax(logits) -
    q`, where q is the uniform distribution on the labels.

    Args:
        num_classes: int, number of classes.
        activation: `"sparsemax"` (the default), or None for logits.
        **kwargs: arguments of `ClassHead` (`similarity`, `use_bias`, `tied_to`)
            and of `OutputHead` (`loss_options`, `class_names`, `activation`,
            `kernel_initializer`, `kernel_dtype`).

    Example:

    ```python
    head = tfxclass.layers.Sparsemax(num_classes=10_000)
    model = keras.Sequential([keras.layers.Dense(256), head])
    model.compile(tfxclass.optimizers.LazyAdam(), loss=head.loss)
    ```

    References:
        Martins & Astudillo, From Softmax to Sparsemax, ICML 2016.
    """

    own_activation = "sparsemax"
    has_plain_logits = False

    supported_options = LABEL_OPTIONS

    @property
    def has_gpu_ops(self) -> bool:
        return False

    def activate(self, logits: tf.Tensor) -> tf.Tensor:
        return sparsemax(logits)

    def exact_loss(
        self,
        features: tf.Tensor,
        targets: Targets,
        margin: Margin | None = None,
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
        # Logits of all classes, and their probabilities or gradient.
        return 8 * batch * self.num_classes

    def all_scores(self, features: tf.Tensor, weights: Any = None) -> tf.Tensor:
        return sorted_scores(self, features, weights)

    def best(
        self, features: tf.Tensor, k: int, weights: Any = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        [(queries, rows)] = self.parts(features, weights)
        with placement.on(rows.device):
            return self._best(queries, rows, k)

    def _best(self, queries, rows, k):
        if self.activation is None:
            ids, logits, _ = search.best_of_rows(queries, rows, k, False)
            return ids, logits
        most = min(max(k, _SUPPORT), self.num_classes)
        ids, logits, _ = search.best_of_rows(queries, rows, most, False)
        top, tau = _threshold(
            Blocks(queries, rows.whole()), logits, self.num_classes
        )
        return ids[:, :k], tf.nn.relu(logits[:, :k] - top - tau)


def _threshold(blocks, best, num_classes):
    """`(top, tau)` `[batch, 1]`: the greatest logit, the threshold less it.

    Newton's method in the sum of max(z - tau, 0), from below: the threshold of
    the `best` logits alone is exact if it leaves one of them out, and too low
    otherwise, when blocks of all classes correct it.
    """
    top = best[:, :1]
    shifted = best - top
    place = tf.range(1.0, tf.cast(tf.shape(best)[1], tf.float32) + 1.0)
    sums = tf.cumsum(shifted, axis=1)
    total, count = _support(shifted, 1.0 + place * shifted > sums)
    tau = (total - 1) / count
    if best.shape[1] == num_classes:
        return top, tau

    def correct(tau, before, _):
        def add(start, total, count):
            logits = blocks.logits(start) - top
            more, others = _support(logits, logits > tau)
            return total + more, count + others

        zeros = tf.zeros_like(top)
        total, count = blocks.fold(add, (zeros, zeros))
        return (total - 1) / count, count, tf.reduce_any(count < before)

    # Each pass that changes a support makes it smaller: this ends.
    most = tf.fill(tf.shape(top), num_classes + 1.0)
    is_short = tf.reduce_any(shifted[:, -1:] > tau)
    tau, _, _ = tf.while_loop(
        lambda tau, before, is_short: is_short,
        correct,
        (tau, most, is_short),
        parallel_iterations=1,
    )
    return top, tau


def _support(logits, inside):
    """Sum and number of the logits `inside`, each float32 `[batch, 1]`."""
    total = tf.reduce_sum(tf.where(inside, logits, 0.0), 1, keepdims=True)
    count = tf.reduce_sum(tf.cast(inside, tf.float32), 1, keepdims=True)
    return total, count
