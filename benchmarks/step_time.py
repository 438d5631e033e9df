"""A training step of every method, each in a fresh process.

    python benchmarks/step_time.py [num_classes]
    python benchmarks/step_time.py exact [num_classes]
    python benchmarks/step_time.py growth [num_classes ...]
    python benchmarks/step_time.py projected [num_classes ...]
    python benchmarks/step_time.py trees [num_classes ...]
    python benchmarks/step_time.py gpu [num_classes]

Batch 256, 128 dimensions, one Dense(128) before the head, 1 % of the classes
active, at least 512. SelectiveSoftmax and LSHSoftmax are means over 1,000
steps, refreshes of the index and all. `exact` are exact losses in float32 and
in `mixed_bfloat16`. `cpu_ms` is the time of all threads together.

`projected`: 2,048-wide features and plain SGD, the head alone. `trees`: counts
fall as 1 / rank, and labels are drawn by them for both trees.

`gpu`: inside TensorFlow. Four random batches lie on the GPU and take turns. A
time is the mean over ten steps, with the loss read at the end; the median of
three is given. Memory is the peak of TensorFlow's allocator, less what it held
before the head was made.
"""

import sys

import figure_style
import keras
import measure
import numpy as np
import tensorflow as tf

import tfxclass
from tfxclass import layers

BATCH, DIM = 256, 128
WITH_INDEX = (
    "selective_lazy_adam",
    "lsh_simhash_lazy_adam",
    "lsh_dwta_lazy_adam",
)
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
#: Methods of the figure, what it calls them, and their colors.
GROWTH = {
    "keras_dense_adam": ("Keras Dense, Adam", "dimgray"),
    "tf_sampled_softmax_adam": ("tf.nn.sampled_softmax_loss, Adam", "tab:red"),
    "tf_sampled_softmax_sgd": ("tf.nn.sampled_softmax_loss, SGD", "tab:purple"),
    "sampled_head_adam": ("tfxclass SampledSoftmax, HeadAdam", "tab:orange"),
}
TREE_SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000)
SIZES = (*TREE_SIZES[:-1], 3_000_000, 10_000_000)
#: The kind of measurement, the name of the results, sizes and methods.
PARTS = {
    "large": ("methods", "step_time_large", [670_091], METHODS),
    "exact": ("methods", "exact_step", [670_091], EXACT),
    "growth": ("methods", "growth", SIZES, GROWTH),
    "projected": (
        "projected",
        "projected_steps",
        (100_000, 670_091, 1_000_000),
        ("full", "RP", "RP + sampled"),
    ),
}
# Methods that update all class vectors stop earlier in `growth`: a step takes
# seconds, and Adam's dense gradients do not fit into 24 GB.
MOST = {"keras_dense_adam": 1_000_000, "tf_sampled_softmax_adam": 3_000_000}
# Mean over this many steps, where background work must be counted.
LONG_RUN = 1000
ON_GPU = (
    "full_softmax_lazy_adam",
    "full_softmax_bf16_rows_lazy_adam",
    "sampled_uniform_lazy_adam",
    "sampled_auto_lazy_adam",
    "lsh_lazy_adam",
    "selective_lazy_adam",
)
# TensorFlow's bias ends the process where there are 2^31 logits or more.
GPU_BATCHES = {
    2048: ("keras_dense_adam", "keras_dense_adam_xla", *ON_GPU[:3]),
    4096: ON_GPU,
}


def make_optimizer(method):
    rule = method.removesuffix("_bf16")
    if rule.endswith("lazy_adam"):
        return tfxclass.optimizers.LazyAdam(1e-3)
    if rule.endswith("head_adam"):
        return tfxclass.optimizers.HeadAdam()
    if rule.endswith("sgd"):
        return keras.optimizers.SGD(0.1)
    return keras.optimizers.Adam(1e-3)


def make_head(method, num_classes, num_sampled, kernel_dtype="float32"):
    if method.startswith("keras_dense"):
        # With a softmax in the layer Keras takes the logits before it.
        return keras.layers.Dense(num_classes, activation="softmax")
    if method.startswith("full"):
        given = num_classes, "kept" in method
        return layers.FullSoftmax(*given, kernel_dtype=kernel_dtype)
    if method.startswith("sampled"):
        sampler = "uniform" if "uniform" in method else "auto"
        return layers.SampledSoftmax(num_classes, num_sampled, sampler)
    if method.startswith("lsh"):
        samplers = tfxclass.samplers
        family = "dwta" if "dwta" in method else "simhash"
        tables = samplers.LSHTables(hash_family=family)
        sampler = samplers.LSHSampler(num_sampled, tables)
        return layers.LSHSoftmax(num_classes, sampler=sampler)
    return layers.SelectiveSoftmax(num_classes, num_sampled=num_sampled)


def make_model(head, optimizer, dim=DIM, dense=True):
    """A compiled model of a head, with a dense layer before it or without."""
    before = [keras.layers.Dense(dim)] if dense else []
    model = keras.Sequential([keras.Input([dim]), *before, head])
    loss = getattr(head, "loss", "sparse_categorical_crossentropy")
    model.compile(optimizer, loss=loss, jit_compile=False)
    optimizer.build(model.trainable_variables)
    return model


def random_batch(num_classes, batch=BATCH, dim=DIM):
    x = tf.random.normal([batch, dim])
    return x, tf.random.uniform([batch], 0, num_classes, tf.int64)


def tf_sampled_step(num_classes, num_sampled, optimizer, x, y):
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
    is_half = method.endswith("_bf16")
    policy = "mixed_bfloat16" if is_half else "float32"
    keras.mixed_precision.set_dtype_policy(policy)
    optimizer = make_optimizer(method)
    # Room for the labels of a batch, which are always among the classes.
    num_sampled = max(num_classes // 100, 2 * BATCH)
    x, y = random_batch(num_classes)
    if method.startswith("tf_sampled"):
        return tf_sampled_step(num_classes, num_sampled, optimizer, x, y)
    head = make_head(method, num_classes, num_sampled)
    model = make_model(head, optimizer)
    return tf.function(lambda: model.train_step((x, y)))


def of_methods(num_classes, method):
    step = make_step(method, num_classes)
    if method in WITH_INDEX:
        step()
        alone = measure.median_ms(step, 20)["median_ms"]
        mean, _ = measure.mean_ms(step, LONG_RUN)
        found = {"median_ms": mean, "step_alone_ms": alone}
    else:
        repeats = 7 if num_classes > 300_000 else 15
        step(), step()
        with measure.Stopwatch() as clock:
            found = measure.median_ms(step, repeats, warmup=0)
        found["cpu_ms"] = 1e3 * clock.cpu / repeats
    return {**found, "peak_gb": measure.peak_gb()}


def projected(num_classes, method):
    """The row of a projected head, or of the full softmax."""
    dim, optimizer = 2048, tfxclass.optimizers.LazySGD(0.1)
    # Initializers that draw would need the class matrix three times.
    options = {"seed": 0, "kernel_initializer": "zeros"}
    if method == "full":
        head = layers.FullSoftmax(num_classes, **options)
    else:
        if method == "RP + sampled":
            options["sampler"] = "uniform"
            options["num_sampled"] = num_classes // 100
        head = layers.ProjectedSoftmax(num_classes, 100, **options)
    model = make_model(head, optimizer, dim, dense=False)
    x, y = random_batch(num_classes, dim=dim)
    step = tf.function(lambda: model.train_step((x, y)))
    repeats = 20 if method == "RP + sampled" else 3
    found = measure.median_ms(step, repeats, warmup=1)
    estimate = tfxclass.estimate(head, dim, BATCH, optimizer)
    return {
        **found,
        "peak_gb": measure.peak_gb(),
        "estimated_gb": estimate.total_bytes / 1e9,
    }


def of_tree(tree, num_classes):
    counts = 1e8 / np.arange(1, num_classes + 1)
    random = np.random.default_rng(0)
    labels = random.choice(num_classes, BATCH, p=counts / counts.sum())
    if tree == "huffman":
        head = layers.HierarchicalSoftmax(num_classes, counts=counts)
    else:
        head = layers.HierarchicalSoftmax(num_classes, tree)
    model = make_model(head, tfxclass.optimizers.LazyAdam(1e-3))
    x, y = tf.random.normal([BATCH, DIM]), tf.constant(labels)
    step = tf.function(lambda: model.train_step((x, y)))
    found = measure.median_ms(step, 40, warmup=5)
    path = float(head.tree.depths()[labels].mean())
    return {"path": path, **found, "peak_gb": measure.peak_gb()}


def on_gpu(num_classes, batch, method):
    """The row of a method, with the name of the GPU."""
    repeats, steps = 3, 10
    memory = tf.config.experimental
    before = memory.get_memory_info("GPU:0")["current"]
    memory.reset_memory_stats("GPU:0")
    dtype = "bfloat16" if "bf16_rows" in method else "float32"
    head = make_head(method, num_classes, num_classes // 100, dtype)
    model = make_model(head, make_optimizer(method))
    batches = [random_batch(num_classes, batch) for _ in range(4)]
    found, clock = {}, measure.Stopwatch()
    if hasattr(head, "rebuild"):
        with clock:
            head.sampler.rebuild(head.kernel)
        found["build_seconds"] = clock.wall

    @tf.function(jit_compile=method.endswith("xla"))
    def train(x, y):
        return model.train_step((x, y))["loss"]

    def run():
        for i in range(steps):
            loss = train(*batches[i % 4])
        float(loss)

    medians = measure.median_ms(run, repeats, warmup=1)
    gpu = tf.config.list_physical_devices("GPU")[0]
    peak = memory.get_memory_info("GPU:0")["peak"]
    return {
        **{key: value / steps for key, value in medians.items()},
        "peak_gb": (peak - before) / 1e9,
        "rows_on": head.weights[0].value.device.split(":")[-2],
        **found,
        "machine": memory.get_device_details(gpu)["device_name"],
    }


KINDS = {
    "methods": of_methods,
    "projected": projected,
    "trees": of_tree,
    "gpu": on_gpu,
}


def child(kind, *case):
    keras.utils.set_random_seed(0)
    return KINDS[kind](*case)


def draw_growth(rows):
    """results/growth.png; its title states the conclusion."""
    times = {(row["method"], row["classes"]): row["median_ms"] for row in rows}
    most = max(size for name, size in times if name == "keras_dense_adam")
    ratio = times["keras_dense_adam", most] / times["sampled_head_adam", most]
    lines = []
    for method, (label, color) in GROWTH.items():
        own = [size for name, size in times if name == method]
        style = {"marker": "o", "label": label, "color": color}
        lines.append((own, [times[method, size] for size in own], style))
    figure_style.curves(
        lines,
        measure.result_path("growth.png"),
        f"{most:,} classes: a step with Keras Dense takes {ratio:.0f} times as "
        "long as with SampledSoftmax",
        xlabel="number of classes",
        ylabel="ms per step",
        ylim=(None, 1e6),  # room for the legend
    )


def cases_of(part):
    """The kind, the name of the results, and the cases of a part."""
    if part == "trees":
        trees, sizes = ("huffman", "balanced"), measure.numbers(*TREE_SIZES)
        cases = measure.cases(tree=trees, classes=sizes)
        return "trees", "hierarchical/step_time", cases
    if part == "gpu":
        cases = [
            {"classes": size, "batch": batch, "method": method}
            for size in measure.numbers(1_000_000)
            for batch, methods in GPU_BATCHES.items()
            for method in methods
        ]
        return "gpu", "gpu_steps", cases
    kind, name, sizes, methods = PARTS.get(part, PARTS["large"])
    most = MOST if part == "growth" else {}
    cases = [
        {"classes": size, "method": method}
        for size in measure.numbers(*sizes)
        for method in methods
        if size <= most.get(method, size)
    ]
    return kind, name, cases


def main(part):
    """Measures a part; saves the rows after each case."""
    kind, name, cases = cases_of(part)
    rows, told, full = [], {}, {}
    for case in cases:
        row = {**case, **measure.ask(kind, *case.values())}
        if gpu := row.pop("machine", None):
            told = {"machine": gpu}
        if kind == "projected" and "median_ms" in row:
            of_full = full.setdefault(case["classes"], row["median_ms"])
            row["faster"] = of_full / row["median_ms"]
        rows.append(row)
        measure.save(name, rows, **told)
    if name == "growth":
        draw_growth(rows)


if __name__ == "__main__":
    measure.run_child(child)
    main(sys.argv[1] if sys.argv[1:] else "")
