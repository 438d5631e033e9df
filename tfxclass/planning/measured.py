"""Measures a machine for `plan`."""

import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass import layers
from tfxclass.checks import check_positive_int
from tfxclass.optimizers import HeadAdam
from tfxclass.planning.figures import Link
from tfxclass.planning.figures import Machine
from tfxclass.planning.figures import StepCosts


def measure_machine(
    dim: int = 128,
    batch: int = 256,
    num_classes: int = 50_000,
    num_sampled: int = 4096,
    repeats: int = 9,
    clock: Callable[[], float] = time.perf_counter,
) -> Machine:
    """Measures this machine for `plan`, in some seconds.

    It times steps of `FullSoftmax` and `SampledSoftmax` with `HeadAdam` on the
    whole batch, on an eighth of it, and on an eighth of the classes. Memory is
    the memory of the host. For a device with memory of its own, replace the
    values with `dataclasses.replace`.

    Args:
        dim: int, width of the features.
        batch: int, number of examples in a step, at least 8.
        num_classes: int, at least twice `num_sampled`.
        num_sampled: int, number of classes in a sampled step, at least 8 times
            `batch`.
        repeats: int, number of steps of which the median is taken.
        clock: function that returns seconds. `time.process_time` sums over all
            cores.

    Returns:
        A `Machine`.

    Raises:
        ValueError: if sizes are too small to be told apart.
    """
    for given, value, least in (
        ("dim", dim, 1),
        ("repeats", repeats, 1),
        ("batch", batch, 8),
        ("num_sampled", num_sampled, 8 * batch),
        ("num_classes", num_classes, 2 * num_sampled),
    ):
        if check_positive_int(given, value) < least:
            raise ValueError(
                f"`{given}` must be at least {least}. Received: {value}"
            )

    def costs(make, classes):
        few_rows, few = batch // 8, classes // 8
        sizes = [(batch, classes), (few_rows, classes), (few_rows, few)]
        steps = [_step_of(make(n), rows, dim) for rows, n in sizes]
        times = [_median_seconds(step, repeats, clock) for step in steps]
        return step_costs(sizes, times, dim)

    source = np.ones(64 << 20, np.uint8)
    target = np.empty_like(source)
    copied_s = _median_seconds(lambda: np.copyto(target, source), 5, clock)
    memory = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return Machine(
        exact=costs(lambda n: layers.FullSoftmax(n, seed=0), num_classes),
        sampled=costs(
            lambda n: layers.SampledSoftmax(num_classes, n, "uniform", seed=0),
            num_sampled,
        ),
        memory_bytes=memory,
        host_bytes=memory,
        host_link=Link(source.nbytes / copied_s),
    )


def step_costs(
    sizes: list[tuple[int, int]], times: list[float], dim: int
) -> StepCosts:
    """`StepCosts` by which steps take what they took.

    Args:
        sizes: three `(rows, classes)`.
        times: their seconds.
        dim: int.
    """
    lines = np.array([[1.0, r * n * dim, n * dim] for r, n in sizes])
    lines /= np.array(times)[:, np.newaxis]
    # Noise may take a term below zero: the best fit without such terms.
    best: Any = None
    least = np.inf
    for kept in itertools.product((True, False), repeat=3):
        found = np.zeros(3)
        used = lines[:, kept]
        found[list(kept)] = np.linalg.lstsq(used, np.ones(3), rcond=None)[0]
        error = np.sum((lines @ found - 1) ** 2)
        if found.min() >= 0 and error < least - 1e-12:
            best, least = found, error
    return StepCosts(*map(float, best))


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


def _median_seconds(call, repeats, clock):
    times = []
    for _ in range(repeats + 2):
        start = clock()
        call()
        times.append(clock() - start)
    return float(np.median(times[2:]))
