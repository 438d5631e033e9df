"""The peak memory of processes with a shard each, against `tfxclass.plan`.

    python benchmarks/shard_memory.py

8 processes make 1,000,000 class vectors, train, save a checkpoint, load it and
train on. `peak_mb` is above the memory of a process that has imported
everything, `few_mb` the same of a job with 800 classes: threads, gRPC and
graphs. `shard_mb` is the difference, and `plan_mb` what the plan says of it.
The columns `start_` are until the class vectors are made.
"""

import json
import sys
import tempfile
import time

import keras
import measure
import numpy as np
import scale
import tensorflow as tf

import tfxclass
from tfxclass import distribute
from tfxclass import layers

NAME = "shard_memory"
CLASSES, FEW, DIM, MACHINES, BATCH, SAMPLED = 10**6, 800, 128, 8, 256, 2048


def memory_mb(name):
    """`VmRSS` of this process, the memory now, or `VmHWM`, its peak."""
    with open("/proc/self/status") as f:
        (line,) = (x for x in f if x.startswith(name + ":"))
    return int(line.split()[1]) * 1024 / 1e6


def child(classes, folder):
    """Prints a line of JSON: the peaks of one process of a cluster."""
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")  # The peak is now the memory of now.
    before = memory_mb("VmRSS")
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    keras.utils.set_random_seed(0)
    with strategy.scope():
        sampled = min(SAMPLED, classes)
        head = layers.ShardedSoftmax(classes, num_sampled=sampled, seed=0)
        model = keras.Sequential([keras.Input([DIM]), head])
        start = memory_mb("VmHWM") - before
        model.compile(tfxclass.optimizers.LazyAdam(1e-3), loss=head.loss)
    random = np.random.default_rng(0)
    x = random.normal(size=(BATCH, DIM)).astype(np.float32)
    y = random.integers(0, classes, BATCH)
    data = tf.data.Dataset.from_tensors((x, y)).repeat()
    for epochs in (1, 2):  # The second time from the state of the first.
        distribute.fit(
            model,
            data,
            epochs=epochs,
            steps_per_epoch=10,
            checkpoint=folder,
            verbose=0,
        )
    peak = memory_mb("VmHWM") - before
    print(json.dumps({"start": start, "peak": peak}), flush=True)
    time.sleep(600)  # The others are ended with this one.


def peaks(classes):
    with tempfile.TemporaryDirectory() as folder:
        given = "--child", str(classes), folder
        return scale.run_cluster(__file__, given, MACHINES)


def main():
    adam = tfxclass.optimizers.LazyAdam()
    link = tfxclass.planning.Link(1e9)
    plan = tfxclass.plan(
        CLASSES, DIM, BATCH, MACHINES, link, num_sampled=SAMPLED, optimizer=adam
    )["sharded"]
    rows = []
    for process, (few, many) in enumerate(zip(peaks(FEW), peaks(CLASSES))):
        row = {"process": process}
        for when, planned in (
            ("start", plan.start_bytes),
            ("peak", plan.machine_bytes),
        ):
            prefix = "" if when == "peak" else "start_"
            row |= {
                f"{when}_mb": many[when],
                f"{prefix}few_mb": few[when],
                f"{prefix}shard_mb": many[when] - few[when],
                f"{prefix}plan_mb": planned / 1e6,
            }
        rows.append(row)
    measure.save(NAME, rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(int(sys.argv[2]), sys.argv[3])
    else:
        main()
