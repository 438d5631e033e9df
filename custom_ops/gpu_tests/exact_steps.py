"""Times exact training steps at several widths on this machine's GPU.

`python -m custom_ops.gpu_tests.exact_steps [classes] [batch]` needs the ops,
built for GPUs. It prints a Markdown table: milliseconds of a step, the lower
bound that docs/exact.md explains, and the peak of TensorFlow's memory. It takes
two minutes.
"""

import sys
import time

import keras
import tensorflow as tf

import tfxclass

WIDTHS = (128, 768, 2048)
# An H200's operations and bytes a second.
TF32, BF16, MEMORY = 400e12, 790e12, 4.8e12
STEPS = 10


def bound_ms(classes, batch, dim, is_half):
    """The four products, the kernels between them, and Adam."""
    logits = batch * classes

    def product(rate, bytes_of_logit):
        return max(2 * logits * dim / rate, logits * bytes_of_logit / MEMORY)

    later = product(BF16, 2) if is_half else product(TF32, 4)
    between = logits * (16 if is_half else 20) / MEMORY
    adam = classes * dim * (20 if is_half else 24) / MEMORY
    return 1e3 * (2 * product(TF32, 4) + 2 * later + between + adam)


def make_head(method, classes):
    if method == "Keras Dense, XLA":
        return keras.layers.Dense(classes, activation="softmax", use_bias=False)
    dtype = "bfloat16" if "bfloat16" in method else "float32"
    return tfxclass.layers.FullSoftmax(classes, kernel_dtype=dtype)


def measure(method, classes, batch, dim):
    """`(ms a step, peak GB)`."""
    memory = tf.config.experimental
    before = memory.get_memory_info("GPU:0")["current"]
    memory.reset_memory_stats("GPU:0")
    head = make_head(method, classes)
    model = keras.Sequential(
        [keras.Input((dim,)), keras.layers.Dense(dim), head]
    )
    is_keras = method.startswith("Keras")
    model.compile(
        keras.optimizers.Adam() if is_keras else tfxclass.optimizers.LazyAdam(),
        loss="sparse_categorical_crossentropy" if is_keras else head.loss,
    )
    x = tf.random.normal([batch, dim])
    y = tf.random.uniform([batch], maxval=classes, dtype=tf.int64)

    @tf.function(jit_compile=is_keras)
    def train():
        return model.train_step((x, y))["loss"]

    times = []
    for _ in range(4):
        start = time.perf_counter()
        for _ in range(STEPS):
            loss = train()
        float(loss)
        times.append(time.perf_counter() - start)
    peak = memory.get_memory_info("GPU:0")["peak"]
    # The first round builds the graph.
    return 1e3 * sorted(times[1:])[1] / STEPS, (peak - before) / 1e9


def main(classes=1_000_000, batch=2048):
    if not tf.config.list_physical_devices("GPU"):
        sys.exit("There is no GPU here.")
    print(f"{classes:,} classes, batch {batch:,}\n")
    print("| dimensions | method | ms | bound, ms | peak GB |")
    print("| --- | --- | --- | --- | --- |")
    for dim in WIDTHS:
        for method in (
            "FullSoftmax, float32",
            "FullSoftmax, bfloat16",
            "Keras Dense, XLA",
        ):
            bound = bound_ms(classes, batch, dim, "bfloat16" in method)
            try:
                ms, peak = measure(method, classes, batch, dim)
            except tf.errors.OpError as e:
                print(f"| {dim} | {method} | {type(e).__name__} | | |")
                continue
            shown = "" if method.startswith("Keras") else f"{bound:.1f}"
            print(f"| {dim} | {method} | {ms:.1f} | {shown} | {peak:.1f} |")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
