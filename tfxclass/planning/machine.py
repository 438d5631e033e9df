"""A machine and its network in numbers, from which plans are made."""

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from tfxclass import layers
from tfxclass.checks import check_positive_int
from tfxclass.optimizers import HeadAdam

# Steps of which the median is taken, and first ones that trace and warm up.
_STEPS, _WARM = 9, 2


@dataclass(frozen=True)
class Link:
    """The network connection of a machine.

    Attributes:
        bytes_per_s: float, bandwidth in bytes per second, in each direction.
        latency_s: float, time of the smallest message, in seconds.
    """

    bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        check_positive("bytes_per_s", self.bytes_per_s)

    def seconds(self, num_bytes: float, messages: float = 1) -> float:
        """Time of `messages` one after the other, with `num_bytes` in all."""
        return messages * self.latency_s + num_bytes / self.bytes_per_s


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Machine:
    """A machine, or a device with its host, as it was measured.

    Attributes:
        exact: `StepCosts` of an exact softmax.
        sampled: `StepCosts` of a sampled softmax.
        memory_bytes: float, memory of the device (or of the machine).
        host_bytes: float, memory of the device's host.
        host_link: `Link` between the device and its host.
    """

    exact: StepCosts
    sampled: StepCosts
    memory_bytes: float
    host_bytes: float
    host_link: Link

    def __post_init__(self) -> None:
        check_positive("memory_bytes", self.memory_bytes)
        check_positive("host_bytes", self.host_bytes)


def check_positive(name: str, value: float) -> None:
    """Raises ValueError unless `value` is finite and more than 0."""
    if not 0 < value < math.inf:
        raise ValueError(
            f"`{name}` must be finite and more than 0. Received: {value}"
        )


def measure_machine(
    dim: int = 128,
    batch: int = 256,
    num_classes: int = 50_000,
    clock: Callable[[], float] = time.perf_counter,
) -> Machine:
    """Measures this machine for `plan`, in some seconds.

    It times steps of `FullSoftmax`, and of `SampledSoftmax` with 16 classes for
    each example, with `HeadAdam`. Memory is the memory of the host. For a
    device with memory of its own, replace the values with
    `dataclasses.replace`.

    Args:
        dim: int, width of the features.
        batch: int, number of examples in a step, at least 8.
        num_classes: int, at least 32 times `batch`.
        clock: function that returns seconds. `time.process_time` sums over all
            cores.

    Returns:
        A `Machine`.

    Raises:
        ValueError: if sizes are too small to be told apart.
    """
    least = {"dim": 1, "batch": 8, "num_classes": 32 * batch}
    for name, value in zip(least, (dim, batch, num_classes)):
        if check_positive_int(name, value) < least[name]:
            raise ValueError(
                f"`{name}` must be at least {least[name]}. Received: {value}"
            )

    def costs(make, classes):
        few_rows, few = batch // 8, classes // 8
        sizes = [(batch, classes), (few_rows, classes), (few_rows, few)]
        steps = [_step_of(make(n), rows, dim) for rows, n in sizes]
        times = [_median_seconds(step, clock) for step in steps]
        return step_costs(sizes, times, dim)

    source = np.ones(64 << 20, np.uint8)
    target = np.empty_like(source)
    copied_s = _median_seconds(lambda: np.copyto(target, source), clock)
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return Machine(
        exact=costs(lambda n: layers.FullSoftmax(n, seed=0), num_classes),
        sampled=costs(
            lambda n: layers.SampledSoftmax(num_classes, n, "uniform", seed=0),
            16 * batch,
        ),
        memory_bytes=memory,
        host_bytes=memory,
        host_link=Link(source.nbytes / copied_s),
    )


def step_costs(
    sizes: list[tuple[int, int]], times: list[float], dim: int
) -> StepCosts:
    """`StepCosts` from the seconds of three steps, never below zero.

    The second of the `(rows, classes)` has fewer rows than the first, and the
    third fewer classes than the second.
    """
    (rows, classes), (few_rows, _), (_, few) = sizes
    of_products = max(times[0] - times[1], 0.0) / (rows - few_rows)
    product_s = of_products / classes / dim
    # What is left of the other two times without their products.
    left = times[1] - of_products * few_rows
    least = times[2] - of_products * few_rows * few / classes
    number_s = max(left - least, 0.0) / ((classes - few) * dim)
    step_s = max(least - number_s * few * dim, 0.0)
    return StepCosts(step_s, product_s, number_s)


def _step_of(head, batch, dim):
    """A function that does a training step of a head alone."""
    random = np.random.default_rng(0)
    x = random.normal(size=(batch, dim)).astype(np.float32)
    features = tf.constant(x)
    labels = tf.constant(random.integers(0, head.num_classes, batch))
    head.build((None, dim))
    optimizer, weights = HeadAdam(), head.trainable_variables
    optimizer.build(weights)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            # The encoder behind it wants a gradient, too.
            tape.watch(features)
            losses = head.compute_loss(features, labels, training=True)
            loss = tf.reduce_mean(losses)
        of_features, *grads = tape.gradient(loss, [features, *weights])
        optimizer.apply(grads, weights)
        return of_features

    return lambda: step().numpy()


def _median_seconds(call, clock):
    times = []
    for _ in range(_WARM + _STEPS):
        start = clock()
        call()
        times.append(clock() - start)
    return float(np.median(times[_WARM:]))
