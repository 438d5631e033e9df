"""A step under MirroredStrategy: one and two logical devices, 1M classes.

    python benchmarks/mirrored.py [num_classes]

Batch 512, 64 dimensions, 2,048 active classes, the devices share the cores of
one processor: a step of two does the work of one plus what crosses and is done
twice (the update of each copy). `row_mb` is what each replica sends: the rows
and ids of its gradient; `matrix_mb` is what a dense gradient would.
Times are of ten steps of `fit`, divided.
"""

import measure

BATCH, DIM, ACTIVE, STEPS = 512, 64, 2048, 10
METHODS = (
    "keras_adam, one device",
    "keras_adam, two devices",
    "lazy_adam, one device",
    "lazy_adam, two devices",
)


def child(method, num_classes):
    import keras
    import numpy as np
    import tensorflow as tf

    import tfxclass

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    if "two" in method:
        strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    else:
        strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        head = tfxclass.layers.SampledSoftmax(num_classes, ACTIVE, seed=0)
        model = keras.Sequential(
            [keras.Input([DIM]), keras.layers.Dense(DIM), head]
        )
        optimizer = (
            keras.optimizers.Adam(1e-3)
            if method.startswith("keras")
            else tfxclass.optimizers.LazyAdam(1e-3)
        )
        model.compile(optimizer, loss=head.loss)
    random = np.random.default_rng(0)
    x = random.normal(size=(BATCH, DIM)).astype(np.float32)
    y = random.integers(0, num_classes, BATCH)
    data = tf.data.Dataset.from_tensors((x, y)).repeat()
    options = {"steps_per_epoch": STEPS, "verbose": 0}
    found = measure.median_ms(lambda: model.fit(data, **options), 5, warmup=1)
    found = {name: value / STEPS for name, value in found.items()}
    sizes = {
        "row_mb": ACTIVE * (4 * DIM + 8) / 1e6,
        "matrix_mb": 4 * DIM * num_classes / 1e6,
    }
    return {**found, **sizes, "peak_gb": measure.peak_gb()}


if __name__ == "__main__":
    measure.run_methods("mirrored", __file__, child, METHODS, 1_000_000)
