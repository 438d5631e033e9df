"""The least probability of a class in an answer, one for all or each's own."""

from typing import Any
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from tfxclass.checks import check_number
from tfxclass.layers.output_head import OutputHead

#: The `threshold` that is each class's own, from `tfxclass.calibrate`.
CALIBRATED = "calibrated"
#: One for all classes or for each, or none.
Threshold: TypeAlias = float | np.ndarray | tf.Variable | None


def checked_threshold(threshold: Any, head: OutputHead) -> Threshold:
    """The numbers that `threshold`, an argument, says; or ValueError."""
    if threshold is None:
        return None
    if head.activation is None:
        raise ValueError(
            f"`threshold` needs probabilities. Received: {threshold} with "
            f"activation={head.activation}"
        )
    if not isinstance(threshold, str) or threshold != CALIBRATED:
        wanted = f'None, in [0, 1] or "{CALIBRATED}"'
        check_number("threshold", threshold, lambda x: 0 <= x <= 1, wanted)
        return threshold
    found = getattr(head, "thresholds", None)
    if found is None:
        raise ValueError(
            f'`threshold="{CALIBRATED}"` needs a head with thresholds. Fix: '
            'tfxclass.calibrate(model, data, thresholds="micro"). Received: '
            f"{head.name!r} without."
        )
    return found


def above(
    least: Threshold, ids: tf.Tensor, scores: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """`(ids, scores)` with ids -1 and scores 0 below the threshold."""
    if least is None:
        return ids, scores
    if isinstance(least, (np.ndarray, tf.Variable)):
        least = tf.gather(least, tf.maximum(ids, 0))
    is_above = scores >= least
    return tf.where(is_above, ids, -1), tf.where(is_above, scores, 0.0)
