"""Adam's epsilon where most rows of a step are negatives.

    python -m benchmarks.comparison.groups_epsilon

100,000 classes of `groups.py` in groups of 50 and in none, a million in groups
of 50, 1,000 negatives, by methods and epsilons of `LazyAdam`; its default,
1e-7, is what `groups.py` has. What has a result, under benchmarks/cache/groups,
is not run again. Into benchmarks/results/comparison:

    groups_epsilon.json    how each job ends
"""

import argparse
import os
import sys

from benchmarks import kept_jobs
from benchmarks import measure
from benchmarks.comparison import groups
from benchmarks.comparison.groups_results import FOLDER
from benchmarks.comparison.groups_results import ms_a_step

METHODS = ("uniform", "auto", "forest", "lsh")
EPSILONS = (1e-2, 1e-1, 1e-3)
SETTINGS = [(100_000, 50, 1000, 512, 3000), (100_000, 1, 1000, 512, 3000)]
MILLION = (1_000_000, 50, 1000, 512, 20_000)


def make_jobs(seeds):
    tried = [(setting, EPSILONS) for setting in SETTINGS]
    tried.append((MILLION, EPSILONS[:1]))
    return [
        groups.GroupsJob(*setting, method, seed, epsilon=epsilon)
        for seed in seeds
        for setting, epsilons in tried
        for epsilon in epsilons
        for method in METHODS
    ]


def row_of(job, result):
    curve = result["curve"]
    half = curve[len(curve) // 2 - 1]
    return {
        **{key: getattr(job, key) for key in ("classes", "group", "epsilon")},
        **{key: getattr(job, key) for key in ("method", "seed")},
        "accuracy at half the steps": half["accuracy"],
        "accuracy": curve[-1]["accuracy"],
        "cpu_ms": ms_a_step(curve),
    }


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.comparison.groups_epsilon",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--figures", action="store_true", help="run nothing")
    parser.add_argument("--out", default=FOLDER)
    args = parser.parse_args(argv)
    jobs = make_jobs(args.seeds)
    pending = [] if args.figures else kept_jobs.pending(jobs)
    failed = kept_jobs.run_all(pending, groups.TRAIN)
    found = kept_jobs.read(jobs)
    if not found:
        return 1
    rows = [row_of(*each) for each in found]
    record = {key: found[0][1][key] for key in ("date", "machine")}
    record["command"] = "python -m benchmarks.comparison.groups_epsilon"
    if args.seeds != [0]:
        record["command"] += " --seeds " + " ".join(map(str, args.seeds))
    path = os.path.join(args.out, "groups_epsilon.json")
    measure.write(path, {**record, "rows": rows})
    print(measure.table(rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
