"""Embedding quality of slim models: verses as identities.

    python benchmarks/verification.py DATA [row ...] [--epochs 6] [--seeds 3]
        [--small]

DATA and encoder are those of verses.py. A verse is an identity with three views
to learn from; the fourth (ylt) is matched by cosine with the first (kjv), by
the 128-wide features alone: accuracy over 31,077 equal and as many unequal
pairs, true positive rate at a false positive rate of 0.001 (of 310,770 unequal
pairs), and whether a verse's own is among the k nearest. "pretrain": half of
the epochs on a tenth of the classes, the other half on all. "step (lift)
+ fine-tuned": two thirds of the epochs slim, recovered by that method, then the
full softmax. Rows that are done are not run again: delete
results/verification.json, and cache/verification with a file for each seed, to
start over. "--small": every third verse, dot products alone.
"""

import json
import time

import measure
import numpy as np
import verses
import verses_data

COSINE = {"similarity": "cosine"}
FULL, SLIM = "FullSoftmax", "ProjectedSoftmax"
PRETRAIN = "pretrain"
RECOVERED = {
    f"RP(64), {method} + fine-tuned": method for method in ("step", "lift")
}
SMALL_ROWS = ("full", "RP(64)", *RECOVERED)
ROWS = {
    "full": (FULL, {}),
    "full cosine": (FULL, COSINE),
    PRETRAIN: (FULL, COSINE),
    "RP(16) cosine": (SLIM, {"projection_dim": 16, **COSINE}),
    "RP(64) cosine": (SLIM, {"projection_dim": 64, **COSINE}),
    "RP(64)": (SLIM, {"projection_dim": 64, "l2": 1e-7}),
    **{row: (SLIM, {"projection_dim": 64, "l2": 1e-7}) for row in RECOVERED},
    "RP(64) cosine + sampled": (
        SLIM,
        {
            "projection_dim": 64,
            "sampler": "uniform",
            "num_sampled": 2048,
            **COSINE,
        },
    ),
}


def make_model(head, num_words):
    """The plain encoder of verses.py, and its features."""
    import keras

    inputs = keras.Input([verses_data.LENGTH], dtype="int32")
    vectors = keras.layers.Embedding(num_words, verses.DIM)(inputs)
    shown = keras.ops.cast(inputs > 0, "float32")[:, :, None]
    total = keras.ops.sum(vectors * shown, axis=1)
    features = total / (keras.ops.sum(shown, axis=1) + 1e-6)
    return keras.Model(inputs, features), keras.Model(inputs, head(features))


def compiled(model):
    import tfxclass

    loss = model.layers[-1].loss
    model.compile(tfxclass.optimizers.LazyAdam(verses.RATE), loss=loss)
    return model


def fit(model, x, y, epochs):
    if epochs:
        model.fit(x, y, verses.BATCH, epochs=epochs, verbose=0)


def train(row, x, y, num_words, epochs, seed):
    """The encoder, trained."""
    from tfxclass import layers
    from tfxclass import recovery

    name, options = ROWS[row]
    num_classes = int(y.max()) + 1

    def head(classes):
        return getattr(layers, name)(classes, seed=seed, **options)

    if row == PRETRAIN:
        chosen = np.random.default_rng(seed).permutation(num_classes)
        chosen = chosen[: num_classes // 10]
        number = np.full(num_classes, -1)
        number[chosen] = np.arange(len(chosen))
        few = number[y] >= 0
        encoder, model = make_model(head(len(chosen)), num_words)
        fit(compiled(model), x[few], number[y[few]], epochs - epochs // 2)
        weights = encoder.get_weights()
        encoder, model = make_model(head(num_classes), num_words)
        encoder.set_weights(weights)
        fit(compiled(model), x, y, epochs // 2)
        return encoder
    encoder, model = make_model(head(num_classes), num_words)
    more = epochs // 3 if row in RECOVERED else 0
    fit(compiled(model), x, y, epochs - more)
    if more:
        full = recovery.recover(
            model,
            (x, y),
            method=RECOVERED[row],
            verbose=0,
            batch_size=verses.BATCH,
        )
        fit(compiled(full), x, y, more)
    return encoder


def evaluate(encoder, gallery_x, gallery_y, test_x, test_y):
    from tfxclass import metrics

    gallery = encoder.predict(gallery_x, verbose=0)
    test = encoder.predict(test_x, verbose=0)
    gallery, test = (
        rows / np.linalg.norm(rows, axis=1, keepdims=True)
        for rows in (gallery, test)
    )
    of_class = np.empty_like(gallery)
    of_class[gallery_y] = gallery
    own = of_class[test_y]
    random = np.random.default_rng(0)
    shifts = random.choice(len(own) - 1, 10, replace=False) + 1
    equal = np.sum(test * own, axis=1)
    unequal = [np.sum(test * np.roll(own, n, axis=0), axis=1) for n in shifts]
    pairs = np.stack([equal, unequal[0]], axis=1).ravel()
    same = np.tile([True, False], len(equal))
    many = np.concatenate([equal, *unequal])
    rates = {
        f"hit rate@{k}": metrics.hit_rate(test, gallery, test_y, gallery_y, k)
        for k in (1, 10)
    }
    return {
        "accuracy": metrics.verification_accuracy(pairs, same),
        "TPR@0.001": metrics.true_positive_rate(
            many, np.arange(len(many)) < len(equal)
        ),
        **rates,
    }


def every_third(x, y):
    kept = y % 3 == 0
    return x[kept], y[kept] // 3


def child(folder, row, small, epochs, seed):
    import keras

    keras.utils.set_random_seed(seed)
    x, y, test_x, test_y, idf = verses_data.load(folder)
    if small:
        (x, y), (test_x, test_y) = (
            every_third(x, y),
            every_third(test_x, test_y),
        )
    wall, cpu = time.perf_counter(), time.process_time()
    encoder = train(row, x, y, len(idf), epochs, seed)
    seconds = {
        "train_s": time.perf_counter() - wall,
        "train_cpu_s": time.process_time() - cpu,
    }
    kjv = slice(0, len(test_y))  # the first of the three
    return {
        "row": row,
        **evaluate(encoder, x[kjv], y[kjv], test_x, test_y),
        **seconds,
    }


if __name__ == "__main__":
    args = measure.row_arguments(__doc__.splitlines()[0], 6)
    if args.child:
        row, small = args.rows[0], args.small
        found = child(args.folder, row, small, args.epochs, args.seed)
        print(json.dumps(found))
    else:
        rows = SMALL_ROWS if args.small else ROWS
        measure.run_rows("verification", __file__, args, rows)
