"""Clusters of processes of this machine, for `scale.py`."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time


def loopback_mb():
    """Megabytes that have crossed the loopback so far."""
    with open("/proc/net/dev") as f:
        (line,) = (x for x in f if x.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0]) / 1e6


def steps_of(model, data, steps):
    """Of a step, after as many to warm up, a dict.

    `ms`; `mb` over the loopback, both ways; `cpu_ms` of this process.
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


def make_strategy(tf):
    config = json.loads(os.environ["TF_CONFIG"])
    if "ps" not in config["cluster"]:
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


def run(script, argument, counts):
    """Runs a cluster; the JSON that its first process prints.

    Each process is `script --child argument`; `counts` has how many there are
    of a job.
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
                    [sys.executable, script, "--child", argument],
                    env={**os.environ, "TF_CONFIG": config},
                    stdout=subprocess.PIPE,
                    stderr=told,
                    text=True,
                )
                stack.callback(process.wait)
                stack.callback(process.kill)
                processes[job, index] = process
        leader = processes["chief" if "chief" in counts else "worker", 0]
        line = leader.stdout.readline()
        if not line:
            told.seek(0)
            return {"error": (told.read().strip() or "no result")[-300:]}
    return json.loads(line)
