"""Local SGD's accuracy: replicas, intervals, and data of their own.

    python benchmarks/local_sgd_accuracy.py DATA [--seeds 3] [--epochs 2]
        [--intervals 1 4 16 64] [--cached]

After table 5 and figures 3 and 4 of the RP paper (Yuan et al., 2020). DATA is
the folder of verses.py. 10,359 classes, every third verse, in three
translations; the fourth is the test. Features are frozen: TF-IDF in 256 random
projections, of length 1. RP: slim rows of 64 numbers from zero, on K replicas
with 32 rows each a step. "own books": a replica has a K-th of the classes, with
all their rows; "any rows": a K-th of the rows, drawn once. Full-D-C, rows of
256 numbers, is what `ShardedSoftmax` computes: exactly the full softmax.

Replicas are simulated one after the other, in NumPy: as `LocalSGD` does it,
whose tests compare it with such a loop. An epoch of K replicas has a K-th of
the steps; the rate is RATE K, with which one average a step of eight replicas
ends where one replica does; "falling": a quarter of it in the second half of
the epochs. Accuracy and loss of the test, of the replicas' mean, after each
epoch. `mb` is computed: a model an average.

A job is a model, in a process of its own; those that are done lie in
benchmarks/cache/local_sgd_accuracy and are not run again. "--cached" runs none
and tells of those. "--figures" alone draws the committed rows.
"""

import argparse
import json
import os
import sys

import figure_style
import measure
import notes
import numpy as np
import verses_data

NAME = "local_sgd_accuracy"
DIM, PROJECTION_DIM, BATCH, RATE = 256, 64, 32, 200.0
REPLICAS, INTERVALS = (2, 4, 8), (1, 4, 16, 64)
OWN, ANY = "own books", "any rows"
FULL, RP = "Full-D-C", "RP"
CONSTANT, FALLING = "constant", "falling"


def jobs(intervals):
    """Method, replicas, interval, data of a replica, and rate."""
    yield RP, 1, 1, ANY, CONSTANT
    yield FULL, 4, 1, ANY, CONSTANT
    for replicas in REPLICAS:
        for interval in intervals:
            yield RP, replicas, interval, OWN, CONSTANT
        yield RP, replicas, intervals[-1], ANY, CONSTANT
    for interval in intervals:
        yield RP, REPLICAS[-1], interval, OWN, FALLING


def load(folder):
    """`(x, y, test_x, test_y)`, every third class; kept in the cache."""
    path = os.path.join(measure.CACHE, NAME, "features.npz")
    if not os.path.exists(path):
        x, y, test_x, test_y, idf = verses_data.load(folder)
        random = np.random.default_rng(0)
        table = random.normal(size=(len(idf), DIM)) * idf[:, np.newaxis]
        table[0] = 0
        found = features(x, y, table) + features(test_x, test_y, table)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        np.savez(path, *found)
    with np.load(path) as stored:
        return [stored[f"arr_{i}"] for i in range(4)]


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
    """All rows in a new order, `[steps, replicas, BATCH]`."""
    rows = random.permuted(rows, axis=1)
    steps = rows.shape[1] // BATCH
    rows = rows[:, : steps * BATCH].reshape(len(rows), steps, BATCH)
    return rows.transpose(1, 0, 2)


def move(kernel, x, y, rate):
    """A step along the gradient of the mean cross-entropy, in place."""
    from scipy.linalg.blas import sgemm

    p = x @ kernel.T
    p -= p.max(axis=1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    # kernel -= rate / n p^T x, where it lies: BLAS has it transposed.
    there = {"beta": 1.0, "c": kernel.T, "overwrite_c": 1}
    sgemm(-rate / len(y), x.T, p.T, trans_b=1, **there)


def evaluated(kernel, x, y):
    """Mean loss and accuracy."""
    losses, right = [], []
    for start in range(0, len(y), 1024):
        logits = x[start : start + 1024] @ kernel.T
        labels = y[start : start + 1024]
        best = logits.argmax(axis=1)
        own = logits[np.arange(len(labels)), labels]
        most = logits.max(axis=1)
        total = np.exp(logits - most[:, np.newaxis]).sum(axis=1)
        losses.append(np.log(total) + most - own)
        right.append(best == labels)
    return tuple(float(np.concatenate(p).mean()) for p in (losses, right))


class Replicas:
    """Class matrices of K replicas; with `interval=1` one does for all.

    Attributes:
        steps: int, of each replica.
        averages: int.
    """

    def __init__(self, count, interval, shape):
        count = 1 if interval == 1 else count
        self.kernels = [np.zeros(shape, np.float32) for _ in range(count)]
        self.interval = interval
        self.steps = self.averages = 0

    def step(self, x, y, rows, rate):
        """A step of each on its row of `rows`, `[replicas, BATCH]`."""
        for kernel, own in zip(
            self.kernels, rows.reshape(len(self.kernels), -1)
        ):
            move(kernel, x[own], y[own], rate)
        self.steps += 1
        if self.steps % self.interval == 0:
            self.average()

    def average(self):
        """Replaces all by their mean; returns it."""
        mean = sum(self.kernels) / np.float32(len(self.kernels))
        for kernel in self.kernels:
            kernel[:] = mean
        self.averages += 1
        return mean


def child(folder, method, replicas, interval, data, falls, epochs, seed):
    """Steps, MB, loss and accuracy of the test after each epoch."""
    job = method, replicas, interval, data, falls, epochs, seed
    return trained(load(folder), *job)


def trained(
    parts,
    method,
    replicas,
    interval,
    data,
    falls,
    epochs,
    seed,
    rate_of_one=RATE,
):
    """`child` on parts that are loaded, at another rate if one is given."""
    x, y, test_x, test_y = parts
    random = np.random.default_rng(seed)
    if method == RP:
        projection = random.normal(size=(DIM, PROJECTION_DIM))
        projection = (projection / PROJECTION_DIM**0.5).astype(np.float32)
        x, test_x = x @ projection, test_x @ projection
    shape = int(y.max()) + 1, x.shape[1]
    models, curve = Replicas(replicas, interval, shape), []
    shards = shares(y, replicas, data, seed)
    for number in range(epochs):
        rate = rate_of_one * replicas
        if falls == FALLING and 2 * number >= epochs:
            rate /= 4
        for rows in epoch(shards, random):
            models.step(x, y, rows, rate)
        # As `fit` does at its end; it sends nothing where they agree.
        mean = np.mean(models.kernels, axis=0)
        loss, accuracy = evaluated(mean, test_x, test_y)
        curve.append(
            {
                "steps": models.steps,
                "mb": 4e-6 * mean.size * models.averages,
                "loss": loss,
                "accuracy": accuracy,
            }
        )
    return curve


def main(args):
    runs = [((*job, args.epochs), None) for job in jobs(args.intervals)]
    where = args.seeds, args.folder, args.cached
    found = measure.jobs_done(NAME, __file__, runs, *where)
    found = {job[:-1]: of_seeds for job, of_seeds in found.items()}
    curves = {job: mean_curve(of_seeds) for job, of_seeds in found.items()}
    rows = [
        row(job, args.epochs, curves[job][-1], found[job]) for job in curves
    ]
    measure.save(NAME, rows)
    draw_rows(rows)


def mean_curve(of_seeds):
    return [
        {key: float(np.mean([one[key] for one in points])) for key in points[0]}
        for points in zip(*of_seeds)
    ]


def row(job, epochs, last, of_seeds):
    names = ("method", "replicas", "interval", "data", "rate")
    found = {**dict(zip(names, job)), "epochs": epochs, **last}
    if job[0] == FULL or job[1] == 1:
        # It sends features (see the page on shards), or nothing.
        del found["mb"]
    found["deviation"] = float(np.std([c[-1]["accuracy"] for c in of_seeds]))
    return {**found, "seeds": len(of_seeds)}


def draw_rows(rows):
    """The figures of the rows of local_sgd_accuracy.json."""
    measure.plot(
        NAME,
        lambda axes: draw(axes, rows),
        "steps between two averages",
        "test accuracy in percent",
    )
    draw_sent(rows)


COLORS = "tab:blue", "tab:orange", "tab:green"
STYLES = {CONSTANT: "o-", FALLING: "s--"}


def of_interval(rows, replicas, rate):
    """`{interval: row}` of replicas with classes of their own."""
    return {
        row["interval"]: row
        for row in rows[2:]
        if (row["replicas"], row["data"], row["rate"]) == (replicas, OWN, rate)
    }


def _label(replicas, rate):
    return f"{replicas} replicas" + ", falling rate" * (rate == FALLING)


def draw(axes, rows):
    """A line for each K; `ShardedSoftmax` and one replica are level ones."""
    for replicas, color in zip(REPLICAS, COLORS):
        for rate, style in STYLES.items():
            points = [
                (interval, 100 * row["accuracy"])
                for interval, row in of_interval(rows, replicas, rate).items()
            ]
            if points:
                label = _label(replicas, rate)
                axes.plot(*zip(*points), style, c=color, label=label)
    # The first two: one replica, and the full softmax.
    names = "one replica", "ShardedSoftmax"
    for one, style, label in zip(rows, ("--", ":"), names):
        level = 100 * one["accuracy"]
        axes.axhline(level, ls=style, label=label, c="k", alpha=0.5)
    axes.set_title(_conclusion(rows))
    axes.set_ylim(bottom=20)  # room for the legend
    axes.set_xscale("log")
    intervals = sorted({r["interval"] for r in rows})
    axes.set_xticks(intervals, map(str, intervals))
    axes.minorticks_off()


def _conclusion(rows):
    def cost(replicas):
        found = of_interval(rows, replicas, CONSTANT)
        least, most = found[min(found)], found[max(found)]
        return 100 * (least["accuracy"] - most["accuracy"])

    first, last = (max(0.0, cost(n)) for n in (REPLICAS[0], REPLICAS[-1]))
    return (
        f"Rare averages cost {first:.0f} points of accuracy\n"
        f"with {REPLICAS[0]} replicas, {last:.0f} with {REPLICAS[-1]}"
    )


def draw_sent(rows):
    """local_sgd_accuracy_mb.png: accuracy against what a replica sent."""
    figure, (axes,) = figure_style.new_figure(height=4.8)
    for replicas, color in zip(REPLICAS, COLORS):
        for rate, style in STYLES.items():
            points = [
                (row["mb"], 100 * row["accuracy"])
                for row in of_interval(rows, replicas, rate).values()
            ]
            if points:
                label = _label(replicas, rate)
                axes.plot(*zip(*points), style, c=color, label=label)
    axes.set(
        xlabel="MB that a replica sent in all, computed",
        ylabel="test accuracy in percent",
        xscale="log",
    )
    figure_style.plain_ticks(axes.xaxis)
    axes.legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.15))
    path = os.path.join(measure.RESULTS, f"{NAME}_mb.png")
    figure_style.save(figure, path, _sent_conclusion(rows))


def _sent_conclusion(rows):
    few = of_interval(rows, REPLICAS[0], CONSTANT)
    cheapest = few[max(few)]
    many = of_interval(rows, REPLICAS[-1], CONSTANT).values()
    as_much = min(many, key=lambda row: abs(row["mb"] - cheapest["mb"]))
    return (
        f"For {cheapest['mb']:.0f} MB that each sends, {REPLICAS[0]} replicas "
        f"reach {100 * cheapest['accuracy']:.0f} %, {REPLICAS[-1]} reach "
        f"{100 * as_much['accuracy']:.0f} %"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        folder, method, replicas, interval, *own, epochs, seed = sys.argv[2:]
        job = method, int(replicas), int(interval), *own
        print(json.dumps(child(folder, *job, int(epochs), int(seed))))
    elif sys.argv[1:] == ["--figures"]:
        draw_rows(notes.results(NAME))
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("folder")
        parser.add_argument("--epochs", type=int, default=2)
        parser.add_argument("--seeds", type=int, default=3)
        parser.add_argument(
            "--intervals", type=int, nargs="*", default=INTERVALS
        )
        parser.add_argument("--cached", action="store_true")
        main(parser.parse_args())
