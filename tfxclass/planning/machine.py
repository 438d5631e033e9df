"""A machine and its network in numbers, from which plans are made."""

import dataclasses
import math

from tfxclass.checks import check_value


@dataclasses.dataclass(frozen=True)
class Link:
    """The network connection of a machine.

    Attributes:
        bytes_per_s: float, bandwidth in bytes per second, in each direction.
        latency_s: float, time of the smallest message, in seconds.
    """

    bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        _check_size("bytes_per_s", self.bytes_per_s)

    def seconds(self, num_bytes: float, messages: float = 1) -> float:
        """Time of `messages` one after the other, with `num_bytes` in all."""
        return messages * self.latency_s + num_bytes / self.bytes_per_s


@dataclasses.dataclass(frozen=True)
class StepCosts:
    """Time of a training step of one machine, on its own classes.

    Attributes:
        step_s: float, fixed seconds of a step.
        product_s: float, seconds for each multiplication of the logits, with
            everything that follows from it.
        number_s: float, seconds for each number of a class vector that is read
            and updated.
    """

    step_s: float
    product_s: float
    number_s: float

    def seconds(self, rows: float, classes: float, dim: int) -> float:
        """Time of a step on `rows` examples that computes `classes` classes."""
        products = self.product_s * rows * classes * dim
        return self.step_s + products + self.number_s * classes * dim


@dataclasses.dataclass(frozen=True)
class Machine:
    """A machine, or a device with its host, as it was measured.

    Attributes:
        exact: `StepCosts` of an exact softmax.
        sampled: `StepCosts` of a sampled softmax.
        memory_bytes: float, memory of the device (or of the machine).
        host_bytes: float, memory of the device's host, where class vectors are
            initialized.
    """

    exact: StepCosts
    sampled: StepCosts
    memory_bytes: float
    host_bytes: float

    def __post_init__(self) -> None:
        _check_size("memory_bytes", self.memory_bytes)
        _check_size("host_bytes", self.host_bytes)


def _check_size(name, value):
    check_value(name, value, 0 < value < math.inf, "finite and more than 0")
