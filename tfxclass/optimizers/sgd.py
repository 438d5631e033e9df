"""SGD with momentum on touched rows."""

from typing import Any

import keras

from tfxclass.optimizers import rules
from tfxclass.optimizers.row_optimizer import RowOptimizer
from tfxclass.types import LearningRate


@keras.saving.register_keras_serializable(package="tfxclass")
class LazySGD(RowOptimizer, keras.optimizers.SGD):
    """SGD that updates only the rows that occur in a batch.

    Use it as `keras.optimizers.SGD` for models with large class matrices or
    embeddings: for any layer whose gradient is `tf.IndexedSlices`. Without
    momentum and weight decay it equals Keras' SGD. With them, rows that a batch
    did not touch do not move and keep their velocity, as in the first version
    of Partial FC. Keras moves all rows in every step.

    Args:
        learning_rate: float or a schedule of `keras.optimizers.schedules`.
            Defaults to 0.01.
        momentum: float in [0, 1). Defaults to 0.
        nesterov: bool, whether Nesterov momentum is used. Defaults to False.
        weight_decay: float, decoupled weight decay of touched rows. Defaults
            to None.
        slot_dtype: str, dtype of the velocity of class vectors: `"float32"`
            (default) or `"bfloat16"`, which is rounded stochastically.
        l2: float, coupled L2 regularization; see `LazyAdam`. Without momentum
            it equals `weight_decay`.
        **kwargs: as for `keras.optimizers.SGD`, e.g. `clipnorm`; see
            `LazyAdam`.

    Example:

    ```python
    optimizer = tfxclass.optimizers.LazySGD(0.1, momentum=0.9)
    head = tfxclass.layers.FullSoftmax(10_000)
    model = keras.Sequential([keras.layers.Dense(64), head])
    model.compile(optimizer, loss=head.loss)
    ```

    References:

    - [An et al., 2021](https://arxiv.org/abs/2010.05222) (Partial FC)
    """

    SLOT_DTYPES = ("float32", "bfloat16")

    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float | None = None,
        *,
        slot_dtype: str = "float32",
        l2: float = 0.0,
        **kwargs: Any,
    ) -> None:
        of_keras = (learning_rate, momentum, nesterov, weight_decay)
        super().__init__(*of_keras, slot_dtype=slot_dtype, l2=l2, **kwargs)

    def _rule_of(self, variable, matrix):
        return rules.SGD(self.momentum, self.nesterov)
