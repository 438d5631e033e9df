"""CPU time of a training step by the head's loss.

    python -m benchmarks.one_vs_rest

20,000 classes, 128 dimensions, batch 256, 5 labels a row; `LazySGD`.
"""

import time

import numpy as np
import tensorflow as tf

from tfxclass import layers
from tfxclass import optimizers

_CLASSES, _DIM, _BATCH, _LABELS, _STEPS = 20_000, 128, 256, 5, 10
_HEADS = {
    "full": lambda loss: layers.FullSoftmax(_CLASSES, loss=loss),
    "2,000 sampled": lambda loss: layers.SampledSoftmax(
        _CLASSES, 2000, loss=loss
    ),
}


def main():
    random = np.random.default_rng(0)
    x = tf.constant(random.normal(size=(_BATCH, _DIM)), tf.float32)
    y = tf.constant(random.integers(0, _CLASSES, (_BATCH, _LABELS)))
    for name, make in _HEADS.items():
        for loss in ("softmax", "sigmoid", "squared_hinge"):
            print(f"{name}, {loss}: {1e3 * seconds(make(loss), x, y):.1f} ms")


def seconds(head, x, y):
    """CPU seconds of a step, the mean of some."""
    head.build(x.shape)
    optimizer = optimizers.LazySGD(1e-6)
    optimizer.build(head.trainable_variables)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(head.compute_loss(x, y, training=True))
        gradients = tape.gradient(loss, [head.kernel.value])
        optimizer.apply(gradients, head.trainable_variables)
        return loss

    step()
    begin = time.process_time()
    for _ in range(_STEPS):
        float(step())
    return (time.process_time() - begin) / _STEPS


if __name__ == "__main__":
    main()
