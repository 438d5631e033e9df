"""The exact softmax beside PyTorch's: the loss and all gradients, no update.

    python benchmarks/exact_peers.py PYTHON [--turns 3]

PYTHON has PyTorch 2.13 or later. Batch 256, 128 dimensions, float32; programs
run in turns. Memory is the peak of the process, less what its imports took: the
class matrix and its gradient are in it.
"""

import os
import statistics

import measure
import tensorflow as tf

from tfxclass.core.targets import Targets
from tfxclass.rows import loss
from tfxclass.rows.class_matrix import KEPT_BYTES
from tfxclass.rows.class_matrix import ClassRows

CLASSES, BATCH, DIM, REPEATS = (100_000, 670_091), 256, 128, 5
METHODS = {
    "FullSoftmax": KEPT_BYTES,
    "FullSoftmax, keep_exponentials": 2**40,
    "torch.nn.LinearCrossEntropyLoss": "plain",
    "torch.nn.LinearCrossEntropyLoss, chunked": "chunked",
}
PEER = os.path.join(os.path.dirname(__file__), "peers", "torch_exact.py")


def child(classes, kept_bytes):
    before = measure.peak_gb()
    rows = tf.random.normal([classes, DIM])
    x = 0.05 * tf.random.normal([BATCH, DIM])
    labels = tf.random.uniform([BATCH, 1], 0, classes, tf.int64)
    targets = Targets(labels, tf.ones([BATCH, 1]))

    @tf.function
    def step(x, rows):
        with tf.GradientTape() as tape:
            tape.watch([x, rows])
            part = ClassRows(rows, kept_bytes=kept_bytes)
            losses = loss.cross_entropy([(x, part)], targets)
            mean = tf.reduce_mean(losses)
        return mean, tape.gradient(mean, [x, rows])

    found = measure.median_ms(lambda: step(x, rows), REPEATS)
    return {"ms": found["median_ms"], "gb": measure.peak_gb() - before}


def main():
    given = measure.arguments(__doc__, first=["python"], turns=3)
    times, rows = {}, []
    for _ in range(given.turns):
        for classes in CLASSES:
            for method, kind in METHODS.items():
                if isinstance(kind, str):
                    found = measure.in_fresh_process(
                        PEER, classes, kind, REPEATS, python=given.python
                    )
                else:
                    found = measure.ask(classes, kind)
                times.setdefault((classes, method), []).append(found)
    for (classes, method), found in times.items():
        own = [x["ms"] for x in found]
        ours = [x["ms"] for x in times[classes, "FullSoftmax"]]
        ratios = [a / b for a, b in zip(own, ours)]
        rows.append(
            {
                "classes": classes,
                "method": method,
                "ms": statistics.median(own),
                "over ours": statistics.median(ratios),
                "least": min(ratios),
                "most": max(ratios),
                "GB": max(x["gb"] for x in found),
            }
        )
    measure.save("exact_peers", rows)


if __name__ == "__main__":
    measure.run_child(child)
    main()
