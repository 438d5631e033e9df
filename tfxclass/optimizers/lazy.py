"""Keras' Adam, AdamW, Adagrad and SGD on touched rows."""

from typing import Any

import keras

from tfxclass.checks import check_nonnegative
from tfxclass.optimizers import rules
from tfxclass.optimizers.row_optimizer import RowOptimizer
from tfxclass.types import LearningRate


@keras.saving.register_keras_serializable(package="tfxclass")
class LazyAdam(RowOptimizer, keras.optimizers.Adam):
    """Adam that updates only the rows that occur in a batch.

    Use it as `keras.optimizers.Adam` for models with large class matrices or
    embeddings: for any layer whose gradient is `tf.IndexedSlices`. A row that a
    batch did not touch stays as it is, and so do its moments. Keras' Adam moves
    all rows in each step. The bias correction counts all steps, as in
    TensorFlow Addons' LazyAdam.

    Args:
        learning_rate, beta_1, beta_2, epsilon, amsgrad: as for
            `keras.optimizers.Adam`.
        weight_decay: float, decoupled: touched rows shrink by `learning_rate *
            weight_decay`, whatever their gradients are. Defaults to None.
        second_moment: str, which numbers of class vectors share one second
            moment. Other variables have one for each element.

            - `"element"` (default): the rule of Adam.
            - `"row"`: one float for each class vector, the mean of its squared
              gradients, as in Adafactor or LAMB. It saves 4 bytes for each
              number.
            - `"matrix"`: one float for all class vectors of a matrix, the mean
              square of the gradients of a step, as in NovoGrad. It helps with
              cosine similarity and a good encoder, and hurts most models with
              `similarity="dot"`. Not for an embedding that a head is `tied_to`,
              which keeps `"element"`, with `amsgrad=True` or with shards.
        slot_dtype: str, dtype of the first moment of class vectors: `"float32"`
            (default) or `"bfloat16"`, which takes half the memory and is
            rounded stochastically. It needs `second_moment="row"` or
            `"matrix"`.
        l2: float, coupled L2 regularization: `l2 * row` is added to the
            gradient of each touched row after clipping. Dense gradients get it,
            too. Variables that are excluded from weight decay do not. Defaults
            to 0.
        **kwargs: as for `keras.optimizers.Adam`, without `use_ema`. Clipping
            and loss scale apply to the touched rows.
            `gradient_accumulation_steps` works with row gradients on one
            replica, and needs accumulators as large as the variables.

    Variables may be float32, float64, float16 or bfloat16. On a GPU, variables
    with row gradients have to be float32. 16-bit rows are computed in float32.

    Raises:
        ValueError: if an argument is out of range; at the first step, if a
            variable with a row gradient has a constraint, or gradients of rows
            are accumulated on several replicas.

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(100_000, num_sampled=1024)
    model = keras.Sequential([keras.layers.Dense(64), head])
    model.compile(tfxclass.optimizers.LazyAdam(1e-3), loss=head.loss)
    ```

    References:

    - [Kingma and Ba, 2014](https://arxiv.org/abs/1412.6980)
    - TensorFlow Addons 0.23, `tfa.optimizers.LazyAdam`
    - [Shazeer and Stern, 2018](https://arxiv.org/abs/1804.04235) (Adafactor)
    - [Ginsburg et al., 2019](https://arxiv.org/abs/1905.11286) (NovoGrad)
    """

    SECOND_MOMENTS = ("element", "row", "matrix")
    SLOT_DTYPES = ("float32", "bfloat16")

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        weight_decay: float | None = None,
        *,
        second_moment: str = "element",
        slot_dtype: str = "float32",
        l2: float = 0.0,
        **kwargs: Any,
    ) -> None:
        of_keras = (beta_1, beta_2, epsilon, amsgrad, weight_decay)
        compact = {"second_moment": second_moment, "slot_dtype": slot_dtype}
        super().__init__(learning_rate, *of_keras, l2=l2, **compact, **kwargs)

    def _check_arguments(self):
        # Keras takes anything, and a negative one gives NaN.
        check_nonnegative("epsilon", self.epsilon)
        if self.second_moment == "element" and self.slot_dtype != "float32":
            raise ValueError(
                "Second moments of elements are float32. Received: "
                f'slot_dtype="{self.slot_dtype}" with second_moment="element". '
                'Fix: second_moment="row".'
            )
        if self.second_moment == "matrix" and self.amsgrad:
            raise ValueError(
                "`amsgrad` needs a second moment of each element. Fix: leave "
                'out `second_moment="matrix"`. Received: amsgrad=True'
            )

    def _rule_of(self, variable, matrix):
        betas = self.beta_1, self.beta_2
        is_own = matrix is not None and not matrix.is_tied
        if self.second_moment == "matrix" and is_own:
            return rules.SharedAdam(*betas, self.epsilon)
        return rules.Adam(*betas, self.epsilon, self.amsgrad)


@keras.saving.register_keras_serializable(package="tfxclass")
class LazyAdamW(RowOptimizer, keras.optimizers.AdamW):
    """AdamW that updates only the rows that occur in a batch.

    Use it as `keras.optimizers.AdamW`. It is `LazyAdam` with weight decay.

    Args:
        learning_rate, beta_1, beta_2, epsilon, amsgrad, second_moment,
            slot_dtype, l2, **kwargs: as for `LazyAdam`.
        weight_decay: float, factor by which touched rows shrink, times the
            learning rate. Defaults to 0.004.

    Example:

    ```python
    optimizer = tfxclass.optimizers.LazyAdamW(1e-3, weight_decay=0.01)
    ```

    References:

    - [Loshchilov and Hutter, 2019](https://arxiv.org/abs/1711.05101)
    """

    SECOND_MOMENTS = LazyAdam.SECOND_MOMENTS
    SLOT_DTYPES = LazyAdam.SLOT_DTYPES
    _check_arguments = LazyAdam._check_arguments
    _rule_of = LazyAdam._rule_of

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        weight_decay: float = 0.004,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        *,
        second_moment: str = "element",
        slot_dtype: str = "float32",
        l2: float = 0.0,
        **kwargs: Any,
    ) -> None:
        of_keras = (weight_decay, beta_1, beta_2, epsilon, amsgrad)
        compact = {"second_moment": second_moment, "slot_dtype": slot_dtype}
        super().__init__(learning_rate, *of_keras, l2=l2, **compact, **kwargs)


@keras.saving.register_keras_serializable(package="tfxclass")
class LazyAdagrad(RowOptimizer, keras.optimizers.Adagrad):
    """Adagrad that updates only the rows that occur in a batch.

    It equals `keras.optimizers.Adagrad`, except that weight decay applies only
    to rows that occur in the batch.

    Args:
        learning_rate, initial_accumulator_value, epsilon: as for
            `keras.optimizers.Adagrad`.
        second_moment: str, `"element"` (default) or `"row"`, which keeps one
            sum of squares for each class vector.
        weight_decay, l2, **kwargs: as for `LazyAdam`.

    Example:

    ```python
    optimizer = tfxclass.optimizers.LazyAdagrad(0.1)
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
        of_keras = (initial_accumulator_value, epsilon, weight_decay)
        kwargs |= {"second_moment": second_moment, "l2": l2}
        super().__init__(learning_rate, *of_keras, **kwargs)

    def _rule_of(self, variable, matrix):
        return rules.Adagrad(self.initial_accumulator_value, self.epsilon)


@keras.saving.register_keras_serializable(package="tfxclass")
class LazySGD(RowOptimizer, keras.optimizers.SGD):
    """SGD that updates only the rows that occur in a batch.

    Without momentum and weight decay it equals `keras.optimizers.SGD`. With
    them, rows that a batch did not touch do not move and keep their velocity,
    as in the first version of Partial FC.

    Args:
        learning_rate, momentum, nesterov: as for `keras.optimizers.SGD`.
        slot_dtype: str, dtype of the velocity of class vectors: `"float32"`
            (default) or `"bfloat16"`, which is rounded stochastically.
        weight_decay, l2, **kwargs: as for `LazyAdam`. Without momentum, `l2`
            equals `weight_decay`.

    Example:

    ```python
    optimizer = tfxclass.optimizers.LazySGD(0.1, momentum=0.9)
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
