"""Trains every method on every data set, and draws what comes of it.

Each job runs in a process of its own; what has a result is not run again. Jobs
take equal time, or with `--epochs` equal steps, whose files are apart.
"""

import argparse
import os
import sys
import tempfile

from benchmarks import measure
from benchmarks.comparison import figures
from benchmarks.comparison import jobs as jobs_lib
from benchmarks.comparison import results
from benchmarks.comparison import sets as sets_lib
from benchmarks.comparison.methods import METHODS
from benchmarks.comparison.sweeps import PARTS

CACHE = os.path.join(measure.FOLDER, "cache", "comparison")
SETS = [name for name in sets_lib.SETS if name not in sets_lib.EXTRA]
SECONDS = 30.0  # of the CPU, a job
QUICK_CLASSES = 200


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.comparison", description=__doc__
    )
    add = parser.add_argument
    add("--data", default="../shared/data", help="folder of the data sets")
    add("--sets", nargs="+", choices=sets_lib.SETS, default=SETS)
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    add("--parts", nargs="+", choices=PARTS, default=["curves"])
    add("--seconds", type=float, help=f"CPU of a job ({SECONDS:g})")
    add("--epochs", type=float, help="of a job; instead of seconds")
    add("--seeds", nargs="+", type=int, default=[0])
    add("--limit", type=int, help="keep this many classes, the commonest")
    add("--force", action="store_true", help="run finished jobs again")
    add("--figures", action="store_true", help="run nothing, only draw")
    add("--here", action="store_true", help="all jobs in this process")
    add("--quick", action="store_true", help="tiny, two minutes, for a look")
    add("--jobs", help="folder of their results (benchmarks/cache/...)")
    add("--out", help="folder of the figures (benchmarks/results/comparison)")
    add("--suffix", help="of the files' names, for a part of the methods")
    args = parser.parse_args(argv)
    jobs, out = os.path.join(CACHE, "jobs"), results.FOLDER
    if args.quick:
        jobs, out = (os.path.join(CACHE, "quick", n) for n in ("jobs", "out"))
        args.sets = ["generated"] if args.sets == SETS else args.sets
        args.epochs, args.limit, args.force = 1.0, QUICK_CLASSES, True
    elif args.epochs is None and args.seconds is None:
        args.seconds = SECONDS
    args.jobs, args.out = args.jobs or jobs, args.out or out
    return args


def jobs_of(args):
    """`{set: jobs}`."""
    return {
        name: jobs_lib.make_jobs(
            name,
            args.methods,
            args.parts,
            args.seeds,
            few=args.quick,
            epochs=args.epochs,
            seconds=args.seconds,
            limit=args.limit,
        )
        for name in args.sets
    }


def run(args, jobs):
    """Runs those without a result; dict of errors."""
    pending = [
        job
        for of_set in jobs.values()
        for job in of_set
        if args.force or not os.path.exists(job.path(args.jobs))
    ]
    print(f"{len(pending)} of {sum(map(len, jobs.values()))} jobs to run.")
    one = jobs_lib.in_fresh_process
    if args.here or args.quick:
        one = jobs_lib.in_this_process
    if args.here:
        from benchmarks.comparison import train  # loads TensorFlow

        train.use_one_thread()
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name in dict.fromkeys(job.set for job in pending):
            print(f"Reading {name} ...", flush=True)
            paths[name] = os.path.join(folder, name + ".npz")
            sets_lib.prepare(name, args.data, paths[name], args.limit)
        return jobs_lib.run_jobs(pending, args.jobs, paths, one)


def main(argv=None):
    args = parse_arguments(argv)
    jobs = jobs_of(args)
    errors = {} if args.figures else run(args, jobs)
    for name in args.sets:
        first = jobs[name][0]
        file = results.file_of(name, first, args.suffix)
        folder = os.path.join(args.jobs, name, first.budget)
        results.collect(file, folder, args.out)
        figures.draw(file, name, args.out)
    for name, error in errors.items():
        print(f"FAILED {name}: {error}")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
