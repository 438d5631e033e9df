"""Recovery after usual training: a trigram model of the King James Bible.

    python benchmarks/recovery_trigram.py DATA [--seeds 3] [--parts compare]
        [--cached]

DATA is a folder with kjv.tsv.xz. 200,000 trigrams of the 3,000 most frequent
words; three words of 64 numbers each and a tanh layer of 192 units, trained
along with a projected softmax in batches of 256 (LazyAdam, 0.01). Perplexity on
books that were kept back, means of the seeds; `cpu_s` is what comes after the
slim training.

"of the head": the full softmax alone, on frozen features (LazyAdam, 0.001
falling to zero), for a third of an epoch, for two thirds, about what the pass
of the step and its search cost, or for a whole one. The figure: the slim model
and the step from it after so many epochs of slim training, the encoder along;
from one point to the next it begins with the same rows again.

A job is a model of one seed, in a process of its own; those that are done lie
in benchmarks/cache/recovery_trigram and are not run again. "--cached" runs none
and tells of those. "--figures" alone draws the committed rows.
"""

import argparse
import json
import sys
import time
import warnings

import measure
import notes
import numpy as np
import verses_data

NAME = "recovery_trigram"
CLASSES, DIM, EMBEDDING, BATCH, ROWS = 3000, 192, 64, 256, 200_000
# Projected width, l2, epochs of slim training.
SETTINGS = ((24, 1e-7, 1), (24, 1e-4, 2), (64, 1e-6, 1))
EPOCHS = (0.125, 0.25, 0.5, 1, 2)  # of the figure
METHODS = ("lift", "dual", "step")
PARTS = ("compare", "equal", "epochs")


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
    found = float(np.exp(model.evaluate(*data, batch_size=2048, verbose=0)))
    return found if np.isfinite(found) else "overflow"


def fit(model, data, rate, epochs=1.0):
    """CPU seconds; the rate as it is where there is an optimizer."""
    import tensorflow as tf

    import tfxclass

    if not model.compiled:
        loss = model.layers[-1].loss
        model.compile(tfxclass.optimizers.LazyAdam(rate), loss=loss)
    batches = tf.data.Dataset.from_tensor_slices(data)
    batches = batches.shuffle(len(data[1]), seed=0).repeat().batch(BATCH)
    steps = steps_of(data, epochs)
    start = time.process_time()
    model.fit(batches, steps_per_epoch=steps, verbose=0)
    return time.process_time() - start


def steps_of(data, epochs):
    return int(epochs * len(data[1]) / BATCH)


def falling(data, epochs):
    """A rate that falls to zero over the epochs."""
    import keras

    steps = steps_of(data, epochs)
    return keras.optimizers.schedules.CosineDecay(1e-3, steps)


def slim_model(width, l2, seed):
    import keras

    import tfxclass

    inputs = keras.Input([3], dtype="int32")
    hidden = keras.layers.Embedding(CLASSES + 1, EMBEDDING)(inputs)
    hidden = keras.layers.Flatten()(hidden)
    features = keras.layers.Dense(DIM, "tanh")(hidden)
    head = tfxclass.layers.ProjectedSoftmax(CLASSES, width, l2=l2, seed=seed)
    return keras.Model(inputs, head(features))


def recovered(model, train, method):
    """The full model, and CPU seconds."""
    from tfxclass import recovery

    start = time.process_time()
    with warnings.catch_warnings():
        # The dual's step is too long here: that is what is shown.
        warnings.simplefilter("ignore")
        full = recovery.recover(
            model, train, method=method, verbose=0, batch_size=2048
        )
    return full, time.process_time() - start


def evaluated(full, test):
    """Perplexity of a model that is not compiled."""
    import keras

    model = keras.Model(full.inputs, full.outputs)
    model.compile(loss=full.layers[-1].loss)
    return perplexity(model, test)


def tuned_head(full, train, test, epochs):
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
    seconds = fit(model, train, falling(train, epochs), epochs)
    return perplexity(model, test), seconds


def compare(train, test, width, l2, epochs, seed):
    """`(perplexity, CPU seconds)` by what was done."""
    model = slim_model(width, l2, seed)
    fit(model, train, 0.01, epochs)
    found, full, took = {}, {}, {}
    for method in METHODS:
        full[method], took[method] = recovered(model, train, method)
        found[method] = evaluated(full[method], test), took[method]
    for method, more in (("lift", 1 / 3), ("lift", 1), ("step", 1)):
        share = "1 epoch" if more == 1 else "1/3 epoch"
        quality, seconds = tuned_head(full[method], train, test, more)
        seconds += took[method]
        found[f"{method}, then {share} of the head"] = quality, seconds
    return found


def equal(train, test, seed):
    """`compare`, with the first setting, of what costs as much.

    Two thirds of an epoch of the head, about the step; and a step from a third
    of the rows, about a third of an epoch.
    """
    width, l2, epochs = SETTINGS[0]
    model = slim_model(width, l2, seed)
    fit(model, train, 0.01, epochs)
    full, took = recovered(model, train, "lift")
    quality, seconds = tuned_head(full, train, test, 2 / 3)
    some = [part[: ROWS // 3] for part in train]
    full, of_some = recovered(model, some, "step")
    return {
        "lift, then 2/3 epoch of the head": (quality, took + seconds),
        "step, from a third of the rows": (evaluated(full, test), of_some),
    }


def while_training(train, test, seed):
    """`[epochs, slim, step]` after each of EPOCHS."""
    width, l2, _ = SETTINGS[0]
    model, found = slim_model(width, l2, seed), []
    for done, epochs in zip((0, *EPOCHS), EPOCHS):
        fit(model, train, 0.01, epochs - done)
        full, _ = recovered(model, train, "step")
        found.append((epochs, perplexity(model, test), evaluated(full, test)))
    return found


def child(folder, what, *args):
    import keras

    *args, seed = args
    keras.utils.set_random_seed(int(seed))
    train, test = read(folder)
    if what == "compare":
        width, l2, epochs = args
        setting = int(width), float(l2), float(epochs)
        return compare(train, test, *setting, int(seed))
    if what == "equal":
        return equal(train, test, int(seed))
    return while_training(train, test, int(seed))


def row(setting, name, values):
    """Of `(perplexity, CPU seconds)` of the seeds."""
    qualities, seconds = zip(*values)
    if "overflow" in qualities:
        mean, deviation = "overflow", ""
    else:
        mean, deviation = float(np.mean(qualities)), float(np.std(qualities))
    return {
        **dict(zip(("projection_dim", "l2", "epochs"), setting)),
        "row": name,
        "perplexity": mean,
        "deviation": deviation,
        "cpu_s": float(np.mean(seconds)),
        "seeds": len(values),
    }


def rows_of(setting, found):
    return [
        row(setting, name, [one[name] for one in found]) for name in found[0]
    ]


def jobs(parts):
    """All but the seed, most seeds, and the setting of its rows."""
    of_parts = {
        "compare": [(setting, None, setting) for setting in SETTINGS],
        "equal": [((), None, SETTINGS[0])],
        "epochs": [((), None, None)],
    }
    return [
        ((part, *job), most, setting)
        for part in parts
        for job, most, setting in of_parts[part]
    ]


def main(args):
    wanted = jobs(args.parts)
    runs = [(job, most) for job, most, _ in wanted]
    where = args.seeds, args.folder, args.cached
    found = measure.jobs_done(NAME, __file__, runs, *where)
    rows = []
    for job, _, setting in wanted:
        if setting and job in found:
            rows += rows_of(setting, found[job])
    if rows:
        measure.save(NAME, rows)
    if ("epochs",) in found:
        save_epochs(np.array(found["epochs",]))


def save_epochs(curves):
    """`[seeds, len(EPOCHS), 3]`: a table of its own, and the figure."""
    (epochs, *means), (_, *spreads) = (
        curves.mean(axis=0).T,
        curves.std(axis=0).T,
    )
    columns = {
        "epochs": epochs,
        "slim": means[0],
        "slim +-": spreads[0],
        "step": means[1],
        "step +-": spreads[1],
    }
    rows = [
        {**dict(zip(columns, map(float, values))), "seeds": len(curves)}
        for values in zip(*columns.values())
    ]
    measure.save(f"{NAME}_epochs", rows)
    draw_epochs(rows)


def draw_epochs(rows):
    """The figure of the rows of recovery_trigram_epochs.json."""
    measure.plot(
        f"{NAME}_epochs",
        lambda axes: draw(axes, rows),
        "epochs of training the narrow model",
        "test perplexity",
    )


def draw(axes, rows):
    epochs = [row["epochs"] for row in rows]
    labels = {"slim": "narrow model (24 of 192)", "step": "after recovery"}
    for name, label in labels.items():
        mean, spread = ([r[key] for r in rows] for key in (name, f"{name} +-"))
        axes.errorbar(epochs, mean, spread, fmt="o-", capsize=3, label=label)
    axes.set_xscale("log")
    axes.set_xticks(epochs, [f"{n:g}" for n in epochs])
    axes.minorticks_off()
    first, last = (
        100 * (1 - row["step"] / row["slim"]) for row in (rows[0], rows[-1])
    )
    axes.set_title(
        f"Recovery lowers perplexity by {first:.0f} % after "
        f"{epochs[0]:g} epochs,\nby {last:.0f} % after {epochs[-1]:g}"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(*sys.argv[2:])))
    elif sys.argv[1:] == ["--figures"]:
        draw_epochs(notes.results(f"{NAME}_epochs"))
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("folder")
        parser.add_argument("--seeds", type=int, default=3)
        parser.add_argument("--parts", nargs="*", default=PARTS)
        parser.add_argument("--cached", action="store_true")
        main(parser.parse_args())
