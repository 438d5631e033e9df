"""Sampling by hashing with the paper's rule, on classes in groups.

    python -m benchmarks.comparison.groups_lsh [--seeds 0 1 2]

10,000 classes in groups of 50, 3,000 steps, as in groups.py. "the paper's LSH"
gives each row a softmax over its label and its own buckets (SimHash, K = 9,
L = 50), without a cut, a fill or a correction. "LSH, uncorrected" has 100
negatives for the whole batch. Into
benchmarks/results/comparison/groups_lsh.json.
"""

import argparse
import os
import statistics
import time

from benchmarks import kept_jobs
from benchmarks import measure
from benchmarks.comparison import groups
from benchmarks.comparison.groups_results import FOLDER
from benchmarks.comparison.groups_results import LABELS

METHODS = ("uniform", "random", "lsh_uncorrected", "lsh_paper")


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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    seeds = parser.parse_args().seeds
    jobs = [
        groups.GroupsJob(
            *groups.SMALL[0], 128, 3000, method, seed, optimizer=groups.SHARED
        )
        for seed in seeds
        for method in METHODS
    ]

    def save():
        record = {
            "date": time.strftime("%Y-%m-%d"),
            "machine": measure.machine(),
            "command": "python -m benchmarks.comparison.groups_lsh",
            "rows": rows_of(kept_jobs.read(jobs)),
        }
        measure.write(os.path.join(FOLDER, "groups_lsh.json"), record)

    kept_jobs.run_all(kept_jobs.pending(jobs), groups.TRAIN, after=save)
    save()


if __name__ == "__main__":
    main()
