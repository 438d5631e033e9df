"""Adam and AdamW on touched rows."""

import math

import keras
import tensorflow as tf

from tfxclass.ops import row_update
from tfxclass.optimizers.lazy_rows import LazyRows


class _LazyAdamRows(LazyRows):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        error = _catch_up_error(self.beta_1, self.beta_2)
        # AMSGrad's divisor stands still: its closed form is exact.
        if self.catch_up and not self.amsgrad and not error < 0.02:
            raise ValueError(
                "`catch_up=True` needs a beta_2 nearer to 1, for beta_1=0.9 "
                "at least 0.98: its closed form would be off by up to "
                f"{error:.2g} of a skipped move. Received: "
                f"beta_1={self.beta_1}, beta_2={self.beta_2}"
            )

    def _slots(self, index):
        slots = [self._momentums[index], self._velocities[index]]
        if self.amsgrad:
            slots.append(self._velocity_hats[index])
        return slots

    def _update_op(
        self,
        variable,
        slots,
        last_step,
        ids,
        grads,
        *,
        learning_rate,
        **scalars,
    ):
        # In float32 like Keras: 1 - beta_2 ** 1 differs by 1e-5 in float64.
        step = tf.cast(self.iterations + 1, tf.float32)
        beta_1_power = tf.pow(tf.cast(self.beta_1, tf.float32), step)
        beta_2_power = tf.pow(tf.cast(self.beta_2, tf.float32), step)
        alpha = learning_rate * tf.sqrt(1 - beta_2_power) / (1 - beta_1_power)
        row_update.adam_update(
            variable,
            slots,
            last_step,
            ids,
            grads,
            alpha=alpha,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            **scalars,
        )

    def _catch_up_op(self, variable, slots, last_step, ids, **scalars):
        row_update.adam_catch_up(
            variable,
            slots,
            last_step,
            ids,
            learning_rate=tf.cast(self.learning_rate, tf.float32),
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            **scalars,
        )


def _catch_up_error(beta_1, beta_2):
    """Bound of the closed form's error, relative to the skipped move.

    The mean of delta_i^3 in custom_ops/core/row_catch_up.h. It is reached
    where gradients are far below epsilon.
    """
    if not (0 <= beta_1 < beta_2**2 <= 1):
        return math.inf
    root = math.sqrt(beta_2)
    sums = [beta_1 / (root**p - beta_1) for p in (4, 3, 2, 1)]
    if not beta_1:
        return 0.0
    return (sums[0] - 3 * sums[1] + 3 * sums[2] - sums[3]) / sums[3]


@keras.saving.register_keras_serializable(package="tfxclass")
class LazyAdam(_LazyAdamRows, keras.optimizers.Adam):
    """`keras.optimizers.Adam` whose step costs only the rows it touches.

    Use it with any layer whose gradient is `tf.IndexedSlices`: heads of
    tfxclass, embeddings. Rows that a batch did not touch keep still, and so
    do their moments; the bias correction counts all steps. That is
    TensorFlow Addons' LazyAdam. It differs from Adam, where a row goes on
    moving after its last gradient and its moments fade.

    With `catch_up=True` it is Adam after all: before a row is read, the steps
    that it skipped are applied in closed form. Layers have to ask for it:
    tfxclass's heads do, others call `tfxclass.optimizers.catch_up(variable,
    ids)` before they read. What is read equals dense Adam's but for rounding
    (the closed form is within 1e-6 of the skipped move for the default
    betas), under these conditions:

    - The learning rate changes slowly. The skipped steps all take the present
      one, each with the bias correction of its own step.
    - The variable gets some gradient in every step; a step without one counts
      as a zero gradient, where Keras would leave the variable out.
    - Before the whole matrix is read (an evaluation, an export), `catch_up(
      variable)` without ids. A saved model that goes on training needs none:
      the file holds the step each row is at.

    Args:
        *args: as for `keras.optimizers.Adam`.
        catch_up: see above. Costs 8 bytes a row, and a second pass over the
            rows that are read.
        **kwargs: as for `keras.optimizers.Adam`. Clipping, weight decay, loss
            scale and learning rate schedules keep to the touched rows. With
            row gradients, `use_ema` and `gradient_accumulation_steps` raise a
            `ValueError`, and so does a constraint on the variable.

    Example:

    >>> model.compile(tfxclass.optimizers.LazyAdam(1e-3), loss=head.loss)

    References:

    - [Kingma and Ba, 2014](https://arxiv.org/abs/1412.6980)
    - TensorFlow Addons 0.23, `tfa.optimizers.LazyAdam`
    """


@keras.saving.register_keras_serializable(package="tfxclass")
class LazyAdamW(_LazyAdamRows, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` whose step costs only the rows it touches.

    As `LazyAdam`. A touched row is decayed in the step that touches it;
    with `catch_up=True` also for the steps that it skipped.

    Args:
        *args: as for `keras.optimizers.AdamW`.
        catch_up: see `LazyAdam`.
        **kwargs: as for `keras.optimizers.AdamW`; see `LazyAdam`.

    Example:

    >>> optimizer = tfxclass.optimizers.LazyAdamW(1e-3, weight_decay=0.01)
    >>> model.compile(optimizer, loss=head.loss)

    References:

    - [Loshchilov and Hutter, 2019](https://arxiv.org/abs/1711.05101)
    """
