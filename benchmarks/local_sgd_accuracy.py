"""Local SGD's accuracy: K replicas that are averaged every I steps.

    python benchmarks/local_sgd_accuracy.py DATA [--seeds 3]

Table 5 and figure 4 of the RP paper (Yuan et al., 2020). DATA is the folder of
verses_data.py; every ninth verse is a class. Features are frozen: TF-IDF in 256
random projections, of length 1. RP: slim rows of 64 numbers from zero, on K
replicas with 32 rows each a step. "own books": a replica has a K-th of the
classes, with all their rows; "any rows": a K-th of the rows, drawn once.
Full-D-C, rows of 256 numbers, is what `ShardedSoftmax` computes: exactly the
full softmax.

An epoch of K replicas has a K-th of the steps, at K times the rate of one
replica, as in the paper. Replicas are simulated in NumPy, as `LocalSGD` does
it, whose tests compare it with such a loop.
"""

import argparse
import functools
import os

import figure_style
import measure
import numpy as np
import verses_data

NAME = "local_sgd_accuracy"
STEP, DIM, PROJECTION_DIM, BATCH, EPOCHS = 9, 256, 64, 32, 8
RATES = {"RP": (12.5, 25.0, 50.0, 100.0), "Full-D-C": (50.0, 100.0, 200.0)}
REPLICAS, INTERVALS = (2, 4, 8), (1, 4, 8, 32)
OWN, ANY = "own books", "any rows"
FULL, RP = "Full-D-C", "RP"


def jobs():
    """Method, replicas, interval, and data of a replica."""
    yield RP, 1, 1, ANY
    for interval in reversed(INTERVALS):
        for data in (OWN, ANY):
            for replicas in REPLICAS:
                yield RP, replicas, interval, data
    yield FULL, 1, 1, ANY


def load(folder):
    """`(x, y, test_x, test_y)`, every ninth class; kept in the cache."""

    def make():
        x, y, test_x, test_y, idf = verses_data.load(folder)
        random = np.random.default_rng(0)
        table = random.normal(size=(len(idf), DIM)) * idf[:, np.newaxis]
        table[0] = 0
        return features(x, y, table) + features(test_x, test_y, table)

    return measure.pickled(f"{NAME}/ninth", make)


def features(x, y, table):
    kept = y % STEP == 0
    vectors = np.stack([table[words].sum(axis=0) for words in x[kept]])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True) + 1e-6
    return vectors.astype(np.float32), y[kept] // STEP


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
    """Class matrices of K replicas; with `interval=1` one does for all."""

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
            mean = sum(self.kernels) / np.float32(len(self.kernels))
            for kernel in self.kernels:
                kernel[:] = mean
            self.averages += 1


def child(folder, method, replicas, interval, data, rate, seed):
    """Accuracy of the replicas' mean on either half, a dict."""
    x, y, test_x, test_y = load(folder)
    random = np.random.default_rng(seed)
    if method == RP:
        projection = random.normal(size=(DIM, PROJECTION_DIM))
        projection = (projection / PROJECTION_DIM**0.5).astype(np.float32)
        x, test_x = x @ projection, test_x @ projection
    models = Replicas(replicas, interval, (int(y.max()) + 1, x.shape[1]))
    shards = shares(y, replicas, data, seed)
    for _ in range(EPOCHS):
        for rows in epoch(shards, random):
            models.step(x, y, rows, rate * replicas)
    # As `fit` does at its end; it sends nothing where they agree.
    mean = np.mean(models.kernels, axis=0)
    found = {"steps": models.steps, "averages": models.averages}
    for half, names in enumerate(
        (("validation loss", "validation"), ("loss", "accuracy"))
    ):
        scores = evaluated(mean, test_x[half::2], test_y[half::2])
        found |= dict(zip(names, scores))
    return found


def main():
    measure.run_child(child)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    ask = functools.partial(measure.ask, args.folder)

    def validation(method, rate):
        job = method, 1, 1, ANY, rate, 0
        return measure.once(NAME, *job, run=ask)["validation"]

    rates = {
        method: measure.best_rate(rates, functools.partial(validation, method))
        for method, rates in RATES.items()
    }
    rows = []
    for job in jobs():
        job = *job, rates[job[0]][0]
        found = measure.of_all_seeds(
            NAME, *job, seeds=range(args.seeds), run=ask
        )
        names = "method", "replicas", "interval", "data", "rate"
        row = dict(zip(names, job)) | measure.of_seeds(found)
        rows.append({**row, "seeds": args.seeds})
    measure.save(NAME, rows)
    draw(rows)


def draw(rows):
    """A line for each K; `ShardedSoftmax` and one replica are level ones."""
    figure, panels = figure_style.new_figure(rows=2, height=3.8)
    levels = [row for row in rows if row["replicas"] == 1]
    for axes, data in zip(panels, (ANY, OWN)):
        for replicas in REPLICAS:
            points = sorted(
                (row["interval"], 100 * row["accuracy"])
                for row in rows
                if (row["replicas"], row["data"]) == (replicas, data)
            )
            axes.plot(*zip(*points), "o-", label=f"{replicas} replicas")
        for row, style in zip(levels, ("--", ":")):
            level = 100 * row["accuracy"]
            axes.axhline(level, ls=style, c="k", alpha=0.5)
        axes.set(title=f"replicas have {data}", xscale="log")
        axes.set(xlabel="steps between averages", ylabel="accuracy in percent")
        axes.set_xticks(INTERVALS, map(str, INTERVALS))
        axes.minorticks_off()
    panels[1].legend()

    def cost(data):
        found = [r["accuracy"] for r in rows if r["data"] == data]
        return 100 * max(0.0, rows[0]["accuracy"] - min(found))

    figure_style.save(
        figure,
        os.path.join(measure.RESULTS, f"{NAME}.png"),
        f"Rare averages cost {cost(ANY):.0f} points where replicas have any "
        f"rows, {cost(OWN):.0f} where they have their own classes",
    )


if __name__ == "__main__":
    main()
