"""Sampling by hashing with the paper's rule, on classes in groups.

    python -m benchmarks.comparison.groups_lsh --seeds 0 1 2

10,000 classes in groups of 50, 3,000 steps, as in groups.py. "the paper's LSH"
gives each row a softmax over its label and its own buckets (SimHash, K = 9,
L = 50), without a cut, a fill or a correction. "LSH, uncorrected" has 100
negatives for the whole batch. Into
benchmarks/results/comparison/groups_lsh.json.
"""

import statistics
import sys

from benchmarks.comparison import groups
from benchmarks.comparison import groups_command
from benchmarks.comparison.groups_results import LABELS

METHODS = ("uniform", "random", "lsh_uncorrected", "lsh_paper")


def make_jobs(seeds):
    return [
        groups.GroupsJob(
            *groups.SMALL[0], 128, 3000, method, seed, optimizer=groups.SHARED
        )
        for seed in seeds
        for method in METHODS
    ]


def rows_of(found):
    """Means over the seeds of how the jobs end."""
    ends = {}
    for job, result in found:
        ends.setdefault(job.method, []).append(result["curve"][-1])
    return [
        {
            "method": LABELS.get(method, method),
            "seeds": len(of_seeds),
            **{
                name: statistics.mean(end[name] for end in of_seeds)
                for name in ("accuracy", "cpu_s")
            },
            "least": min(end["accuracy"] for end in of_seeds),
            "most": max(end["accuracy"] for end in of_seeds),
        }
        for method, of_seeds in ends.items()
    ]


def main(argv=None):
    return groups_command.run("groups_lsh", __doc__, make_jobs, rows_of, argv)


if __name__ == "__main__":
    sys.exit(main())
