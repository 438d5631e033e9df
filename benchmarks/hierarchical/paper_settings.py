"""The settings of the paper's Table I: dim 200, 100 epochs, rate 0.25.

    python -m benchmarks.hierarchical.paper_settings --data ../shared/data \
        --fasttext FOLDER/bin/python [--jobs ...] [--tables]

All runs use one core and the same split. fastText has one seed, unless the job
names more, and the rate of the paper. Our heads have another optimizer, and the
rate of results/hierarchical/eurlex57k.json, chosen on validation rows of EU law
at the nearest n. fastText's softmax costs n times the width for each label, so
sets with thousands of labels have fewer epochs; `epoch` of a row says how many.
One epoch shows what an epoch costs. `labels` is the mean of a
document, and `k` are predicted (Table II). A job that has a result in the cache
is not run again, and a row that is in the table stays as it is.
"""

import argparse
import math
import os
import statistics
import time
from typing import NamedTuple

import numpy as np

from benchmarks import measure
from benchmarks.hierarchical import data as data_lib
from benchmarks.hierarchical import jobs

NAME = "hierarchical/paper_settings"
DIM, RATE, EPOCHS = 200, 0.25, 100
MEASURED = ("precision", "recall", "f1", "at_1", "cpu_seconds")
FASTTEXT = ("fastText hs", "fastText softmax")
OURS = ("hs huffman", "softmax")


class Job(NamedTuple):
    """Models of one set: its name, n, epochs, methods, seeds of fastText."""

    name: str
    size: int
    epochs: int
    methods: tuple
    seeds: tuple = (0,)


JOBS = {
    # fastText's generator takes a seed of 0 for 1.
    "eurlex-10": Job("eurlex57k", 10, EPOCHS, FASTTEXT, (0, 2, 3)),
    "eurlex-100": Job("eurlex57k", 100, EPOCHS, FASTTEXT),
    "eurlex-1000": Job("eurlex57k", 1000, EPOCHS, FASTTEXT),
    "eurlex-1000-epoch": Job("eurlex57k", 1000, 1, FASTTEXT),
    "eurlex-4271": Job("eurlex57k", 4271, EPOCHS, FASTTEXT),
    "eurlex-4271-epoch": Job("eurlex57k", 4271, 1, FASTTEXT),
    "esco": Job("esco", 3007, EPOCHS, ("fastText hs",)),
    "esco-short": Job("esco", 3007, 10, FASTTEXT + OURS),
    "yso-paper": Job("yso", 10_000, EPOCHS, ("fastText hs",)),
    "yso": Job("yso", 10_000, 10, ("fastText hs", *OURS)),
    "yso-short": Job("yso", 10_000, 2, FASTTEXT),
}


def rate_of(method, size):
    """fastText's of the paper; ours as validated at the nearest n."""
    if method in jobs.FASTTEXT:
        return RATE
    rows = measure.finished("hierarchical/eurlex57k")
    rows = [row for row in rows if row["method"] == method]
    return min(rows, key=lambda r: abs(math.log(r["n"] / size)))["rate"]


def folder_of(args, name, seed):
    return os.path.join(args.cache, f"paper-{name}" + f"-{seed}" * (seed > 0))


def run(args, name, job, methods):
    data = data_lib.load(job.name, args.data, job.size)
    for seed in job.seeds:
        group = jobs.Group(
            folder_of(args, name, seed),
            data,
            job.epochs,
            args.fasttext,
            dim=DIM,
            evaluate_every=10,
            seed=seed,
        )
        for method in set(job.methods) & set(methods):
            group.final(method, rate_of(method, data.num_classes))


def rows_of(args, name, job):
    """Rows by what they are known by, for each method that has a result."""
    rows = [
        row
        for seed in job.seeds
        for row in jobs.rows_of(folder_of(args, name, seed), job.size)
    ]
    by_method = {m: [r for r in rows if r["method"] == m] for m in job.methods}
    by_method = {
        method: rows
        for method, rows in by_method.items()
        if len(rows) == len(job.seeds)
    }
    if not by_method:
        return {}
    data = data_lib.load(job.name, args.data, job.size)
    told = {"set": job.name, "n": job.size, **labels_of(data)}
    measured = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": measure.machine(),
        "command": "python -m benchmarks.hierarchical.paper_settings "
        "--data ... --fasttext ...",
    }
    return {
        (job, method): {
            "measured": measured,
            **told,
            "method": method,
            "rate": rows[0]["rate"],
            "epoch": rows[0]["epoch"],
            "seeds": len(rows),
            **{
                key: statistics.fmean(row[key] for row in rows)
                for key in MEASURED
            },
            "f1 +-": spread_of([row["f1"] for row in rows]),
        }
        for method, rows in by_method.items()
    }


def spread_of(values):
    """The standard error of a mean, or "" for a single value."""
    if len(values) < 2:
        return ""
    return statistics.stdev(values) / len(values) ** 0.5


def labels_of(data):
    counts = [(rows.labels >= 0).sum(1) for rows in (data.train, data.test)]
    return {"labels": float(np.concatenate(counts).mean()), "k": data.k}


def finished():
    """Rows of the table as it is, as `rows_of` has them."""
    return {
        (job, row["method"]): row
        for row in measure.finished(NAME)
        for job in JOBS.values()
        if (job.name, job.size, job.epochs, len(job.seeds))
        == (row["set"], row["n"], row["epoch"], row["seeds"])
    }


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--data", default="../shared/data", help="folder of the data sets")
    add("--fasttext", help="a Python with fastText; see fasttext_peer.py")
    add("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    add("--methods", nargs="+", default=[*FASTTEXT, *OURS])
    add("--tables", action="store_true", help="run nothing, only the table")
    add("--cache", default=data_lib.CACHE)
    args = parser.parse_args(argv)
    for name in [] if args.tables else args.jobs:
        run(args, name, JOBS[name], args.methods)
    found = {}
    for name, job in JOBS.items():
        found |= rows_of(args, name, job)
    found |= finished()
    keys = [(job, x) for job in JOBS.values() for x in job.methods]
    measure.save(NAME, [found[key] for key in keys if key in found])


if __name__ == "__main__":
    main()
