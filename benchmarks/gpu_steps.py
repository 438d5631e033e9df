"""A training step on a GPU, of each head, inside TensorFlow.

    python benchmarks/gpu_steps.py [num_classes]

Batch 4,096, 128 dimensions, one Dense(128) before the head, 1 % of the classes
sampled. Four random batches lie on the GPU and take turns. A time is the mean
over ten steps with the loss read at the end; the median of three is given, with
the least and the greatest. Memory is the peak of TensorFlow's allocator over
what it held before the head was made. float32 products are TF32, TensorFlow's
default. SelectiveSoftmax and LSHSoftmax build their index first
(`build_seconds`); no refresh falls into the timed steps.
"""

import gc
import sys
import time

import measure

BATCH, DIM, STEPS, REPEATS = 4096, 128, 10, 3
METHODS = (
    "keras_dense_adam",
    "keras_dense_adam_xla",
    "full_softmax_lazy_adam",
    "full_softmax_lazy_adam_bf16",
    "sampled_uniform_lazy_adam",
    "sampled_auto_lazy_adam",
    "lsh_lazy_adam",
    "selective_lazy_adam",
)


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
    import tensorflow as tf

    return tf.config.experimental.get_memory_info("GPU:0")[key] / 1e9


def run(method, num_classes):
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(0)
    before = allocated("current")
    tf.config.experimental.reset_memory_stats("GPU:0")
    model, head = make_model(method, num_classes)
    xs = [tf.random.normal([BATCH, DIM]) for _ in range(4)]
    ys = [
        tf.random.uniform([BATCH], 0, num_classes, tf.int64) for _ in range(4)
    ]
    found = {}
    if hasattr(head, "rebuild"):
        start = time.perf_counter()
        head.rebuild()
        found["build_seconds"] = time.perf_counter() - start

    @tf.function(jit_compile=method.endswith("xla"))
    def train(x, y):
        return model.train_step((x, y))["loss"]

    def steps():
        for i in range(STEPS):
            loss = train(xs[i % 4], ys[i % 4])
        float(loss)

    medians = measure.median_ms(steps, REPEATS, warmup=1)
    return {
        **{key: value / STEPS for key, value in medians.items()},
        "peak_gb": allocated("peak") - before,
        "rows_on": head.weights[0].value.device.split(":")[-2],
        **found,
    }


def main(num_classes, methods):
    import keras
    import tensorflow as tf

    card = tf.config.experimental.get_device_details(
        tf.config.list_physical_devices("GPU")[0]
    )["device_name"]
    rows = []
    for method in methods:
        try:
            found = run(method, num_classes)
        except Exception as e:  # the next may do with less memory
            found = {"error": f"{type(e).__name__}: {str(e)[:200]}"}
        rows.append({"classes": num_classes, "method": method, **found})
        measure.save("gpu_steps", rows, machine=card)
        print(rows[-1], flush=True)
        keras.utils.clear_session()
        gc.collect()


if __name__ == "__main__":
    named = sys.argv[2:] or METHODS
    main(int(sys.argv[1]) if sys.argv[1:] else 1_000_000, named)
