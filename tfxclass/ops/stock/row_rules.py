"""What an optimizer does to rows: custom_ops/core/row_rules.h in TensorFlow.

A rule computes with rows [n, ...] and slots of that shape, or [n, 1, ...] where
a slot has one number a row.
"""

import tensorflow as tf

Slots = list[tf.Tensor]


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


class Adagrad:
    """`slots`: the accumulator."""

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


class Adam:
    """`slots`: both moments and, for AMSGrad, the largest second one."""

    def __init__(
        self,
        alpha: tf.Tensor,
        decay: tf.Tensor,
        rates: list[tf.Tensor],
        epsilon: tf.Tensor,
    ) -> None:
        self.alpha, self.decay = alpha, decay
        self.rates, self.epsilon = rates, epsilon

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
