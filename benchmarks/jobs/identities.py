"""Identities: characters as classes, a convolutional encoder from nothing.

    python -m benchmarks.jobs.identities

Each head trains at three learning rates with the first seed; the best rate on
validation drawings is trained with the other seeds, too. What has a result in
benchmarks/cache is not run again.
"""

import keras
import numpy as np

import tfxclass
from benchmarks import glyphs
from benchmarks import glyphs_data
from benchmarks import measure
from tfxclass import layers

RATES, SEEDS, STEPS = (3e-4, 1e-3, 3e-3), 3, 1500
SCALE, NUM_SAMPLED, TESTED = 24.0, 512, 4000


def cosine(**margin):
    return {"similarity": layers.Cosine(scale=SCALE, **margin)}


def sampled(num_classes, sampler, **margin):
    return layers.SampledSoftmax(
        num_classes, NUM_SAMPLED, sampler, **cosine(**margin)
    )


HEADS = {
    "FullSoftmax": lambda n: layers.FullSoftmax(n, **cosine()),
    "SampledSoftmax, uniform": lambda n: sampled(n, "uniform"),
    "SampledSoftmax, auto": lambda n: sampled(n, "auto"),
    "SelectiveSoftmax": lambda n: layers.SelectiveSoftmax(
        n, NUM_SAMPLED, **cosine()
    ),
    "LSHSoftmax": lambda n: layers.LSHSoftmax(n, NUM_SAMPLED, **cosine()),
    "ProjectedSoftmax": lambda n: layers.ProjectedSoftmax(n, 32, **cosine()),
    "HierarchicalSoftmax": lambda n: layers.HierarchicalSoftmax(
        n, tree="balanced"
    ),
    "auto, CosFace": lambda n: sampled(n, "auto", margin=0.2),
    "auto, ArcFace": lambda n: sampled(
        n, "auto", margin=0.2, margin_type="arcface"
    ),
}


def child(method, rate, seed):
    measure.use_one_thread()
    keras.utils.set_random_seed(seed)
    data = glyphs_data.load()
    encoder = glyphs.make_encoder()
    head = HEADS[method](data.num_classes)
    model = keras.Sequential([encoder, head])
    schedule = keras.optimizers.schedules.CosineDecay(rate, STEPS)
    model.compile(tfxclass.optimizers.HeadAdam(schedule), loss=head.loss)
    seconds = measure.train(model, glyphs.batches(data, seed), STEPS)
    order = np.random.default_rng(9).permutation(len(data.test_y))
    validation, accuracy = (
        glyphs.accuracy(model, data.test_x[rows], data.test_y[rows])
        for rows in (order[:TESTED], order[TESTED : 3 * TESTED])
    )
    found = {"validation": validation, "accuracy": accuracy}
    found["TPR@0.001"] = glyphs.verification(encoder, data)["TPR@0.001"]
    return {**found, "CPU s": seconds, "GB": measure.peak_gb()}


def row_of(method, rate, results):
    """Means over seeds of the best rate, and the range of both accuracies."""
    found = {"head": method, "rate": rate, "seeds": len(results)}
    found |= measure.means(results, "accuracy", "TPR@0.001", "CPU s", "GB")
    for key in ("accuracy", "TPR@0.001"):
        values = [result[key] for result in results]
        found[f"{key}, range"] = f"{min(values):.3f} to {max(values):.3f}"
    return found


def main():
    measure.run_child(child)
    glyphs_data.load()
    rows = []
    for method in HEADS:

        def results(rate, seeds, method=method):
            job = "identities", method, rate
            return measure.of_all_seeds(*job, seeds=seeds, run=measure.ask)

        best, _ = measure.best_rate(
            RATES, lambda rate: results(rate, [0])[0]["validation"]
        )
        rows.append(row_of(method, best, results(best, range(SEEDS))))
        measure.save("jobs/identities", rows)


if __name__ == "__main__":
    main()
