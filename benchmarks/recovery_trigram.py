"""Recovery after usual training: a trigram model of the King James Bible.

    python benchmarks/recovery_trigram.py DATA [--seeds 3]

DATA is a folder with kjv.tsv.xz. 200,000 trigrams of the 3,000 most frequent
words; three words of 64 numbers each and a tanh layer of 192 units, trained
along with a projected softmax for an epoch of batches of 256 (LazyAdam, 0.01).
Perplexity on books that were kept back. Then, from the lifted matrix and from
the step, the full softmax alone is trained on frozen features (LazyAdam, 0.001
falling to zero) for a third of an epoch, about what the pass of the step costs,
and for an epoch. Means of the seeds; `cpu_s` is what comes after the slim
training.
"""

import argparse
import time
import warnings

import measure
import numpy as np
import verses_data

CLASSES, DIM, EMBEDDING, BATCH, ROWS = 3000, 192, 64, 256, 200_000
SETTINGS = ((24, 1e-7), (64, 1e-6))


def read(folder):
    """`(x, y)` of training and of test: ids `[rows, 3]` and `[rows]`."""
    verses, words = verses_data.read(folder, "kjv")
    books = np.array([int(verse) // 1_000_000 for verse in verses]) % 10
    train = [w for w, book in zip(words, books) if book > 1]
    names, counts = np.unique(np.concatenate(train), return_counts=True)
    order = np.argsort(-counts, kind="stable")[:CLASSES]
    ids = {names[place]: i for i, place in enumerate(order)}
    parts = (books > 1, ROWS), (books == 1, 10_000)
    return [trigrams(words, kept, ids, limit) for kept, limit in parts]


def trigrams(words, kept, ids, limit):
    text = [ids.get(w, CLASSES) for v, k in zip(words, kept) if k for w in v]
    rows = np.lib.stride_tricks.sliding_window_view(np.array(text), 4)
    rows = rows[rows[:, 3] < CLASSES]
    rows = rows[np.random.default_rng(1).permutation(len(rows))[:limit]]
    return rows[:, :3].astype(np.int32), rows[:, 3]


def perplexity(model, data):
    return float(np.exp(model.evaluate(*data, batch_size=2048, verbose=0)))


def fit(model, data, rate, epochs=1.0):
    """CPU seconds."""
    import tensorflow as tf

    import tfxclass

    loss = model.layers[-1].loss
    model.compile(tfxclass.optimizers.LazyAdam(rate), loss=loss)
    x, y = data
    batches = tf.data.Dataset.from_tensor_slices(data).shuffle(len(y), seed=0)
    steps = int(epochs * len(y) / BATCH)
    start = time.process_time()
    model.fit(batches.repeat().batch(BATCH), steps_per_epoch=steps, verbose=0)
    return time.process_time() - start


def slim_model(width, l2, seed):
    import keras

    import tfxclass

    inputs = keras.Input([3], dtype="int32")
    hidden = keras.layers.Embedding(CLASSES + 1, EMBEDDING)(inputs)
    hidden = keras.layers.Flatten()(hidden)
    features = keras.layers.Dense(DIM, "tanh")(hidden)
    head = tfxclass.layers.ProjectedSoftmax(CLASSES, width, l2=l2, seed=seed)
    return keras.Model(inputs, head(features))


def tuned(full, train, test, epochs):
    """`(perplexity, CPU seconds)` of the full head on frozen features."""
    import keras

    import tfxclass

    encoder = keras.Model(full.inputs, full.layers[-1].input)
    head = tfxclass.layers.FullSoftmax(CLASSES)
    model = keras.Sequential([keras.Input([DIM]), head])
    head.kernel.assign(full.layers[-1].kernel)
    train, test = (
        (encoder.predict(x, batch_size=4096, verbose=0), y)
        for x, y in (train, test)
    )
    steps = int(epochs * len(train[1]) / BATCH)
    rate = keras.optimizers.schedules.CosineDecay(1e-3, steps)
    seconds = fit(model, train, rate, epochs)
    return perplexity(model, test), seconds


def run(train, test, width, l2, seed):
    """`(perplexity, CPU seconds)` by what was done."""
    import keras

    from tfxclass import recovery

    keras.utils.set_random_seed(seed)
    model = slim_model(width, l2, seed)
    fit(model, train, 0.01)
    found, start = {}, {}
    for method in ("lift", "dual", "step"):
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            start[method] = recovery.recover(
                model, train, method=method, verbose=0, batch_size=2048
            )
        seconds = time.process_time() - began
        start[method].compile(loss=start[method].layers[-1].loss)
        found[method] = perplexity(start[method], test), seconds
    for method, epochs in (("lift", 1 / 3), ("lift", 1.0), ("step", 1.0)):
        share = "1/3 epoch" if epochs < 1 else "1 epoch"
        quality, seconds = tuned(start[method], train, test, epochs)
        seconds += found[method][1]
        found[f"{method}, then {share} of the head"] = quality, seconds
    return found


def main(folder, seeds):
    train, test = read(folder)
    rows = []
    for width, l2 in SETTINGS:
        found = [run(train, test, width, l2, seed) for seed in range(seeds)]
        for name in found[0]:
            values = np.array([one[name] for one in found])
            rows.append(
                {
                    "projection_dim": width,
                    "l2": l2,
                    "row": name,
                    "perplexity": float(values[:, 0].mean()),
                    "deviation": float(values[:, 0].std()),
                    "cpu_s": float(values[:, 1].mean()),
                    "seeds": seeds,
                }
            )
    measure.save("recovery_trigram", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    main(args.folder, args.seeds)
