"""A training step against the number of classes, on a Huffman tree.

Counts fall as 1 / rank; labels are drawn by them, so paths are about the
entropy long, or evenly, about log2(num_classes).
"""

import json
import os
import sys

from benchmarks import measure
from benchmarks.hierarchical import tables

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000)
SMOKE = (100, 1000)
BATCH, DIM = 256, 128


def child(num_classes, tree):
    import keras
    import numpy as np
    import tensorflow as tf

    import tfxclass

    counts = 1e8 / np.arange(1, num_classes + 1)
    random = np.random.default_rng(0)
    if tree == "huffman":
        labels = random.choice(num_classes, BATCH, p=counts / counts.sum())
        head = tfxclass.layers.HierarchicalSoftmax(num_classes, counts=counts)
    else:
        labels = random.integers(0, num_classes, BATCH)
        head = tfxclass.layers.HierarchicalSoftmax(num_classes, tree)
    model = keras.Sequential([keras.layers.Dense(DIM), head])
    optimizer = tfxclass.optimizers.LazyAdam(1e-3)
    model.compile(optimizer, loss=head.loss)
    model.build((BATCH, DIM))
    optimizer.build(model.trainable_variables)
    x = tf.random.normal([BATCH, DIM])
    y = tf.constant(labels)
    step = tf.function(lambda: model.train_step((x, y)))
    found = measure.median_ms(step, 40, warmup=5)
    path = float(head.tree.depths()[labels].mean())
    return {"path": path, **found, "peak_gb": measure.peak_gb()}


def main(out, sizes):
    rows = []
    for tree in ("huffman", "balanced"):
        for num_classes in sizes:
            found = measure.in_fresh_process(
                "-m", __spec__.name, num_classes, tree
            )
            rows.append({"tree": tree, "classes": num_classes, **found})
            print(rows[-1], flush=True)
    os.makedirs(out, exist_ok=True)
    tables.save(os.path.join(out, "step_time.json"), rows)


if __name__ == "__main__":
    print(json.dumps(child(int(sys.argv[1]), sys.argv[2])))
