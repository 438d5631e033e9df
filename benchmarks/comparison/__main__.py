"""Trains every method on every data set.

Each job runs in a process of its own; what has a result is not run again.
"""

import argparse
import json
import os
import sys
import tempfile

from benchmarks import measure
from benchmarks.comparison import jobs as jobs_lib
from benchmarks.comparison import results
from benchmarks.comparison import sets as sets_lib
from benchmarks.comparison.methods import METHODS

TRAIN = "benchmarks.comparison.train"
CACHE = os.path.join(measure.CACHE, "comparison", "jobs")
SETS = [name for name in sets_lib.SETS if name not in sets_lib.EXTRA]


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.comparison", description=__doc__
    )
    add = parser.add_argument
    add("--data", default="../shared/data", help="folder of the data sets")
    add("--sets", nargs="+", choices=sets_lib.SETS, default=SETS)
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    add("--parts", nargs="+", choices=jobs_lib.PARTS, default=["curves"])
    add("--epochs", type=float, required=True, help="of a job")
    add("--seeds", nargs="+", type=int, default=[0])
    add("--jobs", default=CACHE, help="folder of their results")
    add("--suffix", help="of the files' names, for a part of the methods")
    return parser.parse_args(argv)


def run(args, jobs):
    """Runs those without a result, of all sets; how many failed."""
    pending = [job for job in jobs if not os.path.exists(job.path(args.jobs))]
    print(f"{len(pending)} of {len(jobs)} jobs to run.")
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name in dict.fromkeys(job.set for job in pending):
            print(f"Reading {name} ...", flush=True)
            paths[name] = os.path.join(folder, name + ".npz")
            sets_lib.prepare(name, args.data, paths[name])

        def in_fresh_process(job):
            text = json.dumps(job._asdict())
            return measure.in_fresh_process("-m", TRAIN, text, paths[job.set])

        done = jobs_lib.ends_of(pending, args.jobs, in_fresh_process)
        return len(pending) - len(done)


def main(argv=None):
    args = parse_arguments(argv)
    jobs = {
        name: jobs_lib.make_jobs(
            name, args.methods, args.parts, args.seeds, args.epochs
        )
        for name in args.sets
    }
    failed = run(args, sum(jobs.values(), []))
    for name, of_set in jobs.items():
        rows = results.rows_of(
            jobs_lib.ends_of(of_set, args.jobs), args.parts != ["curves"]
        )
        suffix = f"_{args.suffix}" if args.suffix else ""
        name = f"comparison/{name}_steps{suffix}"
        # Rows of methods that were not run this time stay.
        rows = measure.with_earlier(name, rows, ("method", "setting"))
        measure.save(name, rows)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
