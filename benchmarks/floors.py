"""Training steps and their lower bounds: one run on one machine.

    python benchmarks/floors.py [num_classes]

Run it alone on the machine. A floor has two parts: the time of the products at
the rate of one large product (256 x 128 x 670,091), and the time to move the
bytes at the rate of a copy. Every step reads and writes class vectors,
optimizer state and logits once. `times_floor` is the measured time over the
floor, `times_uniform` over the uniform step of the same run. Methods that keep
an index are means over 1,000 steps with all rebuilds.
"""

import measure
import step_time

CLASSES = measure.numbers(670_091)[0]
SMALL_CLASSES, SMALL_BATCH, SMALL_SAMPLED = 10_000, 128, 228
#: What is measured, and what it is compared with.
METHODS = {
    "sampled": (
        "tf_sampled_softmax_sgd",
        "tf_sampled_softmax_adam",
        "sampled_uniform_lazy_adam",
        "sampled_auto_lazy_adam",
        *step_time.WITH_INDEX,
    ),
    "exact": (
        "keras_dense_adam",
        "full_softmax_lazy_adam",
        "full_softmax_lazy_adam_bf16",
    ),
    "small": ("small_uniform", "small_auto"),
}


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
    """A step without an encoder."""
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


def child(classes, work, method):
    """The time and memory of a method, or the rates of the machine."""
    if method == "rates":
        return rates()
    if work == "exact":
        return step_time.child(classes, method)
    if work == "small":
        step = small_step(method.removeprefix("small_"))
        found = measure.median_ms(step, 2000, warmup=200)
    else:
        step = step_time.make_step(method, classes)
        if method in (*step_time.WITH_INDEX, "sampled_auto_lazy_adam"):
            step()
            found = {"median_ms": step_time.mean_ms(step)}
        else:
            repeats = 20 if method.endswith("softmax_adam") else 200
            found = measure.median_ms(step, repeats, warmup=20)
    return {**found, "peak_gb": measure.peak_gb()}


def main():
    """Measures the machine and all methods, and saves times over floors."""
    cases = [
        {"classes": CLASSES, "work": work, "method": method}
        for work, methods in {"this machine": ("rates",), **METHODS}.items()
        for method in methods
    ]
    *_, (machine, *rows) = measure.rows_of(child, cases)
    batch, dim = step_time.BATCH, step_time.DIM
    floors = {
        "sampled": floor_ms(machine, batch, dim, CLASSES // 100),
        "exact": floor_ms(machine, batch, dim, CLASSES),
        "small": floor_ms(machine, SMALL_BATCH, dim, SMALL_SAMPLED),
    }
    uniform = {
        row["work"]: row["median_ms"]
        for row in rows
        if "uniform" in row["method"]
    }
    table = []
    for row in rows:
        work, ms = row["work"], row["median_ms"]
        line = {"work": work, "method": row["method"], "ms": ms}
        line["floor_ms"] = floors[work]
        line["times_floor"] = ms / floors[work]
        line["times_uniform"] = ms / uniform[work] if work in uniform else ""
        table.append({**line, "peak_gb": row["peak_gb"]})
    of_machine = {key: machine[key] for key in ("work", "gflops", "gb_s")}
    measure.save("floors", [*table, of_machine])


if __name__ == "__main__":
    main()
