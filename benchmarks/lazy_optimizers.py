"""Times one step on 1 % of a class matrix: lazy optimizers, Keras, the floor.

    python benchmarks/lazy_optimizers.py [num_classes] [dim] [touched]

The floor is the memory traffic of the rows (each matrix read and written, the
gradient read) at 18.5 GB/s, what random 512-byte rows reach on the two cores
that design.md reports. Keras gets the same `tf.IndexedSlices`.
"""

import statistics
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from tfxclass import optimizers

GIGABYTES_A_SECOND = 18.5


def milliseconds(optimizer, shape, touched, steps):
    """Median and least time of a step in a tf.function."""
    random = np.random.default_rng(0)
    kernel = keras.Variable(np.zeros(shape, np.float32))
    optimizer.build([kernel])
    batches = [
        tf.constant(random.choice(shape[0], touched, replace=False))
        for _ in range(20)
    ]
    grads = tf.constant(
        random.normal(size=(touched, shape[1])).astype(np.float32)
    )

    @tf.function
    def step(ids):
        optimizer.apply([tf.IndexedSlices(grads, ids, shape)], [kernel])

    times = []
    for i in range(steps + 3):
        start = time.perf_counter()
        step(batches[i % len(batches)])
        times.append(time.perf_counter() - start)
    return [1e3 * f(times[3:]) for f in (statistics.median, min)]


def main(num_classes=670_091, dim=128, touched=6_700):
    # Passes over the touched rows: matrices read and written, gradient read.
    cases = {
        "LazySGD": (optimizers.LazySGD(0.1), 3),
        "LazySGD, momentum": (optimizers.LazySGD(0.1, momentum=0.9), 5),
        "LazyAdagrad": (optimizers.LazyAdagrad(0.1), 5),
        "LazyAdam": (optimizers.LazyAdam(1e-3), 7),
        "LazyAdamW": (optimizers.LazyAdamW(1e-3), 7),
        "keras SGD, momentum": (keras.optimizers.SGD(0.1, momentum=0.9), 5),
        "keras Adam": (keras.optimizers.Adam(1e-3), 7),
    }
    print(f"{touched} of {num_classes} rows of {dim}, ms a step")
    print("| optimizer | median | least | floor |\n| --- | --- | --- | --- |")
    for name, (optimizer, passes) in cases.items():
        steps = 5 if name.startswith("keras") else 300
        median, least = milliseconds(
            optimizer,
            (num_classes, dim),
            touched,
            steps,
        )
        floor = touched * dim * 4 * passes / GIGABYTES_A_SECOND / 1e6
        print(f"| {name} | {median:.2f} | {least:.2f} | {floor:.2f} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
