"""A training step of every method, each in a fresh process.

    python benchmarks/step_time.py [num_classes ...]

Batch 256, 128 dimensions, one Dense(128) before the head, 1 % of the classes
active, at least 512. For SelectiveSoftmax the forest (50 trees) is rebuilt in
the background every 500 steps, for LSHSoftmax the tables (50) every 50 steps
at first; their figures are means over 1,000 steps, refreshes and all.
"""

import json
import sys
import time

import measure

BATCH, DIM = 256, 128
METHODS = (
    "keras_dense_adam",
    "keras_dense_sgd",
    "tf_sampled_softmax_adam",
    "tf_sampled_softmax_sgd",
    "full_softmax_adam",
    "full_softmax_lazy_adam",
    "sampled_uniform_lazy_adam",
    "sampled_head_adam",
    "selective_lazy_adam",
    "lsh_simhash_lazy_adam",
    "lsh_dwta_lazy_adam",
)
WITH_INDEX = METHODS[-3:]
# Mean over this many steps, where background work must be counted.
LONG_RUN = 1000


def tf_sampled_step(num_classes, num_sampled, optimizer, x, y):
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


def head_step(head, optimizer, x, y, loss=None):
    import keras
    import tensorflow as tf

    model = keras.Sequential([keras.layers.Dense(DIM), head])
    model.compile(optimizer, loss=loss or head.loss)
    model.build((BATCH, DIM))
    optimizer.build(model.trainable_variables)
    step = tf.function(lambda: model.train_step((x, y)))
    return step


def make_step(method, num_classes):
    import keras
    import tensorflow as tf

    import tfxclass

    keras.utils.set_random_seed(0)
    layers, lazy = tfxclass.layers, tfxclass.optimizers.LazyAdam
    # Room for the labels of a batch, which are always among the classes.
    num_sampled = max(num_classes // 100, 2 * BATCH)
    x = tf.random.normal([BATCH, DIM])
    y = tf.random.uniform([BATCH], 0, num_classes, tf.int64)
    adam, sgd = keras.optimizers.Adam, keras.optimizers.SGD
    if method.startswith("keras_dense"):
        head = keras.layers.Dense(num_classes, activation="softmax")
        optimizer = adam(1e-3) if method.endswith("adam") else sgd(0.1)
        loss = "sparse_categorical_crossentropy"
        return head_step(head, optimizer, x, y, loss)
    if method.startswith("tf_sampled"):
        optimizer = adam(1e-3) if method.endswith("adam") else sgd(0.1)
        return tf_sampled_step(num_classes, num_sampled, optimizer, x, y)
    if method == "full_softmax_adam":
        return head_step(layers.FullSoftmax(num_classes), adam(1e-3), x, y)
    if method == "full_softmax_lazy_adam":
        return head_step(layers.FullSoftmax(num_classes), lazy(1e-3), x, y)
    if method == "sampled_uniform_lazy_adam":
        head = layers.SampledSoftmax(num_classes, num_sampled, "uniform")
        return head_step(head, lazy(1e-3), x, y)
    if method == "sampled_head_adam":
        head = layers.SampledSoftmax(num_classes, num_sampled)
        return head_step(head, tfxclass.optimizers.HeadAdam(), x, y)
    if method.startswith("lsh"):
        hash = method.split("_")[1]
        head = layers.LSHSoftmax(
            num_classes, num_sampled, sampler_options={"hash_family": hash}
        )
    else:
        head = layers.SelectiveSoftmax(num_classes, num_sampled=num_sampled)
    return head_step(head, lazy(1e-3), x, y)


def child(method, num_classes):
    step = make_step(method, num_classes)
    if method in WITH_INDEX:
        step()
        result = measure.median_ms(step, 20)
        start = time.perf_counter()
        for _ in range(LONG_RUN):
            step()
        mean = (time.perf_counter() - start) * 1e3 / LONG_RUN
        result = {"median_ms": mean, "step_alone_ms": result["median_ms"]}
    else:
        result = measure.median_ms(step, 7 if num_classes > 300_000 else 15)
    return {"median_ms": result["median_ms"], **result}


def main(sizes):
    rows = []
    for num_classes in sizes:
        for method in METHODS:
            result = measure.in_fresh_process(
                __file__, "--child", method, num_classes
            )
            rows.append({"classes": num_classes, "method": method, **result})
            print(rows[-1], flush=True)
    measure.save("step_time", rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        found = child(sys.argv[2], int(sys.argv[3]))
        print(json.dumps({**found, "peak_gb": measure.peak_gb()}))
    else:
        main([int(n) for n in sys.argv[1:]] or [10_000, 100_000, 670_091])
