"""A step of two workers, and of two with two parameter servers, on loopback.

    python benchmarks/processes.py [num_classes ...]

`tfxclass.distribute.fit`, 64 dimensions, 2,048 active classes, a batch of 256
for each worker; all processes share the cores of one machine. `ms` is the time
of 200 steps, divided: with parameter servers two workers are at it. `mb` is
what crossed the loopback in that time, both ways, divided by the steps
(measured, /proc/net/dev); `matrix_mb` is the class matrix. `worker_gb` and
`server_gb` are the peaks of the processes.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import measure

BATCH, DIM, ACTIVE, STEPS = 256, 64, 2048, 200
STRATEGIES = {
    "one process": {"worker": 1},
    "two workers": {"worker": 2},
    "parameter servers": {"chief": 1, "worker": 2, "ps": 2},
    "parameter servers, rows split": {"chief": 1, "worker": 2, "ps": 2},
}


def loopback_mb():
    """Megabytes that have crossed the loopback so far."""
    with open("/proc/net/dev") as f:
        (line,) = (x for x in f if x.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0]) / 1e6


def peak_gb(pid):
    with open(f"/proc/{pid}/status") as f:
        (line,) = (line for line in f if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1e6


def child(name, num_classes):
    import keras
    import numpy as np
    import tensorflow as tf

    import tfxclass

    strategy = make_strategy(tf)
    keras.utils.set_random_seed(0)
    with strategy.scope():
        kind = tfxclass.layers.SampledSoftmax
        if "split" in name:
            kind = tfxclass.layers.ShardedSoftmax
        head = kind(num_classes, num_sampled=ACTIVE, seed=0)
        model = keras.Sequential([keras.Input([DIM]), head])
        model.compile(tfxclass.optimizers.LazyAdam(1e-3), loss=head.loss)
    is_together = isinstance(
        strategy, tf.distribute.MultiWorkerMirroredStrategy
    )
    batch = BATCH * (2 if is_together else 1)
    random = np.random.default_rng(0)
    x = random.normal(size=(batch, DIM)).astype(np.float32)
    y = random.integers(0, num_classes, batch)
    data = tf.data.Dataset.from_tensors((x, y)).repeat()

    return steps_of(model, data, STEPS)


def steps_of(model, data, steps):
    """Of a step, after as many to warm up, a dict.

    `ms`; `mb` over the loopback; `cpu_ms` of this process.
    """
    import keras

    from tfxclass import distribute

    class Count(keras.callbacks.Callback):
        """From the first epoch's end, the warm-up's, to the second's."""

        def on_epoch_end(self, epoch, logs=None):
            now = time.perf_counter() * 1e3, loopback_mb()
            now += (time.process_time() * 1e3,)
            if epoch:
                ends = zip(("ms", "mb", "cpu_ms"), self.begin, now)
                self.found = {n: (b - a) / steps for n, a, b in ends}
            self.begin = now

    count = Count()
    distribute.fit(
        model,
        data,
        epochs=2,
        steps_per_epoch=steps,
        callbacks=[count],
        verbose=0,
        log_interval=steps,
    )
    return count.found


def print_and_stay(found):
    """What a child ends with; its peak is read before it is ended."""
    print(json.dumps(found), flush=True)
    time.sleep(600)


def make_strategy(tf):
    config = json.loads(os.environ["TF_CONFIG"])
    if "ps" not in config["cluster"]:
        if len(config["cluster"]["worker"]) == 1:
            return tf.distribute.OneDeviceStrategy("CPU:0")
        return tf.distribute.MultiWorkerMirroredStrategy()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if config["task"]["type"] == "chief":
        return tf.distribute.ParameterServerStrategy(resolver)
    task = config["task"]
    tf.distribute.Server(
        resolver.cluster_spec(), task["type"], task["index"], protocol="grpc"
    ).join()


def free_hosts(count):
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("localhost", 0))
        return [f"localhost:{one.getsockname()[1]}" for one in taken]


def run(script, arguments, counts):
    """Runs a cluster; what its first process found, and peaks.

    Each process is `script --child arguments...`; `counts` has how many there
    are of a job.
    """
    hosts = iter(free_hosts(sum(counts.values())))
    cluster = {
        job: [next(hosts) for _ in range(n)] for job, n in counts.items()
    }
    processes = {}
    with contextlib.ExitStack() as stack:
        told = stack.enter_context(tempfile.TemporaryFile("w+"))
        for job in counts:
            for index in range(counts[job]):
                task = {"type": job, "index": index}
                config = json.dumps({"cluster": cluster, "task": task})
                process = subprocess.Popen(
                    [sys.executable, script, "--child", *arguments],
                    env={**os.environ, "TF_CONFIG": config},
                    stdout=subprocess.PIPE,
                    stderr=told,
                    text=True,
                )
                stack.callback(process.wait)
                stack.callback(process.kill)
                processes[job, index] = process
        leader = processes["chief" if "chief" in counts else "worker", 0]
        # Its last line; it stays for its peak to be read.
        line = leader.stdout.readline()
        if not line:
            told.seek(0)
            return {"error": (told.read().strip() or "no result")[-300:]}
        found = json.loads(line)
        for column, job in (("worker_gb", "worker"), ("server_gb", "ps")):
            if (job, 0) in processes:
                found[column] = peak_gb(processes[job, 0].pid)
    return found


def main(sizes):
    rows = []
    for num_classes in sizes:
        for name in STRATEGIES:
            found = run(__file__, (name, str(num_classes)), STRATEGIES[name])
            matrix = 4 * DIM * num_classes / 1e6
            row = {"classes": num_classes, "strategy": name, **found}
            rows.append({**row, "matrix_mb": matrix})
            print(rows[-1], flush=True)
    measure.save("processes", rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print_and_stay(child(sys.argv[2], int(sys.argv[3])))
    else:
        main([int(size) for size in sys.argv[1:]] or [100_000, 1_000_000])
