"""SGD with momentum on touched rows."""

import keras
import tensorflow as tf

from tfxclass.ops import row_update
from tfxclass.optimizers.row_optimizer import RowOptimizer


@keras.saving.register_keras_serializable(package="tfxclass")
class LazySGD(RowOptimizer, keras.optimizers.SGD):
    """`keras.optimizers.SGD` whose step costs only the rows it touches.

    Use it with any layer whose gradient is `tf.IndexedSlices`: heads of
    tfxclass, embeddings. Without momentum and weight decay it equals Keras'.
    With them, rows that a batch did not touch keep still, velocity included,
    as in the first version of Partial FC, where Keras moves all of them in
    every step: 1M rows of 64, 1,000 of them touched, 70 ms.

    Args:
        *args: as for `keras.optimizers.SGD`.
        slot_dtype: str, dtype of the velocity of class vectors: `"float32"`
            (default) or `"bfloat16"`, rounded stochastically.
        l2: float, coupled L2 regularization; see `LazyAdam`. Without momentum
            it equals `weight_decay`.
        **kwargs: as for `keras.optimizers.SGD`; see `LazyAdam`.

    Example:

    >>> optimizer = tfxclass.optimizers.LazySGD(0.1, momentum=0.9)
    >>> model.compile(optimizer, loss=head.loss)

    References:

    - [An et al., 2021](https://arxiv.org/abs/2010.05222) (Partial FC)
    """

    SLOT_DTYPES = ("float32", "bfloat16")

    def _slots(self, index):
        return [self.momentums[index]] if self.momentum else []

    def _update_op(
        self, variable, slots, ids, grads, *, learning_rate, **options
    ):
        return row_update.sgd_update(
            variable,
            slots[0] if slots else None,
            ids,
            grads,
            learning_rate=tf.cast(learning_rate, tf.float64),
            momentum=self.momentum,
            nesterov=self.nesterov,
            **options,
        )
