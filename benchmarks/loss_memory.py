"""Memory and time of the exact loss and its gradient, without an optimizer.

    python benchmarks/loss_memory.py [num_classes]

Batch 256, 128 dimensions; each method in a fresh process. `activation_mb` is
the growth of the peak resident memory over the class matrix, less the gradient
of the class matrix, which any exact loss makes.
"""

import measure

BATCH, DIM = 256, 128


def child(num_classes, method):
    """The row of "dense" or "tfxclass"."""
    import keras
    import tensorflow as tf

    from tfxclass.losses import as_targets
    from tfxclass.losses import linear_cross_entropy

    # Of unknown shape, so that no initial value is a constant in memory.
    kernel = tf.Variable(tf.zeros([1, DIM]), shape=[None, DIM])
    kernel.assign(tf.fill([num_classes, DIM], 0.01))
    x = tf.random.normal([BATCH, DIM])
    y = tf.random.uniform([BATCH], 0, num_classes, tf.int64)

    def losses():
        if method == "dense":
            logits = tf.matmul(x, kernel, transpose_b=True)
            return keras.losses.sparse_categorical_crossentropy(
                y, tf.nn.softmax(logits)
            )
        rows = tf.convert_to_tensor(kernel)
        return linear_cross_entropy(x, rows, as_targets(y, num_classes))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(losses())
        return tape.gradient(loss, kernel)[0, 0]

    before = measure.peak_gb()
    timed = measure.median_ms(step, 5, warmup=1)
    gradient = num_classes * DIM * 4 / 1e6
    grown = (measure.peak_gb() - before) * 1e3
    return {"median_ms": timed["median_ms"], "activation_mb": grown - gradient}


if __name__ == "__main__":
    measure.compare(
        "loss_memory",
        child,
        [
            {"classes": size, "method": method}
            for size in measure.numbers(670_091)
            for method in ("dense", "tfxclass")
        ],
    )
