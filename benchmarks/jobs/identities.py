"""Identities: characters as classes, a convolutional encoder from nothing.

    python -m benchmarks.jobs identities [--folder FOLDER] [--seeds 0 1 2]

Each head trains at three learning rates with the first seed. The best rate on
validation drawings is trained with the other seeds, too, and reported on test
drawings. Both kinds of drawings are of fonts that were not learned.
Verification asks whether two drawings in such fonts show the same character,
for characters that were never learned. FOLDER is for the fonts and drawings
(`benchmarks/glyphs_data.py`). What has a result in benchmarks/cache is not run
again.
"""

import argparse
import json
import os
import statistics
import time

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from benchmarks import glyphs_data
from benchmarks import glyphs_train
from benchmarks import measure

NAME = "jobs/identities"
FOLDER = os.path.join(measure.CACHE, "glyphs")
RATES = (3e-4, 1e-3, 3e-3)
SCALE, NUM_SAMPLED, TESTED = 24.0, 512, 4000


def cosine(**margin):
    return {"similarity": tfxclass.layers.Cosine(scale=SCALE, **margin)}


def sampled(sampler, **margin):
    def make(num_classes):
        return tfxclass.layers.SampledSoftmax(
            num_classes, NUM_SAMPLED, sampler, **cosine(**margin)
        )

    return make


HEADS = {
    "FullSoftmax": lambda n: tfxclass.layers.FullSoftmax(n, **cosine()),
    "SampledSoftmax, uniform": sampled("uniform"),
    "SampledSoftmax, auto": sampled("auto"),
    "SelectiveSoftmax": lambda n: tfxclass.layers.SelectiveSoftmax(
        n, NUM_SAMPLED, **cosine()
    ),
    "LSHSoftmax": lambda n: tfxclass.layers.LSHSoftmax(
        n, NUM_SAMPLED, **cosine()
    ),
    "ProjectedSoftmax": lambda n: tfxclass.layers.ProjectedSoftmax(
        n, 32, **cosine()
    ),
    "HierarchicalSoftmax": lambda n: tfxclass.layers.HierarchicalSoftmax(
        n, tree="balanced"
    ),
    "auto, CosFace": sampled("auto", margin=0.2),
    "auto, ArcFace": sampled("auto", margin=0.2, margin_type="arcface"),
}


def child(folder, method, rate, seed, steps):
    """Trains one head at one rate; the result, a dict."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    keras.utils.set_random_seed(seed)
    data = glyphs_data.load(folder)
    encoder = glyphs_train.make_encoder()
    head = HEADS[method](data.num_classes)
    model = keras.Sequential([encoder, head])
    schedule = keras.optimizers.schedules.CosineDecay(rate, steps)
    model.compile(tfxclass.optimizers.HeadAdam(schedule), loss=head.loss)
    source = glyphs_train.batches(data, seed)
    step = tf.function(lambda x, y: model.train_step((x, y)))
    seconds = 0.0
    for number in range(steps):
        x, y = map(tf.constant, next(source))
        begin = time.process_time()
        step(x, y)
        if number:  # The first step traces the graph.
            seconds += time.process_time() - begin
    order = np.random.default_rng(9).permutation(len(data.test_y))
    best = tfxclass.top_k(model, k=1)
    found = {}
    for part, rows in (
        ("validation", order[:TESTED]),
        ("accuracy", order[TESTED : 3 * TESTED]),
    ):
        x = glyphs_train.pixels(data.test_x[rows])
        ids = best.predict(x, 500, verbose=0)[0][:, 0]
        found[part] = float(np.mean(ids == data.test_y[rows]))
    found["TPR@0.001"] = glyphs_train.verification(encoder, data)["TPR@0.001"]
    return {**found, "CPU s": seconds, "GB": measure.peak_gb()}


def best_of(results):
    """The result of the rate with the best validation accuracy."""
    return max(results.items(), key=lambda item: item[1]["validation"])


def row_of(method, rate, results):
    """Means over seeds of the best rate, and the range of both accuracies."""
    found = {"head": method, "rate": rate, "seeds": len(results)}
    digits = {"CPU s": 0, "GB": 2}
    for key in ("accuracy", "TPR@0.001", "CPU s", "GB"):
        values = [result[key] for result in results]
        found[key] = round(statistics.fmean(values), digits.get(key, 3))
    for key in ("accuracy", "TPR@0.001"):
        values = [result[key] for result in results]
        found[f"{key}, range"] = f"{min(values):.3f} to {max(values):.3f}"
    return found


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default=FOLDER)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=[*HEADS])
    parser.add_argument("--child", nargs=3)
    args = parser.parse_args(argv)
    if args.child:
        method, rate, seed = args.child
        found = child(args.folder, method, float(rate), int(seed), args.steps)
        print(json.dumps(found))
        return
    glyphs_data.load(args.folder)
    rows = []
    for method in args.heads:
        first, *others = args.seeds
        tried = {r: result_of(args, method, r, first) for r in RATES}
        tried = {r: x for r, x in tried.items() if "error" not in x}
        if not tried:
            continue
        rate, best = best_of(tried)
        results = [best]
        results += [result_of(args, method, rate, seed) for seed in others]
        rows.append(row_of(method, rate, results))
        print(rows[-1], flush=True)
    command = f"python -m benchmarks.jobs identities --steps {args.steps}"
    measure.save(NAME, rows, command=command)


def result_of(args, method, rate, seed):
    """The result of a job, from the cache or from a process of its own."""
    name = f"{method}, {rate:g}, {seed}, {args.steps}.json"
    path = os.path.join(measure.CACHE, "identities", name)
    if not os.path.exists(path):
        own = ["--folder", args.folder, "--steps", args.steps, "--child"]
        found = measure.in_fresh_process(
            "-m", "benchmarks.jobs", "identities", *own, method, rate, seed
        )
        if "error" in found:
            print(method, rate, seed, found, flush=True)
            return found
        measure.write(path, found)
    with open(path) as f:
        return json.load(f)
