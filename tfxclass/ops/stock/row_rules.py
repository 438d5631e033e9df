"""What an optimizer does to rows: custom_ops/core/row_rules.h in TensorFlow.

A rule computes with rows [n, ...] and slots of that shape, or [n, 1, ...] where
a slot has one number a row.
"""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

Slots = list[tf.Tensor]


class Skipped(NamedTuple):
    """What the steps that rows skipped do to them; all broadcast to rows.

    Attributes:
        keep: what decay leaves of a row.
        momentum, velocity: how the moments have faded.
        moves: list of the coefficients of the move over the first moment, or
            a function of the root of the second moments.
    """

    keep: tf.Tensor
    momentum: tf.Tensor
    velocity: tf.Tensor
    moves: Any


class Sgd:
    """`slots`: none, or the velocity of momentum."""

    def __init__(
        self,
        learning_rate: tf.Tensor,
        decay: tf.Tensor,
        momentum: tf.Tensor,
        nesterov: bool,
    ) -> None:
        self.rate, self.decay = learning_rate, decay
        self.momentum, self.nesterov = momentum, nesterov
        self.fades = (momentum, 1.0)

    def step(
        self, w: tf.Tensor, grad: tf.Tensor, square: tf.Tensor, slots: Slots
    ) -> tuple[tf.Tensor, Slots]:
        """Rows and slots after a step."""
        step = grad * self.rate
        if not slots:
            return w - w * self.decay - step, []
        velocity = slots[0] * self.momentum - step
        move = velocity
        if self.nesterov:
            move = velocity * self.momentum - step
        return w + (move - w * self.decay), [velocity]

    def skip(
        self, w: tf.Tensor, skipped: Skipped, slots: Slots
    ) -> tuple[tf.Tensor, Slots]:
        """Rows and slots after the steps that they skipped."""
        if not slots:
            return w + w * (skipped.keep - 1), []
        moved = w * (skipped.keep - 1) - slots[0] * skipped.moves[0]
        return w + moved, [slots[0] * skipped.momentum]


class Adagrad:
    """`slots`: the accumulator."""

    fades = (1.0, 1.0)

    def __init__(
        self, learning_rate: tf.Tensor, decay: tf.Tensor, epsilon: tf.Tensor
    ) -> None:
        self.rate, self.decay, self.epsilon = learning_rate, decay, epsilon

    def step(
        self, w: tf.Tensor, grad: tf.Tensor, square: tf.Tensor, slots: Slots
    ) -> tuple[tf.Tensor, Slots]:
        """Rows and slots after a step."""
        total = slots[0] + square
        step = self.rate * grad / tf.sqrt(total + self.epsilon)
        return w + (-w * self.decay - step), [total]

    def skip(
        self, w: tf.Tensor, skipped: Skipped, slots: Slots
    ) -> tuple[tf.Tensor, Slots]:
        """Rows and slots after the steps that they skipped."""
        return w + w * (skipped.keep - 1), slots


class Adam:
    """`slots`: both moments and, for AMSGrad, the largest second one."""

    def __init__(
        self,
        alpha: tf.Tensor,
        decay: tf.Tensor,
        rates: list[tf.Tensor],
        fades: list[tf.Tensor],
        epsilon: tf.Tensor,
    ) -> None:
        self.alpha, self.decay = alpha, decay
        self.rates, self.fades, self.epsilon = rates, fades, epsilon

    def step(
        self, w: tf.Tensor, grad: tf.Tensor, square: tf.Tensor, slots: Slots
    ) -> tuple[tf.Tensor, Slots]:
        """Rows and slots after a step."""
        m = slots[0] + (grad - slots[0]) * self.rates[0]
        v = slots[1] + (square - slots[1]) * self.rates[1]
        after = [m, v]
        divisor = v
        if len(slots) > 2:
            divisor = tf.maximum(v, slots[2])
            after.append(divisor)
        step = m * self.alpha / (tf.sqrt(divisor) + self.epsilon)
        return w + (-w * self.decay - step), after

    def skip(
        self, w: tf.Tensor, skipped: Skipped, slots: Slots
    ) -> tuple[tf.Tensor, Slots]:
        """Rows and slots after the steps that they skipped."""
        root = tf.sqrt(slots[-1])
        if callable(skipped.moves):
            over_m = skipped.moves(root, self.epsilon)
        else:
            h = root + self.epsilon
            over_m = skipped.moves[-1]
            for move in skipped.moves[-2::-1]:
                over_m = over_m * (self.epsilon / h) + move
            over_m = over_m / h
        moved = w * (skipped.keep - 1) - slots[0] * over_m
        after = [slots[0] * skipped.momentum, slots[1] * skipped.velocity]
        return w + moved, after + slots[2:]
