"""Characters as classes: the papers' faces that anyone can draw again.

    python -m benchmarks.glyphs [--seeds 0 1 2]

`glyphs_data.py` has the drawings. Each job is one head with a small
convolutional encoder, in a process of its own with one thread; what has a
result in benchmarks/cache/glyphs is not run again. `jobs/identities.py` trains
the same encoder with other heads.
"""

import statistics

import keras
import numpy as np

import tfxclass
from benchmarks import glyphs_data
from benchmarks import measure
from benchmarks.comparison.groups import LABELS
from benchmarks.comparison.methods import cosine_head
from tfxclass import metrics

METHODS = (
    "uniform",
    "auto",
    "forest",
    "lsh",
    "full",
    "random",
    "forest_paper",
    "lsh_uncorrected",
)
STEPS = 4000
DIM, SCALE = 128, 24.0
BATCH, NEGATIVES = 256, 256
RATE = 3e-3
SHIFT = 2  # pixels that a drawing is moved by, at most
_PAIRS = 10  # unequal ones for an equal one


def make_encoder():
    """32 x 32 pixels to `DIM` features: three convolutions and a layer."""
    layers = keras.layers
    parts = [keras.Input([glyphs_data.SIDE, glyphs_data.SIDE, 1])]
    for filters, size in ((16, 5), (32, 3), (64, 3)):
        parts += [
            layers.Conv2D(filters, size, 2, "same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
        ]
    # Centred, as cosines of features that have much in common are all one.
    parts += [layers.Flatten(), layers.Dense(DIM), layers.BatchNormalization()]
    return keras.Sequential(parts)


def batches(data, seed):
    """Endless shuffled batches, each drawing moved by some pixels."""
    random = np.random.default_rng(seed)
    around = [(0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT)]
    side = glyphs_data.SIDE
    while True:
        order = random.permutation(len(data.y))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            which = order[start : start + BATCH]
            padded = np.pad(data.x[which], around)
            down, right = random.integers(0, 2 * SHIFT + 1, 2)
            x = padded[:, down : down + side, right : right + side]
            yield pixels(x), data.y[which]


def pixels(x):
    return (x[..., np.newaxis] / 255).astype(np.float32)


def accuracy(model, x, y):
    ids, _ = tfxclass.top_k(model, k=1).predict(pixels(x), 500, verbose=0)
    return float(np.mean(ids[:, 0] == y))


def verification(encoder, data):
    """Characters that were never learned: is it the same one in two fonts?"""
    rows = encoder.predict(pixels(data.new_x), batch_size=1024, verbose=0)
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    order = np.argsort(data.new_y, kind="stable")
    rows, y = rows[order], data.new_y[order]
    first = np.flatnonzero(y[1:] == y[:-1])
    equal = np.sum(rows[first] * rows[first + 1], axis=1)
    random = np.random.default_rng(0)
    pairs = random.integers(0, len(y), (2, _PAIRS * len(first)))
    pairs = pairs[:, y[pairs[0]] != y[pairs[1]]]
    unequal = np.sum(rows[pairs[0]] * rows[pairs[1]], axis=1)
    few = np.concatenate([equal, unequal[: len(equal)]])
    many = np.concatenate([equal, unequal])
    return {
        "verified": metrics.verification_accuracy(
            few, np.arange(len(few)) < len(equal)
        ),
        "TPR@0.001": metrics.true_positive_rate(
            many, np.arange(len(many)) < len(equal)
        ),
    }


def make_model(method, steps, seed, num_classes):
    keras.utils.set_random_seed(seed)
    encoder = make_encoder()
    head = cosine_head(method, num_classes, BATCH + NEGATIVES, SCALE, seed)
    model = keras.Sequential([encoder, head])
    decay = keras.optimizers.schedules.CosineDecay(RATE, steps)
    optimizer = tfxclass.optimizers.LazyAdam(decay)
    model.compile(optimizer, loss=head.loss)
    model.build((None, glyphs_data.SIDE, glyphs_data.SIDE, 1))
    optimizer.build(model.trainable_variables)
    return model, encoder


def trained(data, method, steps, seed):
    model, encoder = make_model(method, steps, seed, data.num_classes)
    seconds = measure.train(model, batches(data, seed), steps)
    return {
        "accuracy": accuracy(model, data.test_x, data.test_y),
        **verification(encoder, data),
        "ms a step": 1e3 * seconds / max(steps - 1, 1),
    }


def row(method, results):
    found = {"method": LABELS.get(method, method), "seeds": len(results)}
    found |= measure.means(results, *results[0])
    ends = [result["accuracy"] for result in results]
    return {**found, "accuracy +-": statistics.pstdev(ends)}


def child(*job):
    measure.use_one_thread()
    return trained(glyphs_data.load(), *job)


def main():
    measure.run_child(child)
    args = measure.arguments(__doc__, seeds=[0])
    glyphs_data.load()
    rows = []
    for method in METHODS:
        results = measure.of_all_seeds(
            "glyphs", method, STEPS, seeds=args.seeds, run=measure.ask
        )
        rows.append(row(method, results))
        measure.save("glyphs", rows)


if __name__ == "__main__":
    main()
