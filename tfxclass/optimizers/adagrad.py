"""Adagrad on touched rows."""

from typing import Any

import keras

from tfxclass.optimizers import rules
from tfxclass.optimizers.row_optimizer import RowOptimizer
from tfxclass.types import Config
from tfxclass.types import LearningRate


@keras.saving.register_keras_serializable(package="tfxclass")
class LazyAdagrad(RowOptimizer, keras.optimizers.Adagrad):
    """Adagrad that updates only the rows that occur in a batch.

    Use it as `keras.optimizers.Adagrad` for models with large class matrices or
    embeddings. Adagrad does not move rows without a gradient, so the result
    equals Keras' own. Weight decay is different: it applies only to rows that
    occur in the batch.

    Args:
        learning_rate: float or a schedule. Defaults to 0.001.
        initial_accumulator_value: float, start of the sum of squares. Defaults
            to 0.1.
        epsilon: float, added to the root of the sum. Defaults to 1e-7.
        weight_decay: float, decoupled weight decay of touched rows. Defaults
            to None.
        second_moment: str, `"element"` (default) or `"row"`, which keeps one
            sum of squares for each class vector; see `LazyAdam`.
        l2: float, coupled L2 regularization; see `LazyAdam`.
        **kwargs: as for `keras.optimizers.Adagrad`, e.g. `clipnorm`; see
            `LazyAdam`.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(10_000)
    model = keras.Sequential([keras.layers.Dense(64), head])
    model.compile(tfxclass.optimizers.LazyAdagrad(0.1), loss=head.loss)
    ```

    References:

    - [Duchi et al., 2011](https://jmlr.org/papers/v12/duchi11a.html)
    """

    SECOND_MOMENTS = ("element", "row")

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        initial_accumulator_value: float = 0.1,
        epsilon: float = 1e-7,
        weight_decay: float | None = None,
        *,
        second_moment: str = "element",
        l2: float = 0.0,
        **kwargs: Any,
    ) -> None:
        first = initial_accumulator_value
        of_keras = (learning_rate, first, epsilon, weight_decay)
        ours: Config = {"second_moment": second_moment, "l2": l2}
        super().__init__(*of_keras, **ours, **kwargs)

    def _rule_of(self, variable, matrix):
        return rules.Adagrad(self.initial_accumulator_value, self.epsilon)
