"""What `tfxclass.plan` computes, against processes of this machine.

    python benchmarks/scale.py [part ...]   # what results/scale.json lacks
    python benchmarks/scale.py page   # prints the tables and draws the picture

Parts are `cpu` (figures of this machine in time of its cores), and 2, 4 and 8,
the numbers of processes.

2, 4 and 8 processes share the cores and the loopback of one machine. Bytes and
memory are those of as many machines, and are compared one to one. Times are
not: processes wait for a core, not for a link. What can be compared is the
work: `cpu_ms`, what one process computes in a step, against `plan_cpu_ms`, the
plan's for figures in processor time. The rest is TensorFlow's, of collectives
over gRPC. The script makes itself a loopback of its own where it may
(`unshare`): what others send would be counted.

Columns: `mb` crossed the loopback in a step, of all machines (of one worker
with "servers"), and `plan_mb` is the plan's; `variables_mb` is the memory of
rows and slots on a machine, or a server; `collectives` is how many gathers and
reductions a step has.
"""

import json
import os
import shutil
import subprocess
import sys
import time

import measure
import processes

BATCH, DIM, CLASSES, ACTIVE, STEPS = 256, 64, 40_000, 2048, 10
# How many machines, and how many servers with parameter servers.
MACHINES = (2, 4, 8)
SERVERS = 2
TOGETHER = ("mirrored", "sharded", "mirrored, exact", "sharded, exact")


def make_model(strategy, name, tfxclass, keras):
    keras.utils.set_random_seed(0)
    sampled = None if "exact" in name else ACTIVE
    with strategy.scope():
        if "mirrored" not in name:
            kind = tfxclass.layers.ShardedSoftmax
            head = kind(CLASSES, num_sampled=sampled, seed=0)
        elif sampled:
            head = tfxclass.layers.SampledSoftmax(CLASSES, sampled, seed=0)
        else:
            head = tfxclass.layers.FullSoftmax(CLASSES, seed=0)
        model = keras.Sequential([keras.Input([DIM]), head])
        model.compile(tfxclass.optimizers.LazyAdam(1e-3), loss=head.loss)
    return model


def data_of(batch):
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(0)
    x = random.normal(size=(batch, DIM)).astype(np.float32)
    y = random.integers(0, CLASSES, batch)
    return tf.data.Dataset.from_tensors((x, y)).repeat()


def count_collectives():
    """Dict of how many collectives each graph has, by the graph's id."""
    import tensorflow as tf

    from tfxclass.keras_internals import collective_ops

    module, counts = collective_ops(), {}

    def counted(function):
        def call(*args, **options):
            graph = id(tf.compat.v1.get_default_graph())
            counts[graph] = counts.get(graph, 0) + 1
            return function(*args, **options)

        return call

    for name in ("all_gather_v2", "all_reduce_v2"):
        setattr(module, name, counted(getattr(module, name)))
    return counts


def child(kind):
    import keras
    import tensorflow as tf

    import tfxclass

    strategy = processes.make_strategy(tf)
    if kind == "servers":
        model = make_model(strategy, kind, tfxclass, keras)
        workers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"])
        data = data_of(BATCH // workers)
        found = processes.steps_of(model, data, STEPS * workers)
        sizes = [x.shape.num_elements() * x.dtype.size for x in _values(model)]
        return [{**found, "variables_mb": sum(sizes) / 1e6 / SERVERS}]
    counts = count_collectives()
    rows = []
    for name in TOGETHER:
        counts.clear()
        model = make_model(strategy, name, tfxclass, keras)
        found = processes.steps_of(model, data_of(BATCH), STEPS)
        found["collectives"] = max(counts.values(), default=0)
        memory = tfxclass.memory_per_replica(model)[0]
        rows.append({**found, "variables_mb": memory / 1e6})
    return rows


def _values(model):
    variables = [*model.variables, *model.optimizer.variables]
    return [variable.value for variable in variables]


def planned(name, machines, machine):
    import tfxclass
    from tfxclass.planning import Link

    link = Link(1e9)
    strategy, _, exact = name.partition(", ")
    row = tfxclass.plan(
        CLASSES,
        DIM,
        BATCH,
        machines,
        link,
        num_sampled=None if exact else ACTIVE,
        optimizer=tfxclass.optimizers.LazyAdam(),
        machine=machine,
        servers=SERVERS,
    )[strategy]
    is_served = strategy == "servers"
    # A step of servers' workers is of one of them. Class vectors come back.
    both_ways = row.sent_bytes + 4 * DIM * ACTIVE * is_served
    count = 1 if is_served else machines
    variables = row.host_or_server_bytes if is_served else row.variable_bytes
    found = {
        "plan_mb": count * both_ways / 1e6,
        "plan_variables_mb": variables / 1e6,
    }
    if not is_served:
        found["plan_cpu_ms"] = 1e3 * row.compute_s
    return found


def add(rows):
    """Adds rows to the results, which another run may have changed."""
    measure.save("scale", measure.finished("scale") + rows)


def is_done(name, machines=1):
    """Whether the results have a row."""
    return any(
        row["row"] == name and row["machines"] == machines
        for row in measure.finished("scale")
    )


def check(machines):
    """Adds the rows of as many processes."""
    machine = figures()
    for kind, names in (("together", TOGETHER), ("servers", ("servers",))):
        if is_done(names[0], machines):
            continue
        counts = {"worker": machines}
        if kind == "servers":
            counts = {"chief": 1, **counts, "ps": SERVERS}
        found = processes.run(__file__, kind, counts)
        print(machines, kind, found, flush=True)
        rows = []
        for name, step in zip(names, found.get("rows", ()), strict=False):
            step = {key: x for key, x in step.items() if key != "ms"}
            plan = planned(name, machines, machine)
            rows.append({"row": name, "machines": machines, **step, **plan})
        add(rows)


def measure_here():
    """Adds the row of this machine's figures, in processor time."""
    import dataclasses

    from tfxclass.planning import measure_machine

    if is_done("cpu"):
        return
    found = dataclasses.asdict(measure_machine(clock=time.process_time))
    row = {"row": "cpu", "machines": 1}
    for kind in ("exact", "sampled"):
        row |= {f"{kind}_{k}": v for k, v in found[kind].items()}
    row["copy_bytes_per_s"] = found["host_link"]["bytes_per_s"]
    add([row])


def figures():
    """The `Machine` of the row of `measure_here`."""
    from tfxclass.planning import Link
    from tfxclass.planning import Machine
    from tfxclass.planning import StepCosts

    (row,) = (r for r in measure.finished("scale") if r["row"] == "cpu")
    names = ("step_s", "product_s", "number_s")
    exact, sampled = (
        StepCosts(*(row[f"{kind}_{name}"] for name in names))
        for kind in ("exact", "sampled")
    )
    link = Link(row["copy_bytes_per_s"])
    return Machine(exact, sampled, 24e9, 24e9, link)


def in_own_network():
    """Runs this script again where the loopback is its own, if it may."""
    unshare = shutil.which("unshare")
    if unshare is None or os.environ.get("TFXCLASS_OWN_LOOPBACK"):
        return False
    script = [sys.executable, *sys.argv]
    command = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", *script]
    environment = {**os.environ, "TFXCLASS_OWN_LOOPBACK": "1"}
    probe = [unshare, "-rn", "ip", "link", "set", "lo", "up"]
    if subprocess.run(probe, capture_output=True).returncode:
        print("The loopback is shared: what others send is counted.")
        return False
    subprocess.run([unshare, "-rn", *command], env=environment, check=True)
    return True


def main(parts):
    for part in parts or ["cpu", *map(str, MACHINES)]:
        if part == "cpu":
            measure_here()
        else:
            check(int(part))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps({"rows": child(sys.argv[2])}), flush=True)
        time.sleep(600)  # The others are ended with this one.
    elif sys.argv[1:] == ["page"]:
        import scale_page

        scale_page.main()
    elif not in_own_network():
        main(sys.argv[1:])
