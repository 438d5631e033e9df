"""Adagrad on touched rows."""

import keras
import tensorflow as tf

from tfxclass.keras_internals import adagrad_slots
from tfxclass.ops import row_update
from tfxclass.optimizers.row_optimizer import RowOptimizer


@keras.saving.register_keras_serializable(package="tfxclass")
class LazyAdagrad(RowOptimizer, keras.optimizers.Adagrad):
    """`keras.optimizers.Adagrad` whose step costs only the rows it touches.

    Adagrad does not move rows without a gradient, so the result equals
    Keras' own. Only weight decay differs: it applies to touched rows alone.

    Args:
        *args: as for `keras.optimizers.Adagrad`.
        second_moment: str, `"element"` (default) or `"row"`: one sum of
            squares for each class vector; see `LazyAdam`.
        l2: float, coupled L2 regularization; see `LazyAdam`.
        **kwargs: as for `keras.optimizers.Adagrad`; see `LazyAdam`.

    Example:

    >>> optimizer = tfxclass.optimizers.LazyAdagrad(0.1)
    >>> model.compile(optimizer, loss=head.loss)

    References:

    - [Duchi et al., 2011](https://jmlr.org/papers/v12/duchi11a.html)
    """

    SECOND_MOMENTS = ("element", "row")

    def _slots(self, index):
        return adagrad_slots(self, index)

    def _update_op(
        self, variable, slots, ids, grads, *, learning_rate, **options
    ):
        return row_update.adagrad_update(
            variable,
            slots[0],
            ids,
            grads,
            learning_rate=tf.cast(learning_rate, tf.float64),
            offset=self.epsilon,
            **options,
        )
