"""TensorFlow Addons' parts and ours: the same work, times and results.

Runs in either environment, and takes what it finds there: first that of
`requirements.txt` (`make peers`), then ours, which compares.

    .peers/bin/python benchmarks/peers/side_by_side.py build/addons.npz
    .venv/bin/python benchmarks/peers/side_by_side.py build/addons.npz

A line each: processor milliseconds of a call (of all threads, the median of 15)
and, in the second run, the largest difference from Addons' results.
"""

import os
import sys
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")

import tensorflow as tf  # noqa: E402

try:
    import tensorflow_addons as tfa
except ImportError:
    tfa = None
    import keras

    import tfxclass
else:
    keras = tf.keras

CALLS, STEPS = 15, 10
ROWS, DIM, TOUCHED = 200_000, 64, 2_000
BATCH, CLASSES, LABELS, WORDS = 256, 20_000, 5, 100


def floats(*shape, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=shape).astype(np.float32)


def ids(count, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, count, shape)


def lazy_adam():
    """A step on 2,000 rows of 200,000 x 64."""
    optimizers = tfxclass.optimizers if tfa is None else tfa.optimizers
    optimizer = optimizers.LazyAdam(0.01)
    variable = tf.Variable(floats(ROWS, DIM))
    rows = ids(ROWS, TOUCHED)
    if tfa is None:
        variable = keras.Variable(variable)
        optimizer.build([variable])

    @tf.function
    def step():
        slices = tf.IndexedSlices(floats(TOUCHED, DIM), rows, [ROWS, DIM])
        optimizer.apply_gradients([(slices, variable)])

    return step, lambda: np.asarray(variable)[rows]


def sparsemax():
    """Of [256, 2,000] logits, and the gradient of a weighted sum."""
    module = tfxclass.losses if tfa is None else tfa.activations
    logits = tf.constant(floats(BATCH, 2_000))
    weights = tf.constant(floats(BATCH, 2_000, seed=1))

    @tf.function
    def call():
        with tf.GradientTape() as tape:
            tape.watch(logits)
            found = module.sparsemax(logits)
            total = tf.reduce_sum(found * weights)
        return tf.stack([found, tape.gradient(total, logits)])

    return call, lambda: call().numpy()


def moving_average():
    """A step of SGD on 5 million dense weights, and of their average."""
    variable = tf.Variable(floats(5_000, 1_000))
    gradient = tf.constant(floats(5_000, 1_000, seed=1))
    if tfa is None:
        variable = keras.Variable(variable)
        optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.99)
        optimizer.build([variable])
    else:
        inner = keras.optimizers.legacy.SGD(0.1)
        # Keras' average begins with the weights after the first step.
        optimizer = tfa.optimizers.MovingAverage(inner, 0.99, start_step=1)

    @tf.function
    def step():
        optimizer.apply_gradients([(gradient, variable)])

    def average():
        if tfa is None:
            optimizer.finalize_variable_values([variable])
        else:
            optimizer.assign_average_vars([variable])
        return np.asarray(variable)[:100]

    return step, average


def f1():
    """Micro-F1 of 256 rows of 64 features, 20,000 independent classes.

    Logits deviate by 1; about ten of a row reach the threshold.
    """
    features, kernel = floats(BATCH, DIM), floats(CLASSES, DIM, seed=1) / 8
    labels = ids(CLASSES, BATCH, LABELS)
    labels[:, 0] = (features @ kernel.T).argmax(axis=1)
    if tfa is None:
        head = tfxclass.layers.FullSoftmax(CLASSES, loss="sigmoid")
        head.build((None, DIM))
        head.kernel.assign(kernel)
        metric = tfxclass.metrics.F1Score(head, threshold=0.9644)

        @tf.function
        def call(labels):
            metric.update_state(labels, head(features, training=False))

        return lambda: call(tf.constant(labels)), metric.result
    metric = tfa.metrics.F1Score(CLASSES, "micro", threshold=0.9644)

    @tf.function
    def call(labels):
        found = tf.sigmoid(tf.matmul(features, kernel, transpose_b=True))
        wanted = tf.reduce_max(tf.one_hot(labels, CLASSES), axis=1)
        metric.update_state(wanted, found)

    return lambda: call(tf.constant(labels)), metric.result


def embedding_bag():
    """Weighted sums of 100 of 200,000 rows for 256 rows, and the gradient.

    Addons' op does not load with `tensorflow-cpu` (it looks for CUDA's
    runtime): in its place, TensorFlow's gather and sum.
    """
    words = tf.constant(ids(ROWS, BATCH, WORDS))
    weights = tf.constant(np.abs(floats(BATCH, WORDS)))
    upstream = tf.constant(floats(BATCH, DIM, seed=1))
    if tfa is None:
        bag = tfxclass.layers.SparseDense(ROWS, DIM, use_bias=False)
        bag(words, weights)
        variable = bag.kernel.value
    else:
        variable = tf.Variable(np.zeros([ROWS, DIM], np.float32))

        def bag(words, weights):
            found = tf.gather(variable, words)
            return tf.reduce_sum(found * weights[..., tf.newaxis], axis=1)

    variable.assign(floats(ROWS, DIM))

    @tf.function
    def call():
        with tf.GradientTape() as tape:
            found = bag(words, weights)
            total = tf.reduce_sum(found * upstream)
        gradient = tape.gradient(total, variable)
        return found, gradient.values, gradient.indices

    def results():
        found, values, indices = call()
        rows = tf.math.unsorted_segment_sum(values, indices, ROWS)
        return np.concatenate([found.numpy(), rows[:1_000].numpy()])

    return call, results


PARTS = {
    "LazyAdam": lazy_adam,
    "sparsemax": sparsemax,
    "MovingAverage": moving_average,
    "F1": f1,
    "EmbeddingBag": embedding_bag,
}


def milliseconds(call):
    times = []
    for _ in range(CALLS):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return 1e3 * np.median(times)


def main(path):
    theirs = dict(np.load(path)) if tfa is None else {}
    found = {}
    for name, make in PARTS.items():
        call, result = make()
        # Results first: of the same number of steps.
        for _ in range(STEPS):
            call()
        found[name] = np.asarray(result(), np.float64)
        line = f"{name:14}{milliseconds(call):10.2f} ms"
        if name in theirs:
            difference = np.max(np.abs(found[name] - theirs[name]))
            size = np.max(np.abs(theirs[name]))
            line += f"   difference {difference:.1e} of {size:.3g}"
        print(line, flush=True)
    if tfa is not None:
        np.savez_compressed(path, **found)


if __name__ == "__main__":
    main(sys.argv[1])
