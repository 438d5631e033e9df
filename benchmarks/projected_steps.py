"""A training step with 2,048-wide features: full, projected, and sampled.

    python benchmarks/projected_steps.py [num_classes ...]

Batch 256, plain SGD throughout (a million rows of 2,048 floats and Adam's slots
would be 25 GB), the head alone; each in a fresh process. RP: 100 wide.
RP + sampled: 1 % of the classes. The estimate is `tfxclass.estimate`'s.
"""

import measure

BATCH, DIM, PROJECTION_DIM = 256, 2048, 100
METHODS = ("full", "RP", "RP + sampled")


def make_head(method, num_classes):
    from tfxclass import layers

    # Initializers that draw would need the class matrix three times.
    options = {"seed": 0, "kernel_initializer": "zeros"}
    if method == "full":
        return layers.FullSoftmax(num_classes, **options)
    if method == "RP + sampled":
        options["sampler"] = "uniform"
        options["num_sampled"] = num_classes // 100
    return layers.ProjectedSoftmax(num_classes, PROJECTION_DIM, **options)


def child(method, num_classes):
    import keras
    import tensorflow as tf

    import tfxclass

    keras.utils.set_random_seed(0)
    head = make_head(method, num_classes)
    optimizer = tfxclass.optimizers.LazySGD(0.1)
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(optimizer, loss=head.loss)
    optimizer.build(model.trainable_variables)
    x = tf.random.normal([BATCH, DIM])
    y = tf.random.uniform([BATCH], 0, num_classes, tf.int64)
    step = tf.function(lambda: model.train_step((x, y)))
    repeats = 20 if method == "RP + sampled" else 3
    found = measure.median_ms(step, repeats, warmup=1)
    estimate = tfxclass.estimate(head, DIM, BATCH, optimizer)
    return {
        **found,
        "peak_gb": measure.peak_gb(),
        "estimated_gb": estimate.total_bytes / 1e9,
    }


def main():
    """Saves the rows, with how much faster than `full` each is."""
    measure.run_child(child)
    cases = [
        {"method": method, "classes": size}
        for size in measure.numbers(100_000, 670_091, 1_000_000)
        for method in METHODS
    ]
    for rows in measure.rows_of(cases):
        row = rows[-1]
        (full,) = (
            r
            for r in rows
            if (r["classes"], r["method"]) == (row["classes"], "full")
        )
        if "median_ms" in row and "median_ms" in full:
            row["faster"] = full["median_ms"] / row["median_ms"]
    measure.save("projected_steps", rows)


if __name__ == "__main__":
    main()
