"""Adam and AdamW on touched rows."""

import math
import numbers

import keras
import tensorflow as tf

from tfxclass.keras_internals import adam_slots
from tfxclass.ops import row_update
from tfxclass.optimizers.row_optimizer import RowOptimizer


def _check_epsilon(epsilon):
    # Keras takes anything; a negative one divides by zero, and rows are NaN.
    is_number = isinstance(epsilon, numbers.Real)
    if not is_number or not math.isfinite(epsilon) or epsilon < 0:
        raise ValueError(
            "`epsilon` must be a finite number of at least 0. Received: "
            f"{epsilon!r}"
        )


@keras.saving.register_keras_serializable(package="tfxclass")
class LazyAdam(RowOptimizer, keras.optimizers.Adam):
    """`keras.optimizers.Adam` whose step costs only the rows it touches.

    Use it with any layer whose gradient is `tf.IndexedSlices`: heads of
    tfxclass, embeddings. A row that a batch did not touch stays as it is, and
    so do its moments. The bias correction counts all steps. TensorFlow Addons'
    LazyAdam does the same. Adam itself goes on moving a row after its last
    gradient, while the moments of the row decay.

    Args:
        *args: as for `keras.optimizers.Adam`.
        second_moment: str, what shares one second moment. It applies to class
            vectors (the matrices of tfxclass's heads); other variables have
            one second moment for each element.
            - `"element"` (default): Adam's rule.
            - `"row"`: one float for each class vector, the mean of its squared
              gradients, as in Adafactor or LAMB. It saves 4 bytes for each
              number.
            - `"matrix"`: one float for all class vectors of a matrix, the mean
              square of the gradients of a step's class vectors. An unlikely
              negative then moves by its own small gradient, where Adam moves
              it as far as a label's class vector. This helps with cosine
              similarity and a good encoder. It hurts most models with
              `similarity="dot"`: compare both on validation data
              (`docs/choosing.md`). The gradient is divided by the moment
              before it enters the first moment, as in NovoGrad. An embedding
              that a head is `tied_to` keeps one second moment for each
              element. Not with `amsgrad=True` or class vectors in shards.
        slot_dtype: str, dtype of the first moment of class vectors:
            `"float32"` (default) or `"bfloat16"`, which takes half the bytes
            and is rounded stochastically. `"bfloat16"` needs
            `second_moment="row"` or `"matrix"`.
        l2: float, coupled L2 regularization: `l2 * row` is added to the
            gradient of each touched row after clipping, and goes through the
            moments and the step size. Dense gradients get it, too. Variables
            that are excluded from weight decay do not. A linear tool's
            `l2 / 2 * |w|^2` in the loss is the same. `weight_decay` is
            decoupled (AdamW): it shrinks touched rows by
            `learning_rate * weight_decay`, whatever their gradients are.
        **kwargs: as for `keras.optimizers.Adam`, without `use_ema`. Clipping,
            weight decay, loss scale and learning rate schedules apply to the
            touched rows. `gradient_accumulation_steps` works with row
            gradients on one replica, and needs Keras' accumulators, which are
            as large as the variables.

    Variables may be float32, float64, float16 or bfloat16 (on a GPU float32
    where they have row gradients); 16-bit rows are computed in float32.

    Example:

    >>> model.compile(tfxclass.optimizers.LazyAdam(1e-3), loss=head.loss)

    Raises:
        ValueError: an argument that is not as above, `use_ema=True`; at the
            first step, a constraint on a variable with a row gradient, or
            `gradient_accumulation_steps` with row gradients on several
            replicas.

    References:

    - [Kingma and Ba, 2014](https://arxiv.org/abs/1412.6980)
    - TensorFlow Addons 0.23, `tfa.optimizers.LazyAdam`
    - [Shazeer and Stern, 2018](https://arxiv.org/abs/1804.04235) (Adafactor:
      smaller second moments)
    - [Ginsburg et al., 2019](https://arxiv.org/abs/1905.11286) (NovoGrad: one
      second moment for each layer)
    """

    SECOND_MOMENTS = ("element", "row", "matrix")
    SLOT_DTYPES = ("float32", "bfloat16")

    def _check_arguments(self):
        _check_epsilon(self.epsilon)
        if self.second_moment == "element" and self.slot_dtype != "float32":
            raise ValueError(
                "Second moments of elements are float32. Received: "
                f'slot_dtype="{self.slot_dtype}" with second_moment="element". '
                'Fix: second_moment="row", which takes 4 bytes for each class '
                "vector."
            )
        if self.second_moment == "matrix" and self.amsgrad:
            raise ValueError(
                "`amsgrad` keeps the largest second moment of each element, "
                'and with `second_moment="matrix"` there is none. Fix: leave '
                "out one of both. Received: amsgrad=True"
            )

    def _slots(self, index):
        slots = adam_slots(self, index)
        is_shared = self._has_matrix_moment(self._built_for[index])
        return slots[:1] if is_shared else slots

    def _matrix_moment(self, index):
        return adam_slots(self, index)[1]

    def _update_op(
        self, variable, slots, ids, grads, *, learning_rate, **options
    ):
        options.update(
            beta_1=self.beta_1, beta_2=self.beta_2, epsilon=self.epsilon
        )
        if options["storage"].second_moment is not None:
            return row_update.shared_adam_update(
                variable,
                slots[0],
                ids,
                grads,
                learning_rate=learning_rate,
                **options,
            )
        alpha = self._alpha(learning_rate, grads.dtype)
        return row_update.adam_update(
            variable,
            slots,
            ids,
            grads,
            alpha=tf.cast(alpha, tf.float64),
            **options,
        )

    def _alpha(self, learning_rate, dtype):
        """The learning rate with the bias correction of this step.

        In the dtype of the rows, as Keras: for beta_2 = 0.999 the first one
        differs by 1e-5 between float32 and float64.
        """
        dtype = tf.float64 if dtype == tf.float64 else tf.float32
        step = tf.cast(self.iterations + 1, dtype)
        beta_1_power = tf.pow(tf.cast(self.beta_1, dtype), step)
        beta_2_power = tf.pow(tf.cast(self.beta_2, dtype), step)
        rate = tf.cast(learning_rate, dtype)
        return rate * tf.sqrt(1 - beta_2_power) / (1 - beta_1_power)


@keras.saving.register_keras_serializable(package="tfxclass")
class LazyAdamW(LazyAdam, keras.optimizers.AdamW):
    """`keras.optimizers.AdamW` whose step costs only the rows it touches.

    As `LazyAdam`. Weight decay shrinks a row in the steps that touch it.

    Args:
        *args: as for `keras.optimizers.AdamW`.
        second_moment, slot_dtype, l2: see `LazyAdam`.
        **kwargs: as for `keras.optimizers.AdamW`; see `LazyAdam`.

    Example:

    >>> optimizer = tfxclass.optimizers.LazyAdamW(1e-3, weight_decay=0.01)
    >>> model.compile(optimizer, loss=head.loss)

    References:

    - [Loshchilov and Hutter, 2019](https://arxiv.org/abs/1711.05101)
    """
