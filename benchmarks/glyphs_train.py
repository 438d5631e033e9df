"""One job of `glyphs.py`: a small convolutional encoder and a head.

    python -m benchmarks.glyphs_train FOLDER JOB

JOB is the JSON of a `GlyphsJob`; the last line of output is the result, JSON.
One thread, so that seconds of the CPU are those of the steps.
"""

import json
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from benchmarks import glyphs_data
from benchmarks.comparison.usual_heads import make_head
from benchmarks.comparison.usual_heads import noise
from benchmarks.glyphs import GlyphsJob
from tfxclass import metrics

DIM, SCALE = 128, 24.0
BATCH, NEGATIVES = 256, 256
RATE = 3e-3
SHIFT = 2  # pixels that a drawing is moved by, at most
TESTED, PROBED = 4000, 64
POINTS = 12
_PAIRS = 10  # unequal ones for an equal one
_STRETCH = 1024  # drawings that are embedded at a time


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
    rows = keras.utils.normalize(head.class_matrix().numpy(), axis=1)
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


def learning_curve(job, model, encoder, head, data):
    """Trains; what is measured along the way, a list of dicts."""
    random = np.random.default_rng(9)
    tested = random.permutation(len(data.test_y))[:TESTED]
    probed = random.permutation(len(data.y))[:PROBED]
    source = batches(data, job.seed)
    step = tf.function(lambda x, y: model.train_step((x, y)))
    step.get_concrete_function(*map(tf.constant, next(source)))
    marks = [job.steps * (i + 1) // POINTS for i in range(POINTS)]
    curve, cpu = [], 0.0
    for number in range(1, job.steps + 1):
        x, y = map(tf.constant, next(source))
        begin = time.process_time()
        step(x, y)
        cpu += time.process_time() - begin
        if number not in marks:
            continue
        state = getattr(getattr(head, "sampler", None), "measured", {})
        queries = head.queries(encoder(pixels(data.x[probed]), training=False))
        curve.append(
            {
                "step": number,
                "cpu_s": cpu,
                "accuracy": accuracy(
                    encoder, head, data.test_x[tested], data.test_y[tested]
                ),
                **noise(head, queries, data.y[probed], NEGATIVES),
                "sampler": {key: float(state[key]) for key in state},
            }
        )
    return curve


def make_model(job, num_classes):
    """`(model, encoder, head)` of a `GlyphsJob`, compiled."""
    keras.utils.set_random_seed(job.seed)
    encoder = make_encoder()
    head = make_head(
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
    curve = learning_curve(job, model, encoder, head, data)
    return {
        "data": glyphs_data.about(data),
        "curve": curve,
        "accuracy": accuracy(encoder, head, data.test_x, data.test_y),
        **verification(encoder, data),
    }


def main(folder, text):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    job = GlyphsJob(**json.loads(text))
    print(json.dumps(trained(job, glyphs_data.load(folder))))


if __name__ == "__main__":
    main(*sys.argv[1:])
