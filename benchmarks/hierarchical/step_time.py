"""A training step of hierarchical softmax against the number of classes.

    python -m benchmarks.hierarchical.step_time [num_classes ...]

Counts fall as 1 / rank. Labels of the Huffman tree are drawn by them, so paths
are about the entropy long. Those of the balanced tree are drawn evenly: paths
are about log2(num_classes) long.
"""

from benchmarks import measure

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 2_000_000)
BATCH, DIM = 256, 128


def child(tree, num_classes):
    """The row of a tree."""
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


if __name__ == "__main__":
    cases = [
        {"tree": tree, "classes": size}
        for tree in ("huffman", "balanced")
        for size in measure.numbers(*SIZES)
    ]
    measure.compare("hierarchical/step_time", child, cases)
