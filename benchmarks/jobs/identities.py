"""Identities: characters as classes, a convolutional encoder from nothing.

    python -m benchmarks.jobs.identities [FOLDER]

Each head trains at three learning rates with the first seed. The best rate on
validation drawings is trained with the other seeds, too, and reported on test
drawings. Both kinds of drawings are of fonts that were not learned.
Verification asks whether two drawings in such fonts show the same character,
for characters that were never learned. FOLDER is for the fonts and drawings
(`benchmarks/glyphs_data.py`). What has a result in benchmarks/cache is not run
again.
"""

import os
import statistics
import sys

import keras
import numpy as np

import tfxclass
from benchmarks import glyphs
from benchmarks import glyphs_data
from benchmarks import measure

FOLDER = os.path.join(measure.CACHE, "glyphs")
RATES, SEEDS, STEPS = (3e-4, 1e-3, 3e-3), 3, 1500
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


def child(folder, method, rate, seed):
    """Trains one head at one rate; the result, a dict."""
    measure.use_one_thread()
    keras.utils.set_random_seed(seed)
    data = glyphs_data.load(folder)
    encoder = glyphs.make_encoder()
    head = HEADS[method](data.num_classes)
    model = keras.Sequential([encoder, head])
    schedule = keras.optimizers.schedules.CosineDecay(rate, STEPS)
    model.compile(tfxclass.optimizers.HeadAdam(schedule), loss=head.loss)
    seconds = glyphs.train(model, data, STEPS, seed)
    order = np.random.default_rng(9).permutation(len(data.test_y))
    best = tfxclass.top_k(model, k=1)
    found = {}
    for part, rows in (
        ("validation", order[:TESTED]),
        ("accuracy", order[TESTED : 3 * TESTED]),
    ):
        x = glyphs.pixels(data.test_x[rows])
        ids = best.predict(x, 500, verbose=0)[0][:, 0]
        found[part] = float(np.mean(ids == data.test_y[rows]))
    found["TPR@0.001"] = glyphs.verification(encoder, data)["TPR@0.001"]
    return {**found, "CPU s": seconds, "GB": measure.peak_gb()}


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


def main():
    """Chooses the rate of each head, and saves a row for it."""
    measure.run_child(child)
    folder = sys.argv[1] if sys.argv[1:] else FOLDER
    glyphs_data.load(folder)

    def result(*job):
        return measure.once("identities", *job, folder=folder)

    rows = []
    for method in HEADS:
        tried = {rate: result(method, rate, 0) for rate in RATES}
        tried = {r: x for r, x in tried.items() if "error" not in x}
        if not tried:
            continue
        rate = max(tried, key=lambda rate: tried[rate]["validation"])
        others = [result(method, rate, seed) for seed in range(1, SEEDS)]
        rows.append(row_of(method, rate, [tried[rate], *others]))
        measure.save("jobs/identities", rows)


if __name__ == "__main__":
    main()
