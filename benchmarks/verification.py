"""Features of slim models, judged on identities that were not trained on.

    python benchmarks/verification.py DATA [row ...] [--seeds 3]

Tables 2 and 4 of the RP paper (Yuan et al., 2020). DATA is the folder of
files.verses. A verse is an identity, a translation a picture of it. Every
27th verse trains, in three translations: 1,151 classes. The features are 2,048
numbers, as the paper's: the mean of a vector for each word, weighted by rarity,
scaled to length LENGTH. The test compares the fourth translation of other
verses with their first by the cosine of the features. There are three measures:
the accuracy over as many unequal as equal pairs, which is the paper's; the true
positive rate at a false positive rate of 0.001, with ten times as many unequal
pairs; and whether the nearest verse is the right one. 3,453 verses choose the
rate of each row by the accuracy (seed 0), and 3,453 others are the test.
"""

import functools

import files
import keras
import measure
import numpy as np

from tfxclass import layers
from tfxclass import metrics
from tfxclass import optimizers

NAME = "verification"
FEATURES, LENGTH, BATCH, STEP, EPOCHS = 2048, 20.0, 128, 27, 4
PARTS = {"validation": (1, 2, 3), "test": (4, 5, 6)}  # rests by STEP
WIDTHS = {"untrained": 0, "full": 0, "RP(10)": 10, "RP(100)": 100}
FIRST_RATES = (0.002, 0.004, 0.008)


def make_model(num_words, num_classes, width, rate, seed):
    """The encoder, and a compiled model of it and a head."""
    keras.utils.set_random_seed(seed)
    ids, values = keras.Input([None], dtype="int64"), keras.Input([None])
    first = keras.initializers.RandomNormal(FEATURES**-0.5, seed=seed)
    features = layers.SparseDense(
        num_words, FEATURES, use_bias=False, kernel_initializer=first
    )(ids, values)
    features = LENGTH * keras.layers.UnitNormalization()(features)
    head = layers.FullSoftmax(num_classes, seed=seed)
    if width:
        head = layers.ProjectedSoftmax(num_classes, width, seed=seed)
    model = keras.Model([ids, values], head(features))
    model.compile(optimizers.LazyAdam(rate), loss=head.loss)
    return keras.Model([ids, values], features), model


def result_of(data, row, rate, seed):
    def train(model, inputs, labels):
        if row != "untrained":
            model.fit(
                inputs, labels, batch_size=BATCH, epochs=EPOCHS, verbose=0
            )

    return trained(data, WIDTHS[row], rate, seed, train)


def trained(data, width, rate, seed, train):
    """`result_of` a model that `train(model, inputs, labels)` trains."""
    x, y, test_x, test_y, idf = data

    def inputs(x):
        return [x.astype(np.int64), idf[x]]

    num_classes = -(-len(test_y) // STEP)
    encoder, model = make_model(len(idf), num_classes, width, rate, seed)
    kept = y % STEP == 0
    with measure.Stopwatch() as clock:
        train(model, inputs(x[kept]), y[kept] // STEP)
    found = {"train_cpu_s": clock.cpu}
    for part, rests in PARTS.items():
        kept = np.isin(test_y % STEP, rests)
        # Both translations have the verses in one order.
        pair = inputs(test_x[kept]), inputs(x[: len(test_y)][kept])
        found[part] = evaluate(
            *(encoder.predict(p, batch_size=512, verbose=0) for p in pair)
        )
    return found


def evaluate(queries, gallery):
    """Scores of two pictures of each identity, `[identities, features]`."""
    queries, gallery = (
        part / np.linalg.norm(part, axis=1, keepdims=True)
        for part in (queries, gallery)
    )
    shifts = np.random.default_rng(0).choice(len(gallery) - 1, 10, False) + 1
    equal, *unequal = (
        np.einsum("ij,ij->i", queries, np.roll(gallery, n, axis=0))
        for n in (0, *shifts)
    )
    pairs = np.stack([equal, unequal[0]], axis=1).ravel()
    many, own = np.concatenate([equal, *unequal]), np.arange(len(equal))
    return {
        "accuracy": metrics.verification_accuracy(
            pairs, np.tile([True, False], len(equal))
        ),
        "TPR@0.001": metrics.true_positive_rate(
            many, np.arange(len(many)) < len(equal)
        ),
        "hit rate@1": metrics.hit_rate(queries, gallery, own, own),
    }


def row_of(data, row, num_seeds):
    run = functools.partial(result_of, data)

    def validation(rate):
        found = measure.once(NAME, row, rate, 0, run=run)
        return found["validation"]["accuracy"]

    best, tried = 0.0, {0.0: None}
    if row != "untrained":
        best, tried = measure.best_rate(FIRST_RATES, validation, factor=2)
    ends = measure.of_all_seeds(
        NAME, row, best, seeds=range(num_seeds), run=run
    )
    about = {"row": row, "rate": best, "best of": len(tried)}
    scores = measure.of_seeds([end["test"] for end in ends])
    return {**about, **scores, "train_cpu_s": ends[0]["train_cpu_s"]}


def main():
    args = measure.arguments(
        __doc__, first=["folder", "rows"], rows=list(WIDTHS), seeds=3
    )
    data = files.verses(args.folder)
    measure.save(NAME, [row_of(data, row, args.seeds) for row in args.rows])


if __name__ == "__main__":
    main()
