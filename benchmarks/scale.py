"""What `tfxclass.plan` computes, against processes of this machine.

    python benchmarks/scale.py [machines ...]

2, 4 and 8 processes share the cores and the loopback of one machine. Bytes and
memory are those of as many machines, and are compared one to one. Times are
not: processes wait for a core, not for a link. `cpu_ms` is what one process
computes in a step. Other programs' traffic on the loopback would be counted. A
loopback of its own has `unshare -rn sh -c 'ip link set lo up && python ...'`.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

import keras
import measure
import numpy as np
import tensorflow as tf

import tfxclass
from tfxclass import distribute
from tfxclass import layers
from tfxclass.planning import Link

NAME = "scale"
BATCH, DIM, CLASSES, ACTIVE, STEPS = 256, 64, 40_000, 2048, 10
STRATEGIES = ("mirrored", "sharded", "mirrored, exact", "sharded, exact")


def make_model(strategy, name):
    keras.utils.set_random_seed(0)
    sampled = None if "exact" in name else ACTIVE
    with strategy.scope():
        if "mirrored" not in name:
            kind = layers.ShardedSoftmax
            head = kind(CLASSES, num_sampled=sampled, seed=0)
        elif sampled:
            head = layers.SampledSoftmax(CLASSES, sampled, seed=0)
        else:
            head = layers.FullSoftmax(CLASSES, seed=0)
        model = keras.Sequential([keras.Input([DIM]), head])
        model.compile(tfxclass.optimizers.LazyAdam(1e-3), loss=head.loss)
    return model


def data_of(batch):
    random = np.random.default_rng(0)
    x = random.normal(size=(batch, DIM)).astype(np.float32)
    y = random.integers(0, CLASSES, batch)
    return tf.data.Dataset.from_tensors((x, y)).repeat()


def loopback_mb():
    with open("/proc/net/dev") as f:
        (line,) = (x for x in f if x.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0]) / 1e6


def steps_of(model, data, steps):
    """Of a step, after as many to warm up, a dict.

    `mb` over the loopback, both ways; `cpu_ms` of this process.
    """
    # At the end of the warm-up, and of the steps.
    ends = []
    watch = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: ends.append(
            (loopback_mb(), time.process_time() * 1e3)
        )
    )
    distribute.fit(
        model,
        data,
        epochs=2,
        steps_per_epoch=steps,
        callbacks=[watch],
        verbose=0,
        log_interval=steps,
    )
    pairs = zip(("mb", "cpu_ms"), *ends, strict=True)
    return {name: (b - a) / steps for name, a, b in pairs}


def child():
    """Prints a line of JSON: what the rows of a cluster measure."""
    strategy, rows = tf.distribute.MultiWorkerMirroredStrategy(), []
    for name in STRATEGIES:
        model = make_model(strategy, name)
        found = steps_of(model, data_of(BATCH), STEPS)
        memory = tfxclass.memory_per_replica(model)[0]
        rows.append({**found, "variables_mb": memory / 1e6})
    print(json.dumps(rows), flush=True)
    time.sleep(600)  # The others are ended with this one.


def run_cluster(machines):
    """The rows that `child` prints in the first process of a cluster."""
    sys.path.insert(0, os.path.dirname(measure.FOLDER))
    from examples.multi_worker.__main__ import cluster_of

    cluster = cluster_of(machines, servers=0)
    with contextlib.ExitStack() as stack:
        told = stack.enter_context(tempfile.TemporaryFile("w+"))
        processes = []
        for index in range(machines):
            task = {"type": "worker", "index": index}
            config = json.dumps({"cluster": cluster, "task": task})
            process = subprocess.Popen(
                [sys.executable, __file__, "--child"],
                env={**os.environ, "TF_CONFIG": config},
                stdout=subprocess.PIPE,
                stderr=told,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        if line := processes[0].stdout.readline():
            return json.loads(line)
        told.seek(0)
        sys.exit((told.read().strip() or "no result")[-300:])


def planned(name, machines):
    strategy, _, exact = name.partition(", ")
    row = tfxclass.plan(
        CLASSES,
        DIM,
        BATCH,
        machines,
        Link(1e9),
        num_sampled=None if exact else ACTIVE,
        optimizer=tfxclass.optimizers.LazyAdam(),
    )[strategy]
    return {
        "plan_mb": machines * row.sent_bytes / 1e6,
        "plan_variables_mb": row.variable_bytes / 1e6,
    }


def main(sizes):
    rows = []
    for machines in sizes:
        steps = run_cluster(machines)
        for name, step in zip(STRATEGIES, steps, strict=True):
            plan = planned(name, machines)
            rows.append({"row": name, "machines": machines, **step, **plan})
    measure.save(NAME, rows, ("row", "machines"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child()
    else:
        main(measure.numbers(2, 4, 8))
