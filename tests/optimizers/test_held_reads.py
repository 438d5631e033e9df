"""A tensor of class vectors that is kept makes a step copy the matrix."""

import os
import subprocess
import sys

# 40,000 x 128 numbers are 20 MB.
CODE = """
import keras, numpy as np, tensorflow as tf, tfxclass
head = tfxclass.layers.SampledSoftmax(40_000, 100, "uniform", name="words")
model = keras.Sequential([keras.Input([128]), head])
model.compile(tfxclass.optimizers.{optimizer}(), loss=head.loss)
kept = []

def keep(batch, logs=None):
    if batch in {batches}:
        kept[:] = [tf.convert_to_tensor(head.kernel)]

keeper = keras.callbacks.LambdaCallback(on_train_batch_end=keep)
x, y = np.ones([80, 128], "float32"), np.arange(80)
model.fit(x, y, batch_size=8, verbose=0, callbacks=[keeper])
model.fit(x, y, batch_size=8, verbose=0, callbacks=[keeper])
"""


def warnings_of(optimizer, batches):
    code = CODE.format(optimizer=optimizer, batches=batches)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "0"},
        stderr=subprocess.PIPE,
        check=True,
        text=True,
    )
    return [x for x in done.stderr.splitlines() if "Each step copies" in x]


def test_reads_kept_in_each_step_are_told_once():
    (line,) = warnings_of("LazySGD", "range(10)")
    assert "words/kernel" in line and "19 MB" in line
    assert "Fix: keep head.kernel.numpy()" in line


def test_a_read_now_and_then_is_no_warning():
    assert not warnings_of("HeadAdam", "(2, 3, 7)")
