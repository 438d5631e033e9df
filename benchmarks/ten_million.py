"""Ten and thirty million classes on one machine: memory, steps, saving.

    python benchmarks/ten_million.py [row ...]

Rows as in `ROWS`, "selective", "lsh", "sampled", "sampled_fit", "sampled_30m",
"save", "recall" and "export"; those in results/ten_million.json are not run
again.
Each in a fresh process: 128 dimensions, batch 256, 4,096 classes a step, class
rows in bfloat16, one Dense(128) before the head, LazyAdam(1e-3,
second_moment="row", slot_dtype="bfloat16"); labels and features are drawn anew
at each step. Means over 100 steps, in time and in the time of the cores that
they took (`cpu`): before a refresh of the index and, with an index, while one
is under way; the step that begins it is `begin_ms`.
`peak_gb` is the process's, TensorFlow's own 0.6 GB included; `estimate_gb` is
what `tfxclass.estimate` says.

"sampled_fit" is "sampled" as most people write it: without an Input, built by
`fit`.

"save" trains "selective" for some steps, saves it, and loads it in another
process, where it takes a step: `saved_gb` is the file, `peak_gb` of the process
that saves, `load_peak_gb` of the one that loads.

"recall" and "export" have rows in groups of 100 and questions near to them.
"recall": the part of the 64 exact best classes that the forest finds, of
`trees` trees. "export": `InvertedLists` for the best 10, and
another process that answers from the folder through TensorFlow's C API on both
cores, as a server does, one question at a time.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

import measure
import numpy
import ten_million_grouped as grouped

BATCH, DIM, SAMPLED, STEPS = 256, 128, 4096, 100
MILLION = 10**6
# Head, classes and what is done, each in a process of its own.
ROWS = {
    "selective": ("SelectiveSoftmax", 10 * MILLION, ["train"]),
    "lsh": ("LSHSoftmax", 10 * MILLION, ["train"]),
    "sampled": ("SampledSoftmax", 10 * MILLION, ["train"]),
    "sampled_fit": ("SampledSoftmax", 10 * MILLION, ["fit"]),
    "sampled_30m": ("SampledSoftmax", 30 * MILLION, ["train"]),
    "save": ("SelectiveSoftmax", 10 * MILLION, ["save", "load"]),
    "recall": ("SelectiveSoftmax", 10 * MILLION, ["recall"]),
    "export": ("SampledSoftmax", 10 * MILLION, ["export", "serve"]),
}
# In steps: about what "auto" takes for a refresh of 10M classes.
INTERVAL = 5000
NAME = "ten_million"


def say(text):
    print(text, flush=True)


def make_model(kind, num_classes, has_input=True):
    import keras

    import tfxclass

    keras.utils.set_random_seed(0)
    options = {"kernel_dtype": "bfloat16"}
    if kind != "SampledSoftmax":
        options["sampler_options"] = {"rebuild_interval": INTERVAL}
    head = getattr(tfxclass.layers, kind)(num_classes, SAMPLED, **options)
    optimizer = tfxclass.optimizers.LazyAdam(
        1e-3, second_moment="row", slot_dtype="bfloat16"
    )
    estimate = tfxclass.estimate(head, DIM, BATCH, optimizer)
    inputs = [keras.Input([DIM])] if has_input else []
    model = keras.Sequential([*inputs, keras.layers.Dense(DIM), head])
    model.compile(optimizer, loss=head.loss)
    if has_input:
        optimizer.build(model.trainable_variables)
    return model, estimate


def step_of(model):
    import tensorflow as tf

    num_classes = model.layers[-1].num_classes

    @tf.function
    def step():
        x = tf.random.normal([BATCH, DIM])
        y = tf.random.uniform([BATCH], 0, num_classes, tf.int64)
        return model.train_step((x, y))

    return step


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def timed(step, name):
    """Means of time and of the processor's, all threads, of a step."""
    for _ in range(5):
        step()
    cpu = time.process_time()
    wall = seconds(lambda: [step() for _ in range(STEPS)])
    cpu = time.process_time() - cpu
    return {
        f"{name}_ms": wall * 1e3 / STEPS,
        f"{name}_cpu_ms": cpu * 1e3 / STEPS,
    }


def train(kind, num_classes, path):
    model, estimate = make_model(kind, num_classes)
    step, head = step_of(model), model.layers[-1]
    cpu = time.process_time()
    found = {"first_step_s": seconds(step)}
    found["first_step_cpu_s"] = time.process_time() - cpu
    found["built_peak_gb"] = measure.peak_gb()
    say(f"steps begin, {found}")
    found |= timed(step, "step")
    if kind != "SampledSoftmax":
        head.sampler.step.assign(INTERVAL)
        found["begin_ms"] = seconds(step) * 1e3
        say(f"a refresh begins, {found}")
        found |= timed(step, "refreshing")
    found["peak_gb"] = measure.peak_gb()
    found["estimate_gb"] = estimate.total_bytes / 1e9
    return found


def fit(kind, num_classes, path):
    model, estimate = make_model(kind, num_classes, has_input=False)
    random = numpy.random.default_rng(0)
    x = random.normal(size=(STEPS * BATCH, DIM)).astype(numpy.float32)
    y = random.integers(0, num_classes, len(x))
    model.fit(x, y, batch_size=BATCH, verbose=0)
    return {
        "peak_gb": measure.peak_gb(),
        "estimate_gb": estimate.total_bytes / 1e9,
    }


def save(kind, num_classes, path):
    model, _ = make_model(kind, num_classes)
    step = step_of(model)
    for _ in range(3):
        step()
    before = measure.peak_gb()
    say("save begins")
    found = {"save_s": seconds(lambda: model.save(path))}
    found["saved_gb"] = os.path.getsize(path) / 1e9
    return {**found, "trained_gb": before, "peak_gb": measure.peak_gb()}


def load(kind, num_classes, path):
    import keras

    import tfxclass  # noqa: F401

    start = time.perf_counter()
    model = keras.models.load_model(path)
    found = {"load_s": time.perf_counter() - start}
    step_of(model)()
    return {**found, "load_peak_gb": measure.peak_gb()}


def recall(kind, num_classes, path):
    model, _ = make_model(kind, num_classes)
    queries = grouped.assign(model.layers[-1].kernel)
    return grouped.recall_of_forest(model.layers[-1], queries)


def export(kind, num_classes, path):
    import tfxclass

    model, _ = make_model(kind, num_classes)
    step_of(model)()
    dense, head = model.layers
    dense.set_weights([numpy.eye(DIM), numpy.zeros(DIM)])
    queries = grouped.assign(head.kernel)
    numpy.save(path + ".npy", queries)
    found = {"trained_gb": measure.peak_gb()}
    say("export begins")
    found["export_s"] = seconds(
        lambda: tfxclass.export.saved_model(
            model,
            path,
            search=tfxclass.export.InvertedLists(),
            example_inputs=queries,
            verify=False,
        )
    )
    return {**found, "export_peak_gb": measure.peak_gb()}


def serve(kind, num_classes, path):
    return grouped.serve(path, numpy.load(path + ".npy"))


def child(row, classes, stage, path):
    found = globals()[stage](ROWS[row][0], classes, path)
    print(json.dumps(found), flush=True)


def run_child(*arguments):
    """The child's last line; the others are passed on."""
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_ENABLE_ONEDNN_OPTS": "1",
    }
    command = [sys.executable, __file__, "--child", *map(str, arguments)]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment
    )
    last = ""
    for line in running.stdout:
        last = line
        say(f"{arguments[0]}: {line.strip()}")
    if running.wait():
        return {"error": f"exit status {running.returncode}"}
    return json.loads(last)


def run(row, classes):
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        for stage in ROWS[row][2]:
            found |= run_child(row, classes, stage, path)
            if "error" in found:
                break
    return found


def main(names):
    done = measure.finished(NAME)
    for row in names or ROWS:
        if any(line["row"] == row for line in done):
            continue
        classes = ROWS[row][1]
        done.append({"row": row, "classes": classes, **run(row, classes)})
        measure.save(NAME, done)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        row, classes, stage, path = sys.argv[2:]
        child(row, int(classes), stage, path)
    else:
        main(sys.argv[1:])
