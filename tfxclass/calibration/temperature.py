"""The temperature whose probabilities are likeliest on held-out rows."""

import math
from collections.abc import Callable

import tensorflow as tf

from tfxclass.calibration.held_out import HeldOut
from tfxclass.core.targets import uniform_targets
from tfxclass.losses.objectives import OBJECTIVES
from tfxclass.rows import search

# Range of the temperature; at its ends the data do not determine one.
LEAST, MOST = 1 / 64, 64.0
_GOLDEN = (math.sqrt(5) - 1) / 2


def loss_of(rows: HeldOut) -> Callable[[float], float]:
    """The mean negative log-likelihood of the labels by the temperature."""
    # For probabilities, even if a hinge loss made the logits.
    objective = OBJECTIVES[str(rows.head.activation)]

    @tf.function
    def total(features, ids, inverse):
        parts = rows.head.parts(features)
        exchange = rows.head.exchange(features)
        losses = objective.streamed(
            search.scaled(parts, inverse),
            objective.targets(uniform_targets(ids)),
            exchange=exchange,
        )
        return tf.reduce_sum(losses)

    def mean(temperature):
        inverse = tf.constant(1 / temperature, tf.float32)
        sums = [float(total(*batch, inverse)) for batch in rows.batches]
        return sum(sums) / sum(len(ids) for _, ids in rows.batches)

    return mean


def fit_temperature(
    loss: Callable[[float], float], tolerance: float = 1e-3
) -> float:
    """Minimizes `loss` to a relative `tolerance`, by golden-section search.

    The likelihood of softmax and sigmoid is concave in 1 / temperature, so
    there is one such place.

    References:
        Guo et al., On Calibration of Modern Neural Networks, ICML 2017.
    """
    low, high = math.log(LEAST), math.log(MOST)
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = loss(math.exp(left)), loss(math.exp(right))
    while high - low > tolerance:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = loss(math.exp(left))
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = loss(math.exp(right))
    return math.exp((low + high) / 2)
