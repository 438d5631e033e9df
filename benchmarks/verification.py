"""Features of slim models, judged on identities that were not trained on.

    python benchmarks/verification.py DATA [row ...] [--seeds 3]

Tables 2 and 4 of the RP paper (Yuan et al., 2020). DATA is the folder of
verses_data.py. A verse is an identity, a translation a picture of it. Every
27th verse trains, in three translations: 1,151 classes. The features are 2,048
numbers, as the paper's: a vector for each word, the mean weighted by rarity, of
length LENGTH. RP(m) has m numbers a class, and "untrained" is the beginning. Of
verses that were not trained on, the fourth translation is compared with the
first by the cosine of the features: the accuracy over as many unequal as equal
pairs, which is the paper's measure; the true positive rate at a false positive
rate of 0.001, with ten times as many unequal pairs; and whether a verse's
nearest one is its own. 3,453 of these verses choose the rate of each row by the
accuracy (seed 0), with more rates where the best is at an edge; 3,453 others
are the test. Jobs that are done lie in benchmarks/cache/verification.
"""

import argparse
import os
import time

import measure
import numpy as np
import verses_data

NAME = "verification"
FEATURES, LENGTH, BATCH, STEP, EPOCHS = 2048, 20.0, 128, 27, 4
PARTS = {"validation": (1, 2, 3), "test": (4, 5, 6)}  # rests by STEP
WIDTHS = {"untrained": 0, "full": 0, "RP(10)": 10, "RP(100)": 100}
FIRST_RATES = (0.002, 0.004, 0.008)


def make_model(num_words, num_classes, width, rate, seed):
    """The encoder, and a compiled model of it and a head."""
    import keras

    from tfxclass import layers
    from tfxclass import optimizers

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
    """What the two parts of the other verses reach, a dict."""
    x, y, test_x, test_y, idf = data

    def inputs(x):
        return [x.astype(np.int64), idf[x]]

    num_classes = -(-len(test_y) // STEP)
    encoder, model = make_model(len(idf), num_classes, WIDTHS[row], rate, seed)
    train, cpu = y % STEP == 0, time.process_time()
    if row != "untrained":
        given = inputs(x[train]), y[train] // STEP
        model.fit(*given, batch_size=BATCH, epochs=EPOCHS, verbose=0)
    took = time.process_time() - cpu
    return {"train_cpu_s": took, **evaluate_parts(encoder, data, inputs)}


def evaluate_parts(encoder, data, inputs):
    """Scores of the validation and the test identities, a dict of dicts."""
    x, _, test_x, test_y, _ = data
    found = {}
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
    from tfxclass import metrics

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
    """The row of the table: the best rate, and its seeds."""

    def once(rate, seed=0):
        path = f"{row},{rate:g},{seed}.json"
        return measure.kept(
            os.path.join(measure.CACHE, NAME, path),
            lambda: result_of(data, row, rate, seed),
        )

    tried, pending = {}, FIRST_RATES if row != "untrained" else (0.0,)
    while pending:
        for rate in pending:
            tried[rate] = once(rate)["validation"]["accuracy"]
            print(row, rate, tried[rate], flush=True)
        best = max(tried, key=tried.get)
        edges = {min(tried): (best / 2,), max(tried): (best * 2,)}
        pending = edges.get(best, ()) if best else ()
    ends = [once(best, seed) for seed in range(num_seeds)]
    about = {"row": row, "rate": best, "best of": len(tried)}
    scores = measure.of_seeds([end["test"] for end in ends])
    return {**about, **scores, "train_cpu_s": ends[0]["train_cpu_s"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("rows", nargs="*", default=list(WIDTHS))
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    data = verses_data.load(args.folder)
    measure.save(NAME, [row_of(data, row, args.seeds) for row in args.rows])


if __name__ == "__main__":
    main()
