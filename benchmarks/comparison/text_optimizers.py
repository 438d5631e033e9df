"""Optimizers of class rows on text, in equal steps.

    python -m benchmarks.comparison.text_optimizers [--data FOLDER] [--seeds 0]

The sets of `python -m benchmarks.comparison`, some epochs of each with a rate
that falls to nothing, by uniform draws: LazyAdam as it is, and with one second
moment for all class rows, at three rates. What has a result, under
benchmarks/cache, is not run again. Into benchmarks/results/comparison:

    text_optimizers.json    how each job ends, means over the seeds
"""

import argparse
import json
import os
import statistics
import sys
import tempfile

from benchmarks import measure
from benchmarks.comparison import groups_command
from benchmarks.comparison import results
from benchmarks.comparison import sets
from benchmarks.comparison.groups import SHARED
from benchmarks.comparison.jobs import Job
from benchmarks.comparison.jobs import run_jobs

CACHE = os.path.join(measure.CACHE, "text_optimizers")
METHOD = "uniform"
EPOCHS = {
    "verses": 8.0,
    "eurlex57k": 8.0,
    "word2vec": 1.5,
    "reverse_dictionary": 4.0,
}
RATES = (1 / 3, 1.0, 3.0)  # of the set's own


def make_jobs(seeds):
    jobs = []
    for name, epochs in EPOCHS.items():
        own = sets.SETS[name].first_rate
        for share in RATES:
            rate = f"learning_rate={own * share:.1e}"
            for optimizer in (rate, f"{rate};{SHARED}"):
                jobs += [
                    Job(name, METHOD, {}, seed, epochs, optimizer=optimizer)
                    for seed in seeds
                ]
    return jobs


def has_result(job):
    return os.path.exists(job.path(CACHE))


def read(job):
    with open(job.path(CACHE)) as f:
        return json.load(f)


def rows_of(found):
    """A row for each set and optimizer, means over the seeds."""
    runs = {}
    for job, result in found:
        runs.setdefault((job.set, job.optimizer), []).append(
            result["curve"][-1]
        )
    return [
        {
            "set": name,
            "optimizer": optimizer,
            "epochs": EPOCHS[name],
            "seeds": len(ends),
            "precision@1": statistics.fmean(e["precision@1"] for e in ends),
            "cpu_seconds": statistics.fmean(e["cpu_seconds"] for e in ends),
        }
        for (name, optimizer), ends in runs.items()
    ]


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.comparison.text_optimizers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", default="../shared/data")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--figures", action="store_true", help="run nothing")
    parser.add_argument("--out", default=results.FOLDER)
    args = parser.parse_args(argv)
    jobs = make_jobs(args.seeds)
    pending = [] if args.figures else [j for j in jobs if not has_result(j)]
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name in dict.fromkeys(job.set for job in pending):
            paths[name] = os.path.join(folder, name + ".npz")
            sets.prepare(name, args.data, paths[name])
        errors = run_jobs(pending, CACHE, paths) if pending else {}
    found = [(job, read(job)) for job in jobs if has_result(job)]
    if not found:
        return 1
    path = os.path.join(args.out, "text_optimizers.json")
    groups_command.write(path, rows_of(found), found, parser.prog, args.seeds)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
