"""Stages of local SGD: how fast, how long, and how often models meet."""

import itertools
import math
import typing
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import as_list
from tfxclass.checks import check_positive
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.types import Config
from tfxclass.types import Scalar


class Stage(typing.NamedTuple):
    """A stage of `LocalSGD` (Algorithm 1 of the RP paper).

    Args:
        learning_rate: float, eta_s.
        steps: int, T_s, number of steps of the stage.
        interval: int, I_s, steps between two averages.
    """

    learning_rate: float
    steps: int
    interval: int


def growing_stages(
    learning_rate: float,
    steps: int,
    interval: int,
    num_stages: int,
    growth: float = 2.0,
) -> list[Stage]:
    """Stages whose rate falls while their length and interval grow.

    Stage s = 1, 2, ... has, with f = growth^(s - 1),

        eta_s = learning_rate / f
        T_s = steps * f
        I_s = max(1, interval * sqrt(f))

    Theorem 2 of the RP paper has these eta_s and T_s, with a growth of at most
    1.18, and I_s = 1 / sqrt(K eta_s) for K replicas, at least 1. Its constants
    are unknown for deep networks, so choose the first stage and `growth`
    yourself. T_s is rounded to the nearest integer, I_s down.

    Args:
        learning_rate: float > 0, eta_1.
        steps: int >= 1, T_1.
        interval: int >= 1, I_1.
        num_stages: int >= 1, length of the list.
        growth: float > 1. Defaults to 2.

    Raises:
        ValueError: if an argument is out of range.

    Example:

    ```python
    stages = tfxclass.optimizers.growing_stages(0.1, 1000, 4, num_stages=5)
    ```
    """
    check_value("growth", growth, growth > 1, "> 1")
    steps = check_positive_int("steps", steps)
    interval = check_positive_int("interval", interval)
    num_stages = check_positive_int("num_stages", num_stages)
    stages = []
    for power in range(num_stages):
        factor = growth**power
        # A root of 2 twice is 2, but for the last bit.
        own = max(1, math.floor(interval * math.sqrt(factor) + 1e-9))
        stages.append((learning_rate / factor, round(steps * factor), own))
    return check_stages(stages)


def check_stages(
    stages: Sequence[Stage | tuple[float, int, int]],
) -> list[Stage]:
    """`stages` as a list of `Stage`; raises ValueError if one is not."""
    wanted = "(learning_rate, steps, interval)"
    stages = as_list("stages", stages, wanted)
    check_value("stages", stages, bool(stages), "at least one stage")
    for number, stage in enumerate(stages):
        name = f"stages[{number}]"
        if np.shape(stage) != (3,):
            raise ValueError(
                f"A stage must be {wanted}. Received: {name}={stage!r}"
            )
        check_positive(f"{name}.learning_rate", stage[0])
        check_positive_int(f"{name}.steps", stage[1])
        check_positive_int(f"{name}.interval", stage[2])
    return [Stage(float(x), int(y), int(z)) for x, y, z in stages]


class StageSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """The stage of a step; the last stage is repeated without end."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.stages = stages
        self._rates, self._steps, self.intervals = zip(*stages, strict=True)
        self._starts = [0, *itertools.accumulate(self._steps[:-1])]

    def __call__(self, step: Scalar) -> tf.Tensor:
        rates = tf.constant(self._rates, tf.float32)
        return tf.gather(rates, self._at(step)[0])

    def _at(self, step):
        """The stage's number, and the step's in it, int64 scalars."""
        step = tf.cast(step, tf.int64)
        starts = tf.constant(self._starts, tf.int64)
        stage = tf.reduce_sum(tf.cast(step >= starts, tf.int64)) - 1
        done = step - tf.gather(starts, stage)
        return stage, done % _nth(self._steps, stage)

    def is_start(self, step: Scalar) -> tf.Tensor:
        """Whether a stage begins with this step."""
        return self._at(step)[1] == 0

    def is_average(self, step: Scalar) -> tf.Tensor:
        """Whether models are averaged after this step."""
        stage, done = self._at(step)
        done += 1
        is_end = done == _nth(self._steps, stage)
        return is_end | (done % _nth(self.intervals, stage) == 0)

    def get_config(self) -> Config:
        return {"stages": [list(stage) for stage in self.stages]}


def _nth(values, index):
    return tf.gather(tf.constant(values, tf.int64), index)
