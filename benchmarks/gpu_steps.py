"""A training step on a GPU, of each head, inside TensorFlow.

    python benchmarks/gpu_steps.py [num_classes]

128 dimensions, one Dense(128) before the head, 1 % of the classes sampled. Four
random batches lie on the GPU and take turns. A time is the mean over ten steps,
with the loss read at the end; the median of three is given, with the least and
the greatest. Memory is the peak of TensorFlow's allocator, less what it held
before the head was made. Each method runs in a fresh process.
"""

import time

import measure

DIM, STEPS, REPEATS = 128, 10, 3
OURS = (
    "full_softmax_lazy_adam",
    "full_softmax_lazy_adam_bf16",
    "sampled_uniform_lazy_adam",
    "sampled_auto_lazy_adam",
    "lsh_lazy_adam",
    "selective_lazy_adam",
)
# TensorFlow's bias ends the process where there are 2^31 logits or more.
METHODS = {
    2048: ("keras_dense_adam", "keras_dense_adam_xla", *OURS[:3]),
    4096: OURS,
}


def make_model(method, num_classes):
    import keras

    import tfxclass

    layers, num_sampled = tfxclass.layers, num_classes // 100
    adam, loss = tfxclass.optimizers.LazyAdam(1e-3), None
    if method.startswith("keras_dense"):
        # With a softmax in the layer Keras takes the logits before it.
        head = keras.layers.Dense(num_classes, activation="softmax")
        adam = keras.optimizers.Adam(1e-3)
        loss = "sparse_categorical_crossentropy"
    elif method.startswith("full"):
        dtype = "bfloat16" if method.endswith("bf16") else "float32"
        head = layers.FullSoftmax(num_classes, kernel_dtype=dtype)
    elif method.startswith("sampled"):
        sampler = method.split("_")[1]
        head = layers.SampledSoftmax(num_classes, num_sampled, sampler=sampler)
    elif method.startswith("lsh"):
        head = layers.LSHSoftmax(num_classes, num_sampled)
    else:
        head = layers.SelectiveSoftmax(num_classes, num_sampled)
    model = keras.Sequential(
        [keras.Input((DIM,)), keras.layers.Dense(DIM), head]
    )
    model.compile(adam, loss=loss or head.loss, jit_compile=False)
    adam.build(model.trainable_variables)
    return model, head


def allocated(key):
    """Gigabytes of TensorFlow's allocator, "current" or "peak"."""
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")[key] / 1e9


def child(num_classes, batch, method):
    """The row of a method, with the name of the GPU."""
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    before = allocated("current")
    tf.config.experimental.reset_memory_stats("GPU:0")
    model, head = make_model(method, num_classes)
    batches = [
        (
            tf.random.normal([batch, DIM]),
            tf.random.uniform([batch], 0, num_classes, tf.int64),
        )
        for _ in range(4)
    ]
    found = {}
    if hasattr(head, "rebuild"):
        start = time.perf_counter()
        head.sampler.rebuild(head.kernel)
        found["build_seconds"] = time.perf_counter() - start

    @tf.function(jit_compile=method.endswith("xla"))
    def train(x, y):
        return model.train_step((x, y))["loss"]

    def steps():
        for i in range(STEPS):
            loss = train(*batches[i % 4])
        float(loss)

    medians = measure.median_ms(steps, REPEATS, warmup=1)
    gpu = tf.config.list_physical_devices("GPU")[0]
    about = tf.config.experimental.get_device_details(gpu)
    return {
        **{key: value / STEPS for key, value in medians.items()},
        "peak_gb": allocated("peak") - before,
        "rows_on": head.weights[0].value.device.split(":")[-2],
        **found,
        "machine": about["device_name"],
    }


def main():
    """Saves the rows, with the GPU in place of the processor."""
    measure.run_child(child)
    (num_classes,) = measure.numbers(1_000_000)
    rows, gpu = [], None
    for batch, methods in METHODS.items():
        for method in methods:
            found = measure.ask(num_classes, batch, method)
            gpu = found.pop("machine", gpu)
            case = {"classes": num_classes, "batch": batch, "method": method}
            rows.append({**case, **found})
            measure.save("gpu_steps", rows, machine=gpu)


if __name__ == "__main__":
    main()
