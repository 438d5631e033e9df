"""A tensor of class vectors that is kept makes a step copy the matrix."""

from tests.support.processes import run_code

# 40,000 x 128 numbers are 20 MB. TensorFlow logs to stderr.
CODE = """
import os

os.dup2(1, 2)

import keras, numpy as np, tensorflow as tf, tfxclass

def train(name, optimizer, batches):
    head = tfxclass.layers.SampledSoftmax(40_000, 100, "uniform", name=name)
    model = keras.Sequential([keras.Input([128]), head])
    model.compile(optimizer, loss=head.loss)
    kept = []

    def keep(batch, logs=None):
        if batch in batches:
            kept[:] = [tf.convert_to_tensor(head.kernel)]

    keeper = keras.callbacks.LambdaCallback(on_train_batch_end=keep)
    x, y = np.ones([80, 128], "float32"), np.arange(80)
    for _ in range(2):
        model.fit(x, y, batch_size=8, verbose=0, callbacks=[keeper])

train("now_and_then", tfxclass.optimizers.HeadAdam(), (2, 3, 7))
train("in_each_step", tfxclass.optimizers.LazySGD(), range(10))
"""


def test_only_reads_kept_in_each_step_are_told_and_once():
    logged = run_code(CODE).splitlines()
    (line,) = [x for x in logged if "Each step copies" in x]
    assert "in_each_step/kernel" in line and "19 MB" in line
    assert "Fix: keep head.kernel.numpy()" in line
