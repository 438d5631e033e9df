"""The settings of the paper's Table I: dim 200, 100 epochs, rate 0.25.

    python -m benchmarks.hierarchical.paper_settings --data ../shared/data \
        --fasttext FOLDER/bin/python [--jobs ...]

Our heads have another optimizer, and the rate of EU law at the nearest n.
fastText's softmax costs n times the width for each label, so sets with
thousands of labels have fewer epochs (`epoch`). One epoch shows what an epoch
costs. `labels` is the mean of a document, and `k` are predicted (Table II).
What has a result in the cache is not run again.
"""

import math
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


def rows_of(args, name):
    """Rows of a job, for each method that has a result of each seed."""
    job, rows = JOBS[name], []
    data = data_lib.load(job.name, args.data, job.size)
    for seed in job.seeds:
        group = jobs.Group(
            f"hierarchical/paper-{name}" + f"-{seed}" * (seed > 0),
            data,
            job.epochs,
            args.methods,
            args.fasttext,
            dim=DIM,
            evaluate_every=10,
            seed=seed,
        )
        results = {
            method: group.final(method, rate_of(method, data.num_classes))
            for method in job.methods
        }
        rows += jobs.rows_of(results, job.size)
    counts = [(part.labels >= 0).sum(1) for part in (data.train, data.test)]
    of_methods = [
        [row for row in rows if row["method"] == method]
        for method in job.methods
    ]
    return [
        {
            "set": job.name,
            "n": job.size,
            "labels": float(np.concatenate(counts).mean()),
            "k": data.k,
            "method": own[0]["method"],
            "rate": own[0]["rate"],
            "epoch": own[0]["epoch"],
            "seeds": len(own),
            **measure.means(own, *MEASURED),
            "f1 +-": measure.standard_error([row["f1"] for row in own]),
        }
        for own in of_methods
        if len(own) == len(job.seeds)
    ]


def main(argv=None):
    args = measure.arguments(
        __doc__,
        argv,
        choices={"jobs": JOBS},
        data="../shared/data",
        fasttext=None,
        jobs=list(JOBS),
        methods=[*FASTTEXT, *OURS],
    )
    rows = [row for name in args.jobs for row in rows_of(args, name)]
    measure.save(NAME, rows, ("set", "n", "method", "epoch"))


if __name__ == "__main__":
    main()
