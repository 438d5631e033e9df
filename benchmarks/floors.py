"""Training steps and their lower bounds: one run on one machine.

    python benchmarks/floors.py

Run it alone on the machine. A floor has two parts: the time of the products at
the rate of one large product (256 x 128 x 670,091), and the time to move the
bytes at the rate of a copy. Every step reads and writes class vectors,
optimizer state and logits once. `times_floor` is the measured time over the
floor, `times_uniform` over the uniform step of the same run. Methods that keep
an index are means over 1,000 steps with all rebuilds.
"""

import json
import sys
import time

import exact_step
import measure
import step_time

CLASSES, SAMPLED = 670_091, 6_700
SMALL_CLASSES, SMALL_BATCH, SMALL_SAMPLED = 10_000, 128, 228
# What is measured, and what it is compared with.
SAMPLED_METHODS = (
    "tf_sampled_softmax_sgd",
    "tf_sampled_softmax_adam",
    "sampled_uniform_lazy_adam",
    "sampled_auto_lazy_adam",
    *step_time.WITH_INDEX,
)
EXACT_METHODS = (
    "keras_dense_adam",
    "full_softmax_lazy_adam",
    "full_softmax_lazy_adam_bf16",
)
SMALL_METHODS = ("small_uniform", "small_auto")


def rates():
    """GFLOP/s of a product, and GB/s that a copy reads and writes."""
    import numpy as np
    import tensorflow as tf

    x = tf.random.normal([step_time.BATCH, step_time.DIM])
    rows = tf.random.normal([CLASSES, step_time.DIM])
    product = measure.median_ms(
        lambda: tf.linalg.matmul(x, rows, transpose_b=True), 9
    )
    flops = 2 * step_time.BATCH * step_time.DIM * CLASSES
    source = np.ones(2**27, np.float32)
    target = np.empty_like(source)
    copy = measure.median_ms(lambda: np.copyto(target, source), 9)
    return {
        "gflops": flops / product["median_ms"] / 1e6,
        "gb_s": 2 * source.nbytes / copy["median_ms"] / 1e6,
    }


def floor_ms(found, batch, dim, rows):
    """The floor of a step on so many class vectors, in ms.

    Args:
        found: dict of `rates`.
        batch, dim, rows: ints, of the products.
    """
    flops = 3 * 2 * batch * dim * rows
    # Class vectors and two moments; logits, which an exact loss need not keep.
    moved = 4 * (2 * 3 * rows * dim + 2 * batch * rows * (rows != CLASSES))
    return flops / found["gflops"] / 1e6 + moved / found["gb_s"] / 1e6


def small_step(sampler):
    import keras
    import tensorflow as tf

    import tfxclass

    keras.utils.set_random_seed(0)
    x = tf.random.normal([SMALL_BATCH, step_time.DIM])
    y = tf.random.uniform([SMALL_BATCH], 0, SMALL_CLASSES, tf.int64)
    head = tfxclass.layers.SampledSoftmax(SMALL_CLASSES, SMALL_SAMPLED, sampler)
    model = keras.Sequential([keras.Input([step_time.DIM]), head])
    optimizer = tfxclass.optimizers.LazyAdam(1e-3)
    model.compile(optimizer, loss=head.loss)
    optimizer.build(model.trainable_variables)
    return tf.function(lambda: model.train_step((x, y)))


def auto_step():
    import keras
    import tensorflow as tf

    import tfxclass

    keras.utils.set_random_seed(0)
    x = tf.random.normal([step_time.BATCH, step_time.DIM])
    y = tf.random.uniform([step_time.BATCH], 0, CLASSES, tf.int64)
    head = tfxclass.layers.SampledSoftmax(CLASSES, SAMPLED, "auto")
    return step_time.head_step(head, tfxclass.optimizers.LazyAdam(1e-3), x, y)


def mean_ms(step, steps=1000):
    step()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return {"median_ms": (time.perf_counter() - start) * 1e3 / steps}


def child(method):
    if method == "rates":
        return rates()
    if method in EXACT_METHODS:
        return exact_step.child(method, CLASSES)
    if method in SMALL_METHODS:
        step = small_step(method.removeprefix("small_"))
        found = measure.median_ms(step, 2000, warmup=200)
    elif method == "sampled_auto_lazy_adam":
        found = mean_ms(auto_step())
    elif method in step_time.WITH_INDEX:
        found = mean_ms(step_time.make_step(method, CLASSES))
    else:
        step = step_time.make_step(method, CLASSES)
        repeats = 20 if method.endswith("sampled_softmax_adam") else 200
        found = measure.median_ms(step, repeats, warmup=20)
    return {**found, "peak_gb": measure.peak_gb()}


def main():
    found = measure.in_fresh_process(__file__, "--child", "rates")
    print(found, flush=True)
    of_machine = {"work": "this machine", **found}
    batch, dim = step_time.BATCH, step_time.DIM
    floors = {
        "sampled": floor_ms(found, batch, dim, SAMPLED),
        "exact": floor_ms(found, batch, dim, CLASSES),
        "small": floor_ms(found, SMALL_BATCH, dim, SMALL_SAMPLED),
    }
    groups = {
        "sampled": SAMPLED_METHODS,
        "exact": EXACT_METHODS,
        "small": SMALL_METHODS,
    }
    rows = []
    for group, methods in groups.items():
        for method in methods:
            row = measure.in_fresh_process(__file__, "--child", method)
            rows.append({"work": group, "method": method, **row})
            print(rows[-1], flush=True)
    uniform = {
        row["work"]: row["median_ms"]
        for row in rows
        if "uniform" in row["method"]
    }
    table = [
        {
            "work": row["work"],
            "method": row["method"],
            "ms": row["median_ms"],
            "floor_ms": floors[row["work"]],
            "times_floor": row["median_ms"] / floors[row["work"]],
            "times_uniform": row["median_ms"] / uniform[row["work"]]
            if row["work"] in uniform
            else "",
            "peak_gb": row["peak_gb"],
        }
        for row in rows
    ]
    measure.save("floors", [*table, of_machine])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(sys.argv[2])))
    else:
        main()
