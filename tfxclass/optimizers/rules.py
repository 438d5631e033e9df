"""Update rules: what state a variable has, and how a step moves its rows.

Where a rule `takes_dense`, Keras' optimizer updates the variable from a dense
gradient, by state of the same names. Otherwise all rows are updated.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfxclass.ops import row_update
from tfxclass.ops.row_update import RowStorage
from tfxclass.types import Variable


class StateSpec(NamedTuple):
    """Optimizer state; `initial` is one number, or a list of the shape."""

    shape: Sequence[int]
    dtype: str
    initial: Any = 0.0


Specs = dict[str, StateSpec]


class RowStep(NamedTuple):
    """One step of some rows of a variable, in the terms of `row_update`."""

    variable: tf.Variable
    state: dict[str, tf.Tensor]  # Handles, by the names of the state.
    ids: tf.Tensor
    grads: Any
    learning_rate: Any
    decay: tf.Tensor
    iterations: tf.Tensor  # The number of steps before.
    storage: RowStorage

    @property
    def wide_rate(self) -> tf.Tensor:
        """The learning rate in float64."""
        return tf.cast(self.learning_rate, tf.float64)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments of `row_update.update` for all rules."""
        return {
            "variable": self.variable.handle,
            "ids": self.ids,
            "grads": self.grads,
            "decay": self.decay,
            "storage": self.storage,
        }


def first_moment(variable: Variable, storage: RowStorage) -> StateSpec:
    """A number for each number of the variable."""
    dtype = tf.bfloat16 if storage.bfloat16_moments else storage.slot_dtype
    return StateSpec(variable.shape, dtype.name)


def second_moment(
    variable: Variable, storage: RowStorage, initial: float = 0.0
) -> StateSpec:
    """A number for each number of the variable, or for each row."""
    shape = variable.shape[:1] if storage.row_moments else variable.shape
    return StateSpec(shape, storage.slot_dtype.name, initial)


def one_row(storage: RowStorage, initial: Sequence[float]) -> StateSpec:
    """A few numbers for the whole variable."""
    # A matrix, because growth takes a vector for a number a class.
    dtype = compute_dtype(storage).name
    return StateSpec((1, len(initial)), dtype, [list(initial)])


def gradient_scale(rows: tf.Tensor) -> tf.Tensor:
    """The mean square of gradients of distinct rows, scalar; 0 without any.

    Rows of zeros and rows with a NaN or an infinity are ignored.
    """
    squares = tf.reduce_mean(tf.square(rows), tf.range(1, tf.rank(rows)))
    counts = (squares > 0) & tf.math.is_finite(squares)
    total = tf.reduce_sum(tf.where(counts, squares, tf.zeros_like(squares)))
    number = tf.cast(tf.math.count_nonzero(counts), squares.dtype)
    return tf.math.divide_no_nan(total, number)


def read(handle: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The values of the variable of a handle."""
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def compute_dtype(storage: RowStorage) -> tf.DType:
    """float64 for float64 rows, otherwise float32."""
    is_double = storage.slot_dtype == tf.float64
    return tf.float64 if is_double else tf.float32


@dataclasses.dataclass(frozen=True)
class SGD:
    """SGD with momentum, as `keras.optimizers.SGD`."""

    momentum: float
    nesterov: bool
    takes_dense = True

    def state(self, variable: Variable, storage: RowStorage) -> Specs:
        if not self.momentum:
            return {}
        return {"momentum": first_moment(variable, storage)}

    def update(self, step: RowStep) -> Any:
        momentum = step.state.get("momentum")
        return row_update.update(
            "sgd",
            slots=[] if momentum is None else [momentum],
            learning_rate=step.wide_rate,
            momentum=self.momentum,
            nesterov=self.nesterov,
            **step.options,
        )


@dataclasses.dataclass(frozen=True)
class Adagrad:
    """Adagrad, as `keras.optimizers.Adagrad`."""

    initial_accumulator_value: float
    epsilon: float
    takes_dense = True

    def state(self, variable: Variable, storage: RowStorage) -> Specs:
        first = self.initial_accumulator_value
        return {"accumulator": second_moment(variable, storage, first)}

    def update(self, step: RowStep) -> Any:
        return row_update.update(
            "adagrad",
            slots=[step.state["accumulator"]],
            learning_rate=step.wide_rate,
            offset=self.epsilon,
            **step.options,
        )


@dataclasses.dataclass(frozen=True)
class Adam:
    """Adam, as `keras.optimizers.Adam`; moments stay without a gradient."""

    beta_1: float
    beta_2: float
    epsilon: float
    amsgrad: bool = False
    takes_dense = True

    def state(self, variable: Variable, storage: RowStorage) -> Specs:
        second = second_moment(variable, storage)
        first = first_moment(variable, storage)
        state = {"momentum": first, "velocity": second}
        return {**state, "velocity_hat": second} if self.amsgrad else state

    def update(self, step: RowStep) -> Any:
        return row_update.update(
            "adam",
            slots=list(step.state.values()),  # In the order of `state`.
            alpha=tf.cast(self._corrected_rate(step), tf.float64),
            beta_1=self.beta_1,
            beta_2=self.beta_2,
            epsilon=self.epsilon,
            **step.options,
        )

    def _corrected_rate(self, step):
        """The learning rate with the bias correction of this step."""
        # As Keras: float32 and float64 differ by 1e-5 at beta_2 = 0.999.
        dtype = compute_dtype(step.storage)
        count = tf.cast(step.iterations + 1, dtype)
        beta_1_power = tf.pow(tf.cast(self.beta_1, dtype), count)
        beta_2_power = tf.pow(tf.cast(self.beta_2, dtype), count)
        rate = tf.cast(step.learning_rate, dtype)
        return rate * tf.sqrt(1 - beta_2_power) / (1 - beta_1_power)


@dataclasses.dataclass(frozen=True)
class SharedAdam:
    """Adam whose second moment is one number for all rows.

    The moment is the mean of `gradient_scale` over steps with such rows. Its
    root divides gradients before they enter the first moment, which is stored
    times the learning rate. Source: Ginsburg et al., 2019 (NovoGrad), without
    its norm of layers.
    """

    beta_1: float
    beta_2: float
    epsilon: float
    takes_dense = False

    def state(self, variable: Variable, storage: RowStorage) -> Specs:
        return {
            "momentum": first_moment(variable, storage),
            "velocity": one_row(storage, [0.0, 0.0]),
        }

    def update(self, step: RowStep) -> Any:
        dtype, handle = compute_dtype(step.storage), step.state["velocity"]
        grads = tf.cast(step.grads, dtype)
        ids, sums = row_update.sum_duplicate_rows(step.ids, grads)
        square = gradient_scale(sums)
        old = read(handle, dtype)
        seen = tf.stack([square, tf.ones([], dtype)])[tf.newaxis]
        new = old + (1 - self.beta_2) * (seen - old)
        counts = (square > 0) & tf.math.is_finite(square)
        new = tf.where(counts, new, old)
        tf.raw_ops.AssignVariableOp(resource=handle, value=new)
        root = tf.sqrt(tf.math.divide_no_nan(new[0, 0], new[0, 1]))
        rate = tf.cast(step.learning_rate, dtype) * (1 - self.beta_1)
        rate = tf.math.divide_no_nan(rate, root + self.epsilon)
        summed = step._replace(
            ids=ids, grads=tf.cast(sums, step.grads.dtype), learning_rate=rate
        )
        return SGD(self.beta_1, nesterov=False).update(summed)
