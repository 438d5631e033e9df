"""Steps that K replicas of local SGD need to an accuracy: Theorem 2 of RP.

    python benchmarks/local_sgd_speedup.py DATA [--seeds 3] [--cached]
    python benchmarks/local_sgd_speedup.py DATA --table_5 [--seeds 3]

The simulation of local_sgd_accuracy.py in the theorem's setting: every replica
draws its rows at random from all rows, so all replicas have the same
distribution, and the rate is constant. It is RATE times K ("K"), times the root
of K ("sqrt K"), or a quarter of the first ("quarter K", one seed). 3,453
classes, every ninth verse: slim rows of 64 numbers, 32 rows a step for each
replica. `speed-up` is the number of steps of one replica over the number of
steps of K, for "quarter K" of one replica with that rate; a linear speed-up is
K. The mean of the replicas is tested on the translation that is kept back,
twenty times an epoch. A model that never gets there has no number.

"--table_5" has the replicas and intervals of the paper's Table 5 on the same
classes: each replica has its part of all rows, drawn once, and there are as
many epochs for all. The rate of one replica is the one of RATES that is best on
half of the translation that is kept back, and K replicas have K times it, as in
the paper. `accuracy` is of the other half.
"""

import argparse
import json
import math
import sys

import local_sgd_accuracy as simulation
import measure
import numpy as np

NAME = "local_sgd_speedup"
REPLICAS, INTERVALS = (2, 4, 8), (1, 4, 16)
SLOW = "quarter K"
SCALES = {
    "K": lambda replicas: replicas,
    "sqrt K": math.sqrt,
    SLOW: lambda replicas: replicas / 4,
}
RATES, EPOCHS, TABLE_5 = (12.5, 25.0, 50.0, 100.0), 8, (1, 4, 8)
TARGETS = (0.5, 0.6, 0.7)
EVERY, MOST = 16, 8192  # steps of one replica: between two tests, and at most


def jobs():
    """`((replicas, interval, how the rate grows), most seeds)`."""
    yield (1, 1, "K"), None
    for scale in ("K", "sqrt K"):
        for replicas in REPLICAS:
            for interval in INTERVALS:
                yield (replicas, interval, scale), None
    for replicas, interval in ((1, 1), (2, 4), (4, 4), (8, 4), (8, 16)):
        yield (replicas, interval, SLOW), 1


def load(folder):
    """Features and classes of every ninth verse, to train and to test."""
    x, y, test_x, test_y = simulation.load(folder)
    train, test = y % 3 == 0, test_y % 3 == 0
    return x[train], y[train] // 3, test_x[test], test_y[test] // 3


def child(folder, replicas, interval, scale, seed):
    """Steps to each accuracy of `TARGETS` that is reached, a dict."""
    x, y, test_x, test_y = load(folder)
    random = np.random.default_rng(seed)
    shape = simulation.DIM, simulation.PROJECTION_DIM
    projection = random.normal(size=shape) / simulation.PROJECTION_DIM**0.5
    x, test_x = (part @ projection.astype(np.float32) for part in (x, test_x))
    shape = int(y.max()) + 1, x.shape[1]
    models = simulation.Replicas(replicas, interval, shape)
    rate = simulation.RATE * SCALES[scale](replicas)
    every = max(1, EVERY // replicas)
    found = {}
    while len(found) < len(TARGETS) and models.steps * replicas < MOST:
        rows = random.integers(0, len(y), (replicas, simulation.BATCH))
        models.step(x, y, rows, rate)
        if models.steps % every == 0:
            mean = np.mean(models.kernels, axis=0)
            accuracy = np.mean((test_x @ mean.T).argmax(axis=1) == test_y)
            for target in TARGETS:
                if accuracy >= target:
                    found.setdefault(f"{target:g}", models.steps)
    return found


def row(job, of_seeds, alone):
    """Mean steps to each accuracy, and the speed-up over one replica."""
    found = dict(zip(("replicas", "interval", "rate"), job))
    for target in (f"{target:g}" for target in TARGETS):
        if all(target in one for one in of_seeds):
            steps = [one[target] for one in of_seeds]
            own = [one[target] for one in alone]
            found[f"steps to {target}"] = float(np.mean(steps))
            speed_up = np.mean(own) / np.mean(steps)
            found[f"speed-up to {target}"] = float(speed_up)
            found[f"deviation {target}"] = float(np.std(steps))
    return {**found, "seeds": len(of_seeds)}


def table_5(args):
    """Accuracy of K replicas that meet every I steps, after EPOCHS."""
    x, y, test_x, test_y = load(args.folder)

    def accuracy(half, replicas, interval, rate, seed):
        parts = x, y, test_x[half::2], test_y[half::2]
        how = simulation.ANY, simulation.CONSTANT, EPOCHS, seed
        job = simulation.RP, replicas, interval, *how
        return simulation.trained(parts, *job, rate)[-1]["accuracy"]

    rate = max(RATES, key=lambda rate: accuracy(0, 1, 1, rate, 0))
    rows = []
    for replicas in (1, *REPLICAS):
        for interval in TABLE_5 if replicas > 1 else (1,):
            job = 1, replicas, interval, rate
            found = [accuracy(*job, seed) for seed in range(args.seeds)]
            row = {"replicas": replicas, "interval": interval, "rate": rate}
            row |= {"accuracy": float(np.mean(found))}
            row |= {"deviation": float(np.std(found)), "seeds": args.seeds}
            rows.append(row)
            print(rows[-1], flush=True)
    measure.save("local_sgd_table_5", rows)


def main(args):
    if args.table_5:
        table_5(args)
        return
    found = measure.jobs_done(
        NAME, __file__, list(jobs()), args.seeds, args.folder, args.cached
    )

    def alone(scale):
        return found[1, 1, scale if scale == SLOW else "K"]

    rows = [row(job, found[job], alone(job[-1])) for job in found]
    measure.save(NAME, rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        folder, replicas, interval, scale, seed = sys.argv[2:]
        job = int(replicas), int(interval), scale, int(seed)
        print(json.dumps(child(folder, *job)))
    else:
        parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
        parser.add_argument("folder")
        parser.add_argument("--seeds", type=int, default=3)
        parser.add_argument("--cached", action="store_true")
        parser.add_argument("--table_5", action="store_true")
        main(parser.parse_args())
