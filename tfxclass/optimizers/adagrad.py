"""Adagrad on touched rows."""

import keras

from tfxclass.ops import row_update
from tfxclass.optimizers.lazy_rows import LazyRows


@keras.saving.register_keras_serializable(package="tfxclass")
class LazyAdagrad(LazyRows, keras.optimizers.Adagrad):
    """`keras.optimizers.Adagrad` whose step costs only the rows it touches.

    Adagrad leaves rows without a gradient alone, so the result is Keras' own
    but for the weight decay, which only the touched rows get.

    Args:
        *args: as for `keras.optimizers.Adagrad`.
        catch_up: if True, rows get the weight decay of the steps they skipped
            before they are read; see `LazyAdam`.
        **kwargs: as for `keras.optimizers.Adagrad`. With row gradients,
            `use_ema` and `gradient_accumulation_steps` raise a `ValueError`.

    Example:

    >>> optimizer = tfxclass.optimizers.LazyAdagrad(0.1)
    >>> model.compile(optimizer, loss=head.loss)

    References:

    - [Duchi et al., 2011](https://jmlr.org/papers/v12/duchi11a.html)
    """

    def _slots(self, index):
        return [self._accumulators[index]]

    def _update_op(self, variable, slots, last_step, ids, grads, **scalars):
        row_update.adagrad_update(
            variable,
            slots[0],
            last_step,
            ids,
            grads,
            epsilon=self.epsilon,
            **scalars,
        )

    def _catch_up_op(self, variable, slots, last_step, ids, **scalars):
        row_update.adagrad_catch_up(
            variable, slots[0], last_step, ids, epsilon=self.epsilon, **scalars
        )
