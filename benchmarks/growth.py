"""Step time against the number of classes, at a fixed number of active ones.

    python benchmarks/growth.py [num_classes ...]

SelectiveSoftmax with LazyAdam, 2,048 active classes, batch 256, 128
dimensions; the step alone (no rebuild falls into the timed steps) on a forest
of the rows as they are.
"""

import json
import sys

import measure

BATCH, DIM, ACTIVE = 256, 128, 2048


def child(num_classes):
    import keras
    import tensorflow as tf

    import tfxclass

    head = tfxclass.layers.SelectiveSoftmax(
        num_classes,
        num_sampled=ACTIVE,
        sampler_options={"rebuild_interval": 10**6},
    )
    model = keras.Sequential([keras.layers.Dense(DIM), head])
    optimizer = tfxclass.optimizers.LazyAdam(1e-3)
    model.compile(optimizer, loss=head.loss)
    model.build((BATCH, DIM))
    optimizer.build(model.trainable_variables)
    x = tf.random.normal([BATCH, DIM])
    y = tf.random.uniform([BATCH], 0, num_classes, tf.int64)
    step = tf.function(lambda: model.train_step((x, y)))
    step()  # begins the background build, which rebuild() waits for
    head.rebuild()
    return measure.median_ms(step, 30, warmup=5)


def main(sizes):
    rows = []
    for num_classes in sizes:
        result = measure.in_fresh_process(__file__, "--child", num_classes)
        rows.append({"classes": num_classes, **result})
        print(rows[-1], flush=True)
    measure.save("growth", rows)

    def draw(axes):
        sizes = [row["classes"] for row in rows]
        times = [row["median_ms"] for row in rows]
        axes.plot(sizes, times, "o-", label="SelectiveSoftmax, LazyAdam")
        axes.set_ylim(bottom=0)

    measure.plot("growth", draw, "classes", "ms a step", xscale="log")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        found = child(int(sys.argv[2]))
        print(json.dumps({**found, "peak_gb": measure.peak_gb()}))
    else:
        sizes = [10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000]
        main([int(n) for n in sys.argv[1:]] or sizes)
