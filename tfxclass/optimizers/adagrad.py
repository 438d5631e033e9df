"""Adagrad on touched rows."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.keras_internals import adagrad_slots
from tfxclass.ops import library
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
        compact_slots: one float a row of class rows; see `LazyAdam`.
        l2: float, coupled L2: see `LazyAdam`.
        **kwargs: as for `keras.optimizers.Adagrad`; see `LazyAdam` for what
            holds with row gradients.

    Example:

    >>> optimizer = tfxclass.optimizers.LazyAdagrad(0.1)
    >>> model.compile(optimizer, loss=head.loss)

    References:

    - [Duchi et al., 2011](https://jmlr.org/papers/v12/duchi11a.html)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        library.require_op("lazy_adagrad_update")
        super().__init__(*args, **kwargs)

    def _slots(self, index):
        return adagrad_slots(self, index)

    def _update_op(
        self, variable, slots, history, ids, grads, *, learning_rate, **options
    ):
        return row_update.adagrad_update(
            variable,
            slots[0],
            history,
            ids,
            grads,
            learning_rate=tf.cast(learning_rate, tf.float64),
            epsilon=self.epsilon,
            **options,
        )

    def _skipped_moves(self, slots, sums, capacity):
        return None

    def _catch_up_op(self, variable, slots, history, ids, **options):
        row_update.adagrad_catch_up(variable, slots[0], history, ids, **options)
