"""A model that is trained for a while, and begins again."""

import math
from collections.abc import Iterable
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.advice import budget
from tfxclass.layers.class_head import ClassHead
from tfxclass.optimizers import MultiOptimizer
from tfxclass.types import Config

# A larger array of equal numbers is kept as one of them.
_COMPACT_ABOVE = 10_000


class State(NamedTuple):
    """Weights of a model, lists of arrays.

    Attributes:
        encoder: the weights of the encoder.
        rows: class vectors, and biases where the head has them.
    """

    encoder: list[np.ndarray]
    rows: list[np.ndarray]


class Runner:
    """An encoder and a head under an optimizer, which can begin again.

    Args:
        encoder: a functional model, shared by all runners.
        head: a new head.
        optimizer: a new optimizer.
        start: `State`, where training begins.

    Attributes:
        seconds: float, what building it took, and its first step with it.
    """

    def __init__(
        self,
        encoder: keras.Model,
        head: ClassHead,
        optimizer: keras.optimizers.Optimizer,
        start: State,
    ) -> None:
        begin = budget.clock()
        self.encoder, self.head = encoder, head
        self.model = keras.Model(encoder.input, head(encoder.output))
        self.model.compile(optimizer, loss=head.loss)
        self.model.optimizer.build(self.model.trainable_variables)
        self.load(start)
        given = {
            id(variable): value
            for variable, value in zip(
                [*encoder.weights, *class_vectors(head)],
                [*start.encoder, *start.rows],
                strict=True,
            )
        }
        self._first = [
            (v, given[id(v)] if id(v) in given else _compact(v.numpy()))
            for v in self._variables()
        ]
        # A batch's own loss: Keras returns the mean over all steps.
        self._step = tf.function(self._train, reduce_retracing=True)
        self._losses = tf.function(self._exact, reduce_retracing=True)
        self.seconds = budget.clock() - begin

    def _variables(self):
        both = [*self.model.variables, *self.model.optimizer.variables]
        return list({id(v): v for v in both}.values())

    def _train(self, x, y):
        self.model.reset_metrics()
        return self.model.train_step((x, y))["loss"]

    def _exact(self, x, y):
        features = self.encoder(x, training=False)
        losses = self.head.compute_loss(features, y, training=False)
        return tf.reduce_mean(losses)

    def load(self, state: State) -> None:
        """Takes the weights of a state; optimizer state stays."""
        self.encoder.set_weights(state.encoder)
        for variable, value in zip(
            class_vectors(self.head), state.rows, strict=True
        ):
            variable.assign(value)

    def state(self) -> State:
        """The weights as they are."""
        rows = [variable.numpy() for variable in class_vectors(self.head)]
        return State(self.encoder.get_weights(), rows)

    def begin(self, rate: float) -> None:
        """Goes back to the start: weights, and all that training changes."""
        for variable, value in self._first:
            variable.assign(value)
        if rate != rate_of(self.model.optimizer):
            self.model.optimizer.learning_rate = rate

    def trace(self, x: Any, y: tf.Tensor) -> None:
        """Prepares steps on batches like this one."""
        begin = budget.clock()
        self._step.get_concrete_function(x, y)
        self.seconds += budget.clock() - begin

    def step(self, x: Any, y: tf.Tensor) -> float:
        """Trains on a batch; its loss before the update."""
        return float(self._step(x, y))  # float waits for a GPU

    def held_out_loss(self, batches: Iterable[tuple[Any, tf.Tensor]]) -> float:
        """The mean loss over all classes, each row with the same weight."""
        total = rows = 0
        for x, y in batches:
            total += len(y) * float(self._losses(x, y))
            rows += len(y)
        return total / rows


def class_vectors(head: ClassHead) -> list[keras.Variable]:
    """The class matrix of a head, and its bias if there is one."""
    return [w for w in (head.kernel, head.bias) if w is not None]


def _compact(value):
    if value.size > _COMPACT_ABOVE and np.all(value == value.flat[0]):
        return np.broadcast_to(value.flat[0], value.shape)
    return value


def rate_of(optimizer: keras.optimizers.Optimizer) -> float:
    """The learning rate, or the one that a schedule begins to fall from.

    Returns:
        float, NaN where the schedule has no such number.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if isinstance(inner, MultiOptimizer):
        return rate_of(inner.optimizers[0])
    rate = inner.get_config()["learning_rate"]
    if isinstance(rate, dict):
        names = ("warmup_target", "initial_learning_rate")
        known = [rate["config"].get(name) for name in names]
        rate = next((value for value in known if value), math.nan)
    # float32 of a variable: 0.001 and not 0.0010000000474974513.
    return float(f"{float(rate):.6g}")


def is_scheduled(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether a schedule sets the learning rate."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return isinstance(inner.get_config().get("learning_rate"), dict)


def at_rate(config: Config, rate: float) -> keras.optimizers.Optimizer:
    """A new optimizer with another constant learning rate.

    Args:
        config: dict, of `keras.optimizers.serialize`.
        rate: float.

    Raises:
        ValueError, TypeError: it cannot be made, or has other rates.
    """
    inner = config["config"]
    if "inner_optimizer" in inner:
        wrapped = inner["inner_optimizer"]
        wrapped = {
            **wrapped,
            "config": {**wrapped["config"], "learning_rate": rate},
        }
        inner = {**inner, "inner_optimizer": wrapped}
    elif "learning_rate" in inner:
        inner = {**inner, "learning_rate": rate}
    optimizer = keras.optimizers.deserialize({**config, "config": inner})
    if isinstance(optimizer, MultiOptimizer) and rate:
        optimizer.learning_rate = rate
    if not math.isclose(rate_of(optimizer), rate, rel_tol=1e-5, abs_tol=1e-12):
        raise ValueError("The optimizer has no learning rate of its own.")
    return optimizer
