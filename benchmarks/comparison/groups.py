"""Classes in groups that are hard to tell apart: where selection pays.

    python -m benchmarks.comparison.groups

Each job is one head trained on one setting (classes, group size, negatives)
for so many steps, in a process of its own, with one second moment of Adam's for
all class rows; a job that has a result, under benchmarks/cache/groups, is not
run again. Into benchmarks/results/comparison:

    groups.csv            every point of every learning curve
    groups.json           how each job ends, as report.py shows it
    groups.png            the speed-up over uniform against v
    groups_constant.json  `AutoSampler`'s constant: what each one would cost,
                          once four settings have uniform and "neighbors" (the
                          part "constant")

`--figures` makes the last three again from the first; `--quick` runs two tiny
jobs.
"""

import argparse
import os
import sys
from typing import NamedTuple

from benchmarks import kept_jobs
from benchmarks import measure
from benchmarks.comparison import groups_results

CACHE = os.path.join(measure.FOLDER, "cache", "groups")
TRAIN = "benchmarks.comparison.groups_train"
METHODS = ("uniform", "auto", "lsh", "forest")
CONSTANT = ("neighbors",)
#: What is recommended: one second moment for all class rows.
SHARED = "second_moment='matrix'"
PAPERS = ("full", "random", "forest_paper", "lsh_uncorrected", "lsh_paper")


class GroupsJob(NamedTuple):
    """A head on a setting.

    Attributes:
        classes, group: ints, how many classes, and in groups of how many.
        negatives: int, places of a step beside those of a batch's labels.
        batch, steps: ints.
        method: str, in `METHODS`, `PAPERS` or `CONSTANT`.
        seed: int.
        option: str, a number that the method's sampler takes,
            `"num_trees=5"`, or "".
        optimizer: str, arguments of `LazyAdam`, `"epsilon=1e-2"`, or "".
    """

    classes: int
    group: int
    negatives: int
    batch: int
    steps: int
    method: str
    seed: int = 0
    option: str = ""
    optimizer: str = ""

    @property
    def path(self):
        return kept_jobs.path_of(CACHE, self)


# (classes, group, negatives): group sizes at 1 %, shares at a group of 50.
SMALL = [(10_000, 50, 100), (10_000, 1, 100), (10_000, 50, 10)]
SMALL += [(10_000, group, 100) for group in (10, 200)]
SMALL += [(10_000, 50, negatives) for negatives in (30, 300)]
# And the steps.
LARGE = [(100_000, group, 1000, 3000) for group in (50, 1)]
LARGE += [(1_000_000, 50, 1000, 20_000)]
WIDE = [(100_000, group, 1000, 3000) for group in (10, 200)]
WIDE += [(100_000, 50, negatives, 3000) for negatives in (100, 300, 3000)]
WIDE += [(1_000_000, group, 1000, 20_000) for group in (1, 10, 200)]
WIDE += [(1_000_000, 50, 3000, 20_000)]


def make_jobs(seeds, parts):
    """The jobs, those of the goal first."""
    jobs = []
    if "small" in parts:
        jobs += [
            GroupsJob(*setting, 128, 3000, method, seed)
            for seed in seeds
            for methods in (METHODS[:2], METHODS[2:])
            for setting in SMALL
            for method in methods
        ]
    if "papers" in parts:
        jobs += [
            GroupsJob(*SMALL[0], 128, 3000, method, seed)
            for seed in seeds
            for method in PAPERS
        ]
    if "constant" in parts:
        jobs += [
            GroupsJob(*setting, 128, 3000, method, seed)
            for seed in seeds
            for setting in SMALL
            for method in CONSTANT
        ]
    for part, settings in (("large", LARGE), ("wide", WIDE)):
        if part in parts:
            jobs += [
                GroupsJob(*setting, 512, steps, method, seed)
                for seed in seeds
                for *setting, steps in settings
                for method in METHODS
            ]
    return [job._replace(optimizer=SHARED) for job in jobs]


def read(jobs):
    """Results there are, a list of dicts."""
    return [result for _, result in kept_jobs.read(jobs)]


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.comparison.groups", description=__doc__
    )
    parts = ("small", "papers", "constant", "large", "wide")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--figures", action="store_true", help="run nothing")
    parser.add_argument("--quick", action="store_true", help="two tiny jobs")
    parser.add_argument("--out", help="benchmarks/results/comparison")
    args = parser.parse_args(argv)
    usual = os.path.join(CACHE, "quick") if args.quick else None
    args.out = args.out or usual or groups_results.FOLDER
    return args


def main(argv=None):
    args = parse_arguments(argv)
    jobs = make_jobs(args.seeds, args.parts)
    if args.quick:
        jobs = [GroupsJob(200, 10, 8, 16, 24, m) for m in METHODS[:2]]
    pending = [] if args.figures else kept_jobs.pending(jobs)

    def collect():
        groups_results.collect(read(jobs), args.out)

    failed = kept_jobs.run_all(pending, TRAIN, after=collect)
    if not args.figures and not pending:
        collect()  # of earlier runs
    groups_results.draw(args.out)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
