"""Adaptive allocation: how much selection a stage of training needs (HF-A)."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.samplers.schedule import Refresh
from tfxclass.types import Config
from tfxclass.types import Scalar


@keras.saving.register_keras_serializable("tfxclass")
@dataclasses.dataclass
class AdaptiveAllocation:
    """Grows the sample, the trees and the rebuild interval during training.

    Use it to reproduce HF-A of the paper. All values change at the start of a
    phase. M is the smallest number for which the M greatest probabilities of an
    example have, on average, at least a given sum. The sample becomes the
    labels of the batch and M other classes, and at most `num_sampled` classes.
    With `include_labels`, it becomes M classes with the labels, as in the
    paper. The threshold, the number of trees and the rebuild interval grow
    linearly over `ramp_steps`.

    Args:
        phase_steps: int, number of steps in a phase.
        cumulative_probability: `(first, last)` thresholds in (0, 1].
        ramp_steps: int, number of steps over which all values grow, usually the
            whole training.
        num_trees: `(first, last)` ints.
        rebuild_interval: `(first, last)` ints, in steps.
        include_labels: bool, whether M counts the labels of the batch, as "the
            number of active classes for each iteration" does in the paper's
            section "Adaptive Allocation". A batch with more labels than M then
            has no other classes. Defaults to False.

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018, "HF-A".
    """

    phase_steps: int = 1000
    cumulative_probability: tuple[float, float] = (0.6, 0.95)
    ramp_steps: int = 10_000
    num_trees: tuple[int, int] = (10, 50)
    rebuild_interval: tuple[int, int] = (50, 500)
    include_labels: bool = False

    def __post_init__(self) -> None:
        for name in ("cumulative_probability", "num_trees", "rebuild_interval"):
            value = getattr(self, name)
            if np.shape(value) != (2,):
                raise ValueError(
                    f"`{name}` must be two numbers, for the first and the last "
                    f"step of the ramp. Received: {value!r}"
                )
            setattr(self, name, tuple(value))
        low, high = self.cumulative_probability
        if not 0 < low <= high <= 1:
            raise ValueError(
                "`cumulative_probability` must be two rising thresholds in "
                f"(0, 1]. Received: {self.cumulative_probability}"
            )
        for name, value in (
            ("phase_steps", self.phase_steps),
            ("ramp_steps", self.ramp_steps),
            ("num_trees", min(self.num_trees)),
            ("rebuild_interval", min(self.rebuild_interval)),
        ):
            check_positive_int(name, value)

    def refresh(self, step: Scalar, step_time: Scalar) -> Refresh:
        """The `Refresh` of a forest at `step`, int64 scalar."""
        del step_time
        done = self._done(step - step % self.phase_steps)
        interval = _between(self.rebuild_interval, done)
        num_trees = _between(self.num_trees, done)
        return Refresh(interval, interval, num_trees=num_trees)

    def threshold(self, step: Scalar) -> tf.Tensor:
        """The required cumulative probability at `step`, float32 scalar."""
        low, high = self.cumulative_probability
        return low + (high - low) * self._done(step)

    def _done(self, step):
        """Which part of the training is done, float32 scalar."""
        return tf.minimum(tf.cast(step, tf.float32) / self.ramp_steps, 1.0)

    def num_classes_for(
        self, step: Scalar, probabilities: tf.Tensor
    ) -> tf.Tensor:
        """The number of classes to compute from `step` on, int64 scalar.

        Args:
            step: int64 scalar.
            probabilities: float32 `[rows, most]`, the greatest probabilities of
                some examples, falling.
        """
        reached = tf.reduce_mean(tf.cumsum(probabilities, axis=1), axis=0)
        short = tf.cast(reached < self.threshold(step), tf.int64)
        most = tf.shape(probabilities, tf.int64)[1]
        return tf.minimum(tf.reduce_sum(short) + 1, most)

    def get_config(self) -> Config:
        return dataclasses.asdict(self)

    @classmethod
    def from_config(cls, config: Config) -> "AdaptiveAllocation":
        return cls(**config)


def _between(ends, done):
    first, last = ends
    value = first + (last - first) * done
    return tf.cast(tf.round(value), tf.int64)
