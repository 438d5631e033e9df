"""Ten and thirty million classes on one machine: memory, steps, saving.

    python benchmarks/ten_million.py [row ...]

Rows as in `ROWS`, "selective", "lsh", "sampled", "sampled_30m" and "save";
those in results/ten_million.json are not run again. Each in a fresh process:
128 dimensions, batch 256, 4,096 classes a step, class rows in bfloat16, one
Dense(128) before the head, LazyAdam(1e-3, compact_slots=True); labels and
features are drawn anew at each step. Means over 100 steps: before a refresh
of the index and, with an index, while one is under way (`refreshing_ms`); the
step that begins it is `begin_ms`. `peak_gb` is the process's, TensorFlow's own
0.6 GB included; `estimate_gb` is what `tfxclass.estimate` says.

"save" trains "selective" for some steps, saves it, and loads it in another
process, where it takes a step: `saved_gb` is the file, `peak_gb` of the process
that saves, `load_peak_gb` of the one that loads.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

import measure

BATCH, DIM, SAMPLED, STEPS = 256, 128, 4096, 100
MILLION = 10**6
# Head and classes.
ROWS = {
    "selective": ("SelectiveSoftmax", 10 * MILLION),
    "lsh": ("LSHSoftmax", 10 * MILLION),
    "sampled": ("SampledSoftmax", 10 * MILLION),
    "sampled_30m": ("SampledSoftmax", 30 * MILLION),
    "save": ("SelectiveSoftmax", 10 * MILLION),
}
# In steps: about what "auto" takes for a refresh of 10M classes.
INTERVAL = 5000
NAME = "ten_million"


def say(text):
    print(text, flush=True)


def make_model(kind, num_classes):
    import keras

    import tfxclass

    keras.utils.set_random_seed(0)
    options = {"kernel_dtype": "bfloat16"}
    if kind != "SampledSoftmax":
        options["rebuild_interval"] = INTERVAL
    head = getattr(tfxclass.layers, kind)(num_classes, SAMPLED, **options)
    optimizer = tfxclass.optimizers.LazyAdam(1e-3, compact_slots=True)
    estimate = tfxclass.estimate(head, DIM, BATCH, optimizer)
    model = keras.Sequential(
        [keras.Input([DIM]), keras.layers.Dense(DIM), head]
    )
    model.compile(optimizer, loss=head.loss)
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


def mean_ms(step):
    for _ in range(5):
        step()
    return seconds(lambda: [step() for _ in range(STEPS)]) * 1e3 / STEPS


def train(kind, num_classes):
    model, estimate = make_model(kind, num_classes)
    step, head = step_of(model), model.layers[-1]
    found = {"first_step_s": seconds(step)}
    say("steps begin")
    found["step_ms"] = mean_ms(step)
    if kind != "SampledSoftmax":
        head.sampler.step.assign(INTERVAL)
        found["begin_ms"] = seconds(step) * 1e3
        found["refreshing_ms"] = mean_ms(step)
    found["peak_gb"] = measure.peak_gb()
    found["estimate_gb"] = estimate.total_bytes / 1e9
    return found


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


def load(path):
    import keras

    import tfxclass  # noqa: F401

    start = time.perf_counter()
    model = keras.models.load_model(path)
    found = {"load_s": time.perf_counter() - start}
    step_of(model)()
    return {**found, "load_peak_gb": measure.peak_gb()}


def child(row, classes, path):
    kind = ROWS[row][0]
    if path == "":
        found = train(kind, classes)
    elif not os.path.exists(path):
        found = save(kind, classes, path)
    else:
        found = load(path)
    print(json.dumps(found), flush=True)


def run_child(row, classes, path=""):
    """The child's last line; the others are passed on."""
    environment = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_ENABLE_ONEDNN_OPTS": "1",
    }
    command = [sys.executable, __file__, "--child", row, str(classes), path]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment
    )
    last = ""
    for line in running.stdout:
        last = line
        say(f"{row}: {line.strip()}")
    if running.wait():
        return {"error": f"exit status {running.returncode}"}
    return json.loads(last)


def run(row, classes):
    if row != "save":
        return run_child(row, classes)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        found = run_child(row, classes, path)
        if "error" in found:
            return found
        return {**found, **run_child(row, classes, path)}


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
        child(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main(sys.argv[1:])
