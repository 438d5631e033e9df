"""Adam and AdamW on touched rows."""

import math
import numbers
from typing import Any

import keras
import tensorflow as tf

from tfxclass.keras_internals import adam_slots
from tfxclass.ops import row_update
from tfxclass.optimizers import averaged_skips
from tfxclass.optimizers import skipped_steps
from tfxclass.optimizers.shared_moment import SharedMoment


def _check_epsilon(epsilon):
    # Keras takes anything; a negative one divides by zero, and rows are NaN.
    is_number = isinstance(epsilon, numbers.Real)
    if not is_number or not math.isfinite(epsilon) or epsilon < 0:
        raise ValueError(
            "`epsilon` must be a finite number of at least 0. Received: "
            f"{epsilon!r}"
        )


class _LazyAdamRows(SharedMoment):
    _HAS_RATES = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _check_epsilon(self.epsilon)
        if self.catch_up and not self.amsgrad:
            skipped_steps.check_betas(self.beta_1, self.beta_2, self.epsilon)

    def _slots(self, index):
        slots = adam_slots(self, index)
        return slots[:1] if self._is_shared(self._built_for[index]) else slots

    def _update_op(
        self, variable, slots, history, ids, grads, *, learning_rate, **options
    ):
        options.update(
            beta_1=self.beta_1, beta_2=self.beta_2, epsilon=self.epsilon
        )
        rows = variable, slots, history, ids, grads
        if options["kept"].second_moment is not None:
            return self._shared_update(*rows, learning_rate, options)
        alpha = self._alpha(learning_rate, grads.dtype)
        return row_update.adam_update(
            *rows, alpha=tf.cast(alpha, tf.float64), **options
        )

    def _alpha(self, learning_rate, dtype):
        """The learning rate with the bias correction of this step.

        In the type of the rows, as Keras: for beta_2 = 0.999 the first one
        differs by 1e-5 between float32 and float64.
        """
        dtype = tf.float64 if dtype == tf.float64 else tf.float32
        step = tf.cast(self.iterations + 1, dtype)
        beta_1_power = tf.pow(tf.cast(self.beta_1, dtype), step)
        beta_2_power = tf.pow(tf.cast(self.beta_2, dtype), step)
        rate = tf.cast(learning_rate, dtype)
        return rate * tf.sqrt(1 - beta_2_power) / (1 - beta_1_power)

    def _terms(self, capacity):
        return skipped_steps.adam_terms(
            self.beta_1, self.beta_2, self.epsilon, self.amsgrad, capacity
        )

    def _skipped_moves(self, slots, sums, capacity):
        if len(slots) == 1:
            return self._skipped_shared_moves(slots, sums, capacity)
        terms, _ = self._terms(capacity)
        divisor = tf.sqrt(slots[-1]) + self.epsilon
        factors = averaged_skips.polynomial(sums(terms), self.epsilon / divisor)
        return slots[0] / divisor * factors

    def _has_sums_of_skips(self, capacity):
        return not self._terms(capacity)[1]

    def _catch_up_op(self, variable, slots, history, ids, **options):
        if options["kept"].second_moment is not None:
            self._catch_up_shared(variable, slots, history, ids, **options)
            return
        terms, each_element = self._terms(history.capacity)
        row_update.adam_catch_up(
            variable,
            slots,
            history,
            ids,
            terms=terms,
            each_element=each_element,
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            **options,
        )


@keras.saving.register_keras_serializable(package="tfxclass")
class LazyAdam(_LazyAdamRows, keras.optimizers.Adam):
    """`keras.optimizers.Adam` whose step costs only the rows it touches.

    Use it with any layer whose gradient is `tf.IndexedSlices`: heads of
    tfxclass, embeddings. Rows that a batch did not touch keep still, and so
    do their moments; the bias correction counts all steps. That is
    TensorFlow Addons' LazyAdam. It differs from Adam, where a row goes on
    moving after its last gradient and its moments fade.

    With `catch_up=True` it is Adam after all: before a row is read, the steps
    that it skipped are applied, each with the learning rate, bias correction
    and decay that it had. Layers have to ask for it: tfxclass's heads do,
    others call `tfxclass.optimizers.catch_up(variable, ids)` before they read.
    What is read equals dense Adam's but for rounding, under any schedule; it is
    within 1e-6 of the skipped moves. To know:

    - A variable without a gradient in a step rests in it, as with Keras: it is
      frozen, or a part of the model that the step did not use. Pending steps
      are those from before.
    - A Keras variable that is assigned (`set_weights`, `load_weights`) goes on
      from there, as with Keras. An assignment to the `tf.Variable` inside is
      not seen: call `catch_up(variable)` before it.
    - Before the whole matrix is read (an evaluation, an export), `catch_up(
      variable)` without ids. A saved model that goes on training needs none:
      the file holds the step each row is at and the rates of the steps since.
    - `learning_rate * weight_decay` is below 1.

    Args:
        *args: as for `keras.optimizers.Adam`.
        catch_up: see above. Costs 8 bytes a row, 4 a step (16 with weight
            decay) of at most 65,536 steps, and a second pass over the rows
            that are read, in time that does not depend on how long they
            rested. Once in as many steps as there are rows, or in 65,536, all
            rows are brought up.
        compact_slots: if True, the slots of class rows (the matrices of
            tfxclass's heads; other variables keep theirs) are 2 bytes a number
            instead of 8: the first moment in bfloat16, rounded stochastically,
            the second one as one float a row, that of the mean of its squares
            (as in Adafactor or LAMB, elements of a row share a step size; all
            of a row's gradient comes from one class). For the CPU.
        shared_second_moment: if True, all class vectors of a matrix share one
            second moment, the mean square of the gradients of a step's class
            vectors. An unlikely negative then moves by its own small gradient,
            where Adam moves it as far as a label's class vector. This helps
            with cosine similarity and a good encoder. It hurts most models
            with `similarity="dot"`: compare both on validation data
            (`docs/choosing.md`). The gradient is divided by the moment before
            it enters the first moment, as in NovoGrad. The optimizer state has
            no second moments of class vectors. Other variables keep theirs,
            and so does an embedding that a head is `tied_to`. It is refused
            with `amsgrad=True` and for class vectors in shards.
        l2: float, coupled L2: `l2 * row` is added to the gradient of each
            touched row, after clipping, and so goes through the moments and
            the step size; dense gradients get it, too, and variables that are
            excluded from weight decay do not. That is what a linear tool's
            `l2 / 2 * |w|^2` in the loss is. `weight_decay` is decoupled: it
            shrinks touched rows by `learning_rate * weight_decay`, whatever
            their gradients are (AdamW). Not with `catch_up=True`.
        **kwargs: as for `keras.optimizers.Adam`. Clipping, weight decay, loss
            scale and learning rate schedules keep to the touched rows, and so
            do these, with row gradients on one replica:
            `gradient_accumulation_steps` (needs Keras' accumulators, as large
            as the variables); `use_ema`, where the average of a row makes up
            for the steps in which the row stood still before the row moves or
            the averages are read, as Keras does at the end of `fit` and in
            `SwapEMAWeights` (with `catch_up=True`, where rows move in the steps
            they skip, for what these do to the averages, too: they equal the
            dense optimizer's; not with weight decay); a constraint on the
            variable that is of each row by itself, not with `catch_up=True`.

    Variables may be float32, float64, float16 or bfloat16 (on a GPU float32
    where they have row gradients); 16-bit rows are computed in float32.

    Example:

    >>> model.compile(tfxclass.optimizers.LazyAdam(1e-3), loss=head.loss)

    Raises:
        ValueError: `epsilon` is negative, not finite or not a number; an
            option of ours that is neither True nor False;
            `shared_second_moment=True` with `amsgrad=True`; at the first
            step, an option that cannot be right with row gradients: under
            several replicas, `use_ema` with `catch_up=True` and weight decay
            or unusual betas, a constraint with `catch_up=True`, a constraint
            that needs all rows.

    References:

    - [Kingma and Ba, 2014](https://arxiv.org/abs/1412.6980)
    - TensorFlow Addons 0.23, `tfa.optimizers.LazyAdam`
    - [Shazeer and Stern, 2018](https://arxiv.org/abs/1804.04235) (Adafactor:
      second moments for less)
    - [Ginsburg et al., 2019](https://arxiv.org/abs/1905.11286) (NovoGrad: one
      second moment a layer)
    """


@keras.saving.register_keras_serializable(package="tfxclass")
class LazyAdamW(_LazyAdamRows, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` whose step costs only the rows it touches.

    As `LazyAdam`. A touched row is decayed in the step that touches it;
    with `catch_up=True` also for the steps that it skipped.

    Args:
        *args: as for `keras.optimizers.AdamW`.
        catch_up, compact_slots, shared_second_moment, l2: see `LazyAdam`.
        **kwargs: as for `keras.optimizers.AdamW`; see `LazyAdam`.

    Example:

    >>> optimizer = tfxclass.optimizers.LazyAdamW(1e-3, weight_decay=0.01)
    >>> model.compile(optimizer, loss=head.loss)

    References:

    - [Loshchilov and Hutter, 2019](https://arxiv.org/abs/1711.05101)
    """
