"""Optimizers of class rows, where most rows of a step are negatives.

    python -m benchmarks.comparison.groups_optimizers

10,000 classes of `groups.py` in groups of 50, and 100,000 in groups of 50 and
in none, by methods and by settings of `LazyAdam`: learning rates, epsilons, one
second moment for all class rows (as all of `groups.py` is). What has a result,
under benchmarks/cache/groups, is not run again. Into
benchmarks/results/comparison:

    groups_optimizers.json    how each job ends
"""

import sys

from benchmarks.comparison import groups
from benchmarks.comparison import groups_command
from benchmarks.comparison.groups_results import ms_a_step

METHODS = ("uniform", "auto", "forest", "lsh")
OPTIMIZERS = (
    groups.SHARED,
    "",
    "learning_rate=3e-3",
    "learning_rate=1e-3",
    "epsilon=1e-2",
    "epsilon=1e-1",
    f"learning_rate=3e-3;{groups.SHARED}",
)
SETTINGS = {
    (10_000, 50, 100, 128, 3000): METHODS,
    (100_000, 50, 1000, 512, 3000): METHODS,
    (100_000, 1, 1000, 512, 3000): METHODS[:2],
}


def make_jobs(seeds):
    return [
        groups.GroupsJob(*setting, method, seed, optimizer=optimizer)
        for seed in seeds
        for setting, methods in SETTINGS.items()
        for optimizer in OPTIMIZERS
        for method in methods
    ]


def row_of(job, result):
    curve = result["curve"]
    half = curve[len(curve) // 2 - 1]
    return {
        "classes": job.classes,
        "group": job.group,
        "optimizer": job.optimizer or "as Keras' Adam",
        "method": job.method,
        "seed": job.seed,
        "accuracy at half the steps": half["accuracy"],
        "accuracy": curve[-1]["accuracy"],
        "cpu_ms": ms_a_step(curve),
    }


def rows_of(found):
    return [row_of(*each) for each in found]


def main(argv=None):
    return groups_command.run(
        "groups_optimizers", __doc__, make_jobs, rows_of, argv
    )


if __name__ == "__main__":
    sys.exit(main())
