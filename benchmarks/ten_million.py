"""Ten and thirty million classes on one machine: memory, steps, saving.

    python benchmarks/ten_million.py [row ...]

Rows of `ROWS` that are in results/ten_million.json are not run again. Each
stage has a fresh process: class vectors in bfloat16, one Dense(128) before the
head, compact optimizer state; labels and features are drawn anew at each step.
Means over 100 steps, in time and in the time of the cores (`cpu`): before a
refresh of the index and, with an index, while one is under way. `peak_gb` is
the process's, TensorFlow's own 0.6 GB included; `estimate_gb` is what
`tfxclass.estimate` says. "save" trains some steps, saves, and loads in another
process, where it takes a step. "recall" has class vectors in groups of 100 and
queries near to them: the part of the 64 exact best classes that the forest
finds.
"""

import os
import sys
import tempfile

import keras
import measure
import numpy as np
import step_time
import tensorflow as tf

import tfxclass

NAME = "ten_million"
SAMPLED, STEPS = 4096, 100
IN_GROUP, QUERIES, K, SPREAD = 100, 256, 64, 0.5
# Class vectors that are drawn at a time.
CHUNK = 1 << 18
MILLION = 10**6
#: Head, classes and stages, each in a process of its own.
ROWS = {
    "selective": ("SelectiveSoftmax", 10 * MILLION, ["train"]),
    "lsh": ("LSHSoftmax", 10 * MILLION, ["train"]),
    "sampled": ("SampledSoftmax", 10 * MILLION, ["train"]),
    "sampled_30m": ("SampledSoftmax", 30 * MILLION, ["train"]),
    "save": ("SelectiveSoftmax", 10 * MILLION, ["save", "load"]),
    "recall": ("SelectiveSoftmax", 10 * MILLION, ["recall"]),
}
# In steps: about what "auto" takes for a refresh of 10M classes.
INTERVAL = 5000


def assign_groups(kernel):
    """Sets class vectors in groups; returns queries, float32 [256, dim]."""
    count, dim = kernel.shape
    rng = np.random.default_rng(0)
    groups = count // IN_GROUP
    centres = rng.standard_normal((groups, dim), np.float32)

    def draw(many):
        noise = rng.standard_normal((many, dim), np.float32)
        return centres[rng.integers(groups, size=many)] + SPREAD * noise

    for first in range(0, count, CHUNK):
        rows = draw(min(CHUNK, count - first))
        kernel.value[first : first + len(rows)].assign(
            tf.cast(rows, kernel.dtype)
        )
    return draw(QUERIES)


def make_model(kind, num_classes):
    keras.utils.set_random_seed(0)
    samplers, sampler = tfxclass.samplers, "auto"
    if kind == "SelectiveSoftmax":
        options = {"rebuild_interval": INTERVAL}
        sampler = samplers.HashingForestSampler(SAMPLED, **options)
    if kind == "LSHSoftmax":
        tables = samplers.LSHTables(rebuild_interval=INTERVAL)
        sampler = samplers.LSHSampler(SAMPLED, tables)
    head = getattr(tfxclass.layers, kind)(
        num_classes, SAMPLED, sampler, kernel_dtype="bfloat16"
    )
    optimizer = tfxclass.optimizers.LazyAdam(
        1e-3, second_moment="row", slot_dtype="bfloat16"
    )
    estimate = tfxclass.estimate(
        head, step_time.DIM, step_time.BATCH, optimizer
    )
    return step_time.make_model(head, optimizer), estimate


def step_of(model):
    num_classes = model.layers[-1].num_classes

    return tf.function(
        lambda: model.train_step(step_time.random_batch(num_classes))
    )


def timed(step, name):
    """Means of time and of the processor's, all threads, of a step."""
    for _ in range(5):
        step()
    wall, cpu = measure.mean_ms(step, STEPS)
    return {f"{name}_ms": wall, f"{name}_cpu_ms": cpu}


def train(kind, num_classes, _):
    model, estimate = make_model(kind, num_classes)
    step, head = step_of(model), model.layers[-1]
    with measure.Stopwatch() as clock:
        step()
    found = {"first_step_s": clock.wall, **timed(step, "step")}
    if kind != "SampledSoftmax":
        # The step after these begins a refresh.
        head.sampler.step.assign(INTERVAL)
        step()
        found |= timed(step, "refreshing")
    found["peak_gb"] = measure.peak_gb()
    found["estimate_gb"] = estimate.total_bytes / 1e9
    return found


def save(kind, num_classes, path):
    model, _ = make_model(kind, num_classes)
    step = step_of(model)
    for _ in range(3):
        step()
    with measure.Stopwatch() as clock:
        model.save(path)
    found = {"save_s": clock.wall, "saved_gb": os.path.getsize(path) / 1e9}
    return {**found, "peak_gb": measure.peak_gb()}


def load(kind, num_classes, path):
    with measure.Stopwatch() as clock:
        model = keras.models.load_model(path)
    step_of(model)()
    return {"load_s": clock.wall, "load_peak_gb": measure.peak_gb()}


def recall(kind, num_classes, _):
    model, _ = make_model(kind, num_classes)
    head = model.layers[-1]
    queries, sampler = assign_groups(head.kernel), head.sampler
    trees, sketch = sampler.source.trees_and_sketch(
        *head.kernel.shape, sampler.neighbor_cache is not None
    )
    with measure.Stopwatch() as clock:
        sampler.rebuild(head.kernel)
    found = {"build_s": clock.wall}
    truth = head.top_k(queries, K)[0].numpy()
    found |= {"trees": trees, "sketch": sketch, "peak_gb": measure.peak_gb()}
    for candidates in (64, 0):
        ids, _ = sampler.index.query(
            head.kernel, queries, K, num_candidates=candidates
        )
        pairs = zip(ids.numpy(), truth, strict=True)
        shared = sum(len(set(a) & set(b)) for a, b in pairs)
        found[f"recall_of_{candidates or 'all'}"] = shared / truth.size
    return found


STAGES = {"train": train, "save": save, "load": load, "recall": recall}


def child(stage, *job):
    return STAGES[stage](*job)


def main():
    """Runs the rows that have no result, stage by stage."""
    measure.run_child(child)
    done = measure.finished(NAME)
    for name in sys.argv[1:] or ROWS:
        if any(line["row"] == name for line in done):
            continue
        kind, classes, stages = ROWS[name]
        row = {"row": name, "classes": classes}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.keras")
            for stage in stages:
                row |= measure.ask(stage, kind, classes, path)
                if "error" in row:
                    break
        done.append(row)
        measure.save(NAME, done)


if __name__ == "__main__":
    main()
