"""Characters as classes: the papers' faces that anyone can draw again.

    python -m benchmarks.glyphs [FOLDER] [--seeds 0 1 2]

FOLDER is for the fonts and the drawings (`glyphs_data.py`), by default under
benchmarks/cache. Each job is one head with a small convolutional encoder,
trained for so many steps, in a process of its own with one thread. A job that
has a result, under benchmarks/cache/glyphs, is not run again.
results/glyphs.json has means over seeds. `jobs/identities.py` trains the same
encoder with other heads.
"""

import argparse
import os
import statistics
import time
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from benchmarks import glyphs_data
from benchmarks import measure
from benchmarks.comparison.groups import LABELS
from benchmarks.comparison.methods import cosine_head
from tfxclass import metrics

CACHE = os.path.join(measure.CACHE, "glyphs")
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
_STRETCH = 1024  # drawings that are embedded at a time


class GlyphsJob(NamedTuple):
    """A head, trained for so many steps."""

    method: str
    steps: int
    seed: int = 0


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


def embedded(encoder, x):
    """Features of unit length, float32 `[n, DIM]`."""
    stretches = [
        encoder(pixels(x[i : i + _STRETCH]), training=False).numpy()
        for i in range(0, len(x), _STRETCH)
    ]
    found = np.concatenate(stretches)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def accuracy(encoder, head, x, y):
    rows = keras.utils.normalize(head.class_matrix.values().numpy(), axis=1)
    best = [
        np.argmax(part @ rows.T, axis=1)
        for part in np.array_split(embedded(encoder, x), len(x) // 500 + 1)
    ]
    return float(np.mean(np.concatenate(best) == y))


def verification(encoder, data):
    """Characters that were never learned: is it the same one in two fonts?"""
    rows, y = embedded(encoder, data.new_x), data.new_y
    order = np.argsort(y, kind="stable")
    rows, y = rows[order], y[order]
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


def train(model, data, steps, seed):
    """CPU seconds of the steps; the first one, which traces, is left out."""
    source = batches(data, seed)
    step = tf.function(lambda x, y: model.train_step((x, y)))
    seconds = 0.0
    for number in range(steps):
        x, y = map(tf.constant, next(source))
        begin = time.process_time()
        step(x, y)
        if number:
            seconds += time.process_time() - begin
    return seconds


def make_model(job, num_classes):
    """`(model, encoder, head)` of a `GlyphsJob`, compiled."""
    keras.utils.set_random_seed(job.seed)
    encoder = make_encoder()
    head = cosine_head(
        job.method, num_classes, BATCH + NEGATIVES, SCALE, job.seed
    )
    model = keras.Sequential([encoder, head])
    decay = keras.optimizers.schedules.CosineDecay(RATE, job.steps)
    optimizer = tfxclass.optimizers.LazyAdam(decay)
    model.compile(optimizer, loss=head.loss)
    model.build((None, glyphs_data.SIDE, glyphs_data.SIDE, 1))
    optimizer.build(model.trainable_variables)
    return model, encoder, head


def trained(job, data):
    """The result of a job, a dict."""
    model, encoder, head = make_model(job, data.num_classes)
    seconds = train(model, data, job.steps, job.seed)
    return {
        "accuracy": accuracy(encoder, head, data.test_x, data.test_y),
        **verification(encoder, data),
        "ms a step": 1e3 * seconds / max(job.steps - 1, 1),
    }


def row(method, results):
    """Means over seeds, and the deviation of the accuracy."""
    found = {"method": LABELS.get(method, method), "seeds": len(results)}
    for key in results[0]:
        found[key] = statistics.fmean(result[key] for result in results)
    ends = [result["accuracy"] for result in results]
    return {**found, "accuracy +-": statistics.pstdev(ends)}


def child(folder, method, steps, seed):
    measure.use_one_thread()
    job = GlyphsJob(method, steps, seed)
    return trained(job, glyphs_data.load(folder))


def main():
    measure.run_child(child)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=CACHE)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    args = parser.parse_args()
    glyphs_data.load(args.folder)
    rows = []
    for method in METHODS:
        jobs = [(method, STEPS, seed) for seed in args.seeds]
        results = [
            measure.once("glyphs", *job, folder=args.folder) for job in jobs
        ]
        results = [result for result in results if "error" not in result]
        if results:
            rows.append(row(method, results))
            measure.save("glyphs", rows)


if __name__ == "__main__":
    main()
