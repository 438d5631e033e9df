"""Adam's epsilon where most rows of a step are negatives.

    python -m benchmarks.comparison.groups_epsilon

100,000 classes of `groups.py` in groups of 50 and in none, a million in groups
of 50, 1,000 negatives, by methods and epsilons of `LazyAdam`; its default,
1e-7, is what `groups.py` has. What has a result, under benchmarks/cache/groups,
is not run again. Into benchmarks/results/comparison:

    groups_epsilon.json    how each job ends
"""

import sys

from benchmarks.comparison import groups
from benchmarks.comparison import groups_command
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


def rows_of(found):
    return [row_of(*each) for each in found]


def main(argv=None):
    return groups_command.run(
        "groups_epsilon", __doc__, make_jobs, rows_of, argv
    )


if __name__ == "__main__":
    sys.exit(main())
