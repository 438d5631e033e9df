"""A training step of every method, each in a fresh process.

    python benchmarks/step_time.py [num_classes]
    python benchmarks/step_time.py exact [num_classes]
    python benchmarks/step_time.py growth [num_classes ...]
    python benchmarks/step_time.py figure

Batch 256, 128 dimensions, one Dense(128) before the head, 1 % of the classes
active, at least 512. For SelectiveSoftmax the forest (50 trees) is rebuilt in
the background every 500 steps, for LSHSoftmax the tables (50) every 50 steps
at first; their figures are means over 1,000 steps, refreshes and all.

`exact` are exact losses in float32 and in `mixed_bfloat16`. `cpu_ms` is the
time of all threads together: on a machine that others use, too, it says more
than the clock's. `growth` has sizes from 10,000 to 10 million. Methods that
update all class vectors stop earlier: a step of `Dense` takes seconds, and
Adam's dense gradients do not fit into 24 GB. `figure` draws the committed rows
of `growth`.
"""

import os
import sys
import time

import figure_style
import measure

BATCH, DIM = 256, 128
WITH_INDEX = ("selective_lazy_adam", "lsh_simhash_lazy_adam")
WITH_INDEX += ("lsh_dwta_lazy_adam",)
METHODS = (
    "keras_dense_adam",
    "keras_dense_sgd",
    "tf_sampled_softmax_adam",
    "tf_sampled_softmax_sgd",
    "full_softmax_adam",
    "full_softmax_lazy_adam",
    "sampled_uniform_lazy_adam",
    "sampled_head_adam",
    *WITH_INDEX,
)
EXACT = (
    "keras_dense_adam",
    "keras_dense_adam_bf16",
    "full_softmax_adam",
    "full_softmax_lazy_adam",
    "full_softmax_lazy_adam_bf16",
)
#: Methods of the figure, and what it calls them.
GROWTH = {
    "keras_dense_adam": "Keras Dense, Adam",
    "tf_sampled_softmax_adam": "tf.nn.sampled_softmax_loss, Adam",
    "tf_sampled_softmax_sgd": "tf.nn.sampled_softmax_loss, SGD",
    "sampled_head_adam": "tfxclass SampledSoftmax, HeadAdam",
}
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
#: The most classes of a method in `growth`, where that is less.
MOST = {"keras_dense_adam": 1_000_000, "tf_sampled_softmax_adam": 3_000_000}
# Mean over this many steps, where background work must be counted.
LONG_RUN = 1000


def tf_sampled_step(num_classes, num_sampled, optimizer, x, y):
    """A step of `tf.nn.sampled_softmax_loss`."""
    import keras
    import tensorflow as tf

    dense = keras.layers.Dense(DIM)
    dense.build((None, DIM))
    kernel = keras.Variable(
        tf.random.normal([num_classes, DIM], stddev=0.05), name="kernel"
    )
    bias = keras.Variable(tf.zeros([num_classes]), name="bias")
    weights = [*dense.trainable_variables, kernel, bias]
    optimizer.build(weights)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                tf.nn.sampled_softmax_loss(
                    kernel.value,
                    bias.value,
                    y[:, None],
                    dense(x),
                    num_sampled,
                    num_classes,
                )
            )
        optimizer.apply(tape.gradient(loss, weights), weights)
        return loss

    return step


def make_step(method, num_classes):
    """A function that trains one step; "_bf16" is `mixed_bfloat16`."""
    import keras
    import tensorflow as tf

    import tfxclass

    is_half = method.endswith("_bf16")
    policy = "mixed_bfloat16" if is_half else "float32"
    keras.mixed_precision.set_dtype_policy(policy)
    keras.utils.set_random_seed(0)
    rule = method.removesuffix("_bf16")
    if rule.endswith("lazy_adam"):
        optimizer = tfxclass.optimizers.LazyAdam(1e-3)
    elif rule.endswith("head_adam"):
        optimizer = tfxclass.optimizers.HeadAdam()
    elif rule.endswith("sgd"):
        optimizer = keras.optimizers.SGD(0.1)
    else:
        optimizer = keras.optimizers.Adam(1e-3)
    # Room for the labels of a batch, which are always among the classes.
    num_sampled = max(num_classes // 100, 2 * BATCH)
    x = tf.random.normal([BATCH, DIM])
    y = tf.random.uniform([BATCH], 0, num_classes, tf.int64)
    if method.startswith("tf_sampled"):
        return tf_sampled_step(num_classes, num_sampled, optimizer, x, y)
    layers, loss = tfxclass.layers, None
    if method.startswith("keras_dense"):
        head = keras.layers.Dense(num_classes, activation="softmax")
        loss = "sparse_categorical_crossentropy"
    elif method.startswith("full"):
        head = layers.FullSoftmax(num_classes)
    elif method.startswith("sampled"):
        sampler = "uniform" if "uniform" in method else "auto"
        head = layers.SampledSoftmax(num_classes, num_sampled, sampler)
    elif method.startswith("lsh"):
        samplers = tfxclass.samplers
        tables = samplers.LSHTables(hash_family=method.split("_")[1])
        sampler = samplers.LSHSampler(num_sampled, tables)
        head = layers.LSHSoftmax(num_classes, sampler=sampler)
    else:
        head = layers.SelectiveSoftmax(num_classes, num_sampled=num_sampled)
    model = keras.Sequential([keras.layers.Dense(DIM), head])
    model.compile(optimizer, loss=loss or head.loss)
    model.build((BATCH, DIM))
    optimizer.build(model.trainable_variables)
    return tf.function(lambda: model.train_step((x, y)))


def mean_ms(step, steps=LONG_RUN):
    """Mean time of a step in milliseconds, with its background work."""
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - start) * 1e3 / steps


def child(num_classes, method):
    """The row of a method."""
    step = make_step(method, num_classes)
    if method in WITH_INDEX:
        step()
        alone = measure.median_ms(step, 20)["median_ms"]
        found = {"median_ms": mean_ms(step), "step_alone_ms": alone}
    else:
        repeats = 7 if num_classes > 300_000 else 15
        step(), step()
        start = time.process_time()
        found = measure.median_ms(step, repeats, warmup=0)
        found["cpu_ms"] = (time.process_time() - start) * 1e3 / repeats
    return {**found, "peak_gb": measure.peak_gb()}


def draw_figure():
    """results/growth.png; its title states the conclusion."""
    rows = measure.finished("growth")
    times = {(row["method"], row["classes"]): row["median_ms"] for row in rows}
    most = max(size for name, size in times if name == "keras_dense_adam")
    ratio = times["keras_dense_adam", most] / times["sampled_head_adam", most]
    lines = []
    for method, label in GROWTH.items():
        own = [size for name, size in times if name == method]
        style = {"marker": "o", "label": label}
        style["color"] = figure_style.COLORS[method]
        lines.append((own, [times[method, size] for size in own], style))
    figure_style.curves(
        lines,
        os.path.join(measure.RESULTS, "growth.png"),
        f"{most:,} classes: a step with Keras Dense takes {ratio:.0f} times as "
        "long as with SampledSoftmax",
        xlabel="number of classes",
        ylabel="ms per step",
        ylim=(None, 1e6),  # room for the legend
    )


#: The name of the results, the sizes and the methods of a part.
PARTS = {
    "exact": ("exact_step", (670_091,), EXACT),
    "growth": ("growth", SIZES, tuple(GROWTH)),
}


def main():
    """Measures a part, or draws the figure."""
    part = sys.argv[1] if sys.argv[1:] else ""
    if part == "figure":
        return draw_figure()
    name, sizes, methods = PARTS.get(
        part, ("step_time_large", (670_091,), METHODS)
    )
    sizes = measure.numbers(*sizes)
    most = MOST if name == "growth" else {}
    cases = [
        {"classes": size, "method": method}
        for size in sizes
        for method in methods
        if size <= most.get(method, size)
    ]
    measure.compare(name, child, cases)


if __name__ == "__main__":
    main()
