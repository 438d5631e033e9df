"""Local SGD's accuracy: replicas, intervals, and data of their own.

    python benchmarks/local_sgd_accuracy.py DATA [--seeds 1] [--epochs 6]

After table 5 and figures 3 and 4 of the RP paper (Yuan et al., 2020). DATA is
the folder of verses.py. 10,359 classes, every third verse, in three
translations; the fourth is the test. Features are frozen: TF-IDF in 256 random
projections, of length 1. RP: 64 wide, on K logical devices, `LocalSGD`, 32 rows
a replica and step, the rate 50 K for equal epochs. "own books": a replica has a
K-th of the classes, with all their rows; "any rows": a K-th of the rows, drawn
once. Full-D-C is `ShardedSoftmax` on four replicas, exact.

Accuracy and loss of the test after each epoch. `mb` is what a replica handed to
all-reduces until the end, counted as local_sgd.py does. A job is a model, in a
process of its own; those that are done lie in
benchmarks/cache/local_sgd_accuracy and are not run again.
"""

import argparse
import json
import sys

import local_sgd
import measure
import numpy as np
import verses_data

NAME = "local_sgd_accuracy"
DIM, PROJECTION_DIM, BATCH, RATE = 256, 64, 32, 50.0
REPLICAS, INTERVALS = (2, 4, 8), (1, 4, 16, 64)
OWN, ANY = "own books", "any rows"
FULL, RP = "Full-D-C", "RP"


def jobs():
    """Method, replicas, interval, data of a replica."""
    yield RP, 1, 1, ANY
    yield FULL, 4, 1, ANY
    for interval in INTERVALS:
        for replicas in REPLICAS:
            yield RP, replicas, interval, OWN
    for replicas in REPLICAS:
        yield RP, replicas, INTERVALS[-1], ANY


def load(folder):
    """`(x, y)` of training and of test, every third class."""
    x, y, test_x, test_y, idf = verses_data.load(folder)
    random = np.random.default_rng(0)
    table = random.normal(size=(len(idf), DIM)) * idf[:, np.newaxis]
    table[0] = 0
    return features(x, y, table), features(test_x, test_y, table)


def features(x, y, table):
    kept = y % 3 == 0
    vectors = np.stack([table[words].sum(axis=0) for words in x[kept]])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-6
    return vectors.astype(np.float32), y[kept] // 3


def shares(y, replicas, data, seed):
    """Rows of each replica, `[replicas, rows]`."""
    order = np.random.default_rng(seed).permutation(len(y))
    if data == OWN:
        order = order[np.argsort(y[order], kind="stable")]
    return order[: len(y) // replicas * replicas].reshape(replicas, -1)


def epoch(rows, random):
    """All rows in a new order: a replica's are a part of each batch."""
    rows = random.permuted(rows, axis=1)
    steps = rows.shape[1] // BATCH
    rows = rows[:, : steps * BATCH].reshape(len(rows), steps, BATCH)
    return rows.transpose(1, 0, 2).ravel()


def make_model(method, replicas, interval, num_classes, seed):
    import keras

    from tfxclass import layers
    from tfxclass import optimizers

    rate = RATE * replicas
    if method == FULL:
        head = layers.ShardedSoftmax(num_classes, seed=seed, activation=None)
        optimizer = optimizers.LazySGD(rate)
    else:
        head = layers.ProjectedSoftmax(
            num_classes, PROJECTION_DIM, seed=seed, activation=None
        )
        optimizer = optimizers.LocalSGD(rate, interval)
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(optimizer, loss=head.loss)
    return model


def evaluated(model, x, y):
    """Mean loss and accuracy, of the replicas' mean."""
    losses, right = [], []
    for start in range(0, len(y), 1024):
        logits = model(x[start : start + 1024]).numpy()
        labels = y[start : start + 1024]
        most = logits.max(axis=1)
        total = np.exp(logits - most[:, np.newaxis]).sum(axis=1)
        losses.append(np.log(total) + most - logits[range(len(labels)), labels])
        right.append(logits.argmax(axis=1) == labels)
    return tuple(float(np.concatenate(p).mean()) for p in (losses, right))


def child(folder, method, replicas, interval, data, epochs, seed):
    """Steps, MB, loss and accuracy of the test after each epoch."""
    import keras

    strategy = local_sgd.strategy_of(replicas)
    sent = local_sgd.count_bytes(strategy)
    (x, y), test = load(folder)
    keras.utils.set_random_seed(seed)
    with strategy.scope():
        model = make_model(method, replicas, interval, y.max() + 1, seed)
    rows, random = shares(y, replicas, data, seed), np.random.default_rng(seed)
    curve, steps = [], 0
    for _ in range(epochs):
        order = epoch(rows, random)
        size = BATCH * replicas
        model.fit(x[order], y[order], size, shuffle=False, verbose=0)
        steps += len(order) // size
        loss, accuracy = evaluated(model, *test)
        mb = float(sent.numpy()) / 1e6
        curve.append(
            {"steps": steps, "mb": mb, "loss": loss, "accuracy": accuracy}
        )
    return curve


def main(folder, epochs, seeds):
    """A seed is done with all jobs before the next one begins."""
    found = {}
    for seed in range(seeds):
        for job in jobs():
            one = measure.once(
                NAME, __file__, *job, epochs, seed, folder=folder
            )
            if "error" in one:
                sys.exit(one["error"])
            found.setdefault(job, []).append(one)
    curves = {job: mean_curve(of_seeds) for job, of_seeds in found.items()}
    rows = [row(job, epochs, curves[job][-1], found[job]) for job in curves]
    measure.save(NAME, rows)
    draw_all(rows, curves)


def mean_curve(of_seeds):
    return [
        {key: float(np.mean([one[key] for one in points])) for key in points[0]}
        for points in zip(*of_seeds)
    ]


def row(job, epochs, last, of_seeds):
    names = ("method", "replicas", "interval", "data")
    found = {**dict(zip(names, job)), "epochs": epochs, **last}
    if job[0] == FULL:
        # What it exchanges are no all-reduces: see the page on shards.
        del found["mb"]
    found["deviation"] = float(np.std([c[-1]["accuracy"] for c in of_seeds]))
    return {**found, "seeds": len(of_seeds)}


def draw_all(rows, curves):
    measure.plot(
        NAME,
        lambda axes: draw(axes, rows),
        "steps between averages I",
        "accuracy, translation kept back",
        xscale="log",
    )
    for part, label in (("steps", "steps"), ("mb", "MB to all-reduces")):
        measure.plot(
            f"{NAME}_{part}",
            lambda axes, part=part: draw_curves(axes, curves, part),
            label,
            "accuracy, translation kept back",
            xscale="log",
        )


def draw(axes, rows):
    """A line for each K; Full-D-C and one replica are level ones."""
    for replicas in REPLICAS:
        own = [r for r in rows if (r["replicas"], r["data"]) == (replicas, OWN)]
        x = [r["interval"] for r in own]
        y = [r["accuracy"] for r in own]
        (line,) = axes.plot(x, y, "o-", label=f"K = {replicas}, {OWN}")
        drawn = [
            r
            for r in rows
            if (r["method"], r["replicas"], r["data"]) == (RP, replicas, ANY)
        ]
        for r in drawn:
            color = line.get_color()
            label = f"K = {replicas}, {ANY}"
            axes.plot(r["interval"], r["accuracy"], "x", c=color, label=label)
    for one, label in zip(rows[:2], ("RP, one replica", FULL)):
        axes.axhline(one["accuracy"], ls=":", label=label, c="k", alpha=0.5)


def draw_curves(axes, curves, part):
    """Those of K = 4 and of one replica."""
    for (method, replicas, interval, data), curve in curves.items():
        alone = method == FULL or replicas == 1
        if part == "mb" and alone:
            continue
        if alone or (replicas == 4 and data == OWN):
            x = [point[part] for point in curve]
            label = f"{method}, K = {replicas}, I = {interval}"
            axes.plot(x, [p["accuracy"] for p in curve], ".-", label=label)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        folder, method, replicas, interval, data, epochs, seed = sys.argv[2:]
        numbers = int(replicas), int(interval), data, int(epochs), int(seed)
        print(json.dumps(child(folder, method, *numbers)))
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("folder")
        parser.add_argument("--epochs", type=int, default=6)
        parser.add_argument("--seeds", type=int, default=1)
        args = parser.parse_args()
        main(args.folder, args.epochs, args.seeds)
