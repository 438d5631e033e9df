"""Classes in groups that are hard to tell apart: where selection pays.

    python -m benchmarks.comparison.groups [TABLE ...] [--seeds 0 1 2]

Each job is one head trained on one setting (classes, group size, negatives)
for so many steps, in a process of its own. A job that has a result, under
benchmarks/cache/groups, is not run again. Each table is a file in
benchmarks/results/comparison; its rows are means over the seeds of how the jobs
end.

    groups          the samplers and the papers' rules on all settings, with one
                    second moment of Adam's for all class rows
    groups_lsh      the first setting. "the paper's LSH" gives each row a
                    softmax over its label and its own buckets (SimHash, K = 9,
                    L = 50), without a cut, a fill or a correction. "LSH,
                    uncorrected" has 100 negatives for the whole batch
    groups_sweeps   the first setting: trees L, cells, rebuilds T, tables L and
                    functions K, by the papers' rules and as `SelectiveSoftmax`
                    and `LSHSoftmax` are
"""

import argparse
import json
import os
import statistics
import sys
from typing import NamedTuple

from benchmarks import measure

CACHE = os.path.join(measure.CACHE, "groups")
TRAIN = "benchmarks.comparison.groups_train"
METHODS = ("uniform", "auto", "lsh", "forest")
PAPERS = ("full", "random", "forest_paper", "lsh_uncorrected", "lsh_paper")
#: What methods are called, where their name does not say it.
LABELS = {
    "full": "full softmax",
    "random": "the papers' random",
    "forest_paper": "the paper's forest",
    "lsh_uncorrected": "LSH, uncorrected",
    "lsh_paper": "the paper's LSH",
}
NAMES = {**LABELS, "forest": "SelectiveSoftmax", "lsh": "LSHSoftmax"}
#: What is recommended: one second moment for all class rows.
SHARED = "second_moment='matrix'"


class GroupsJob(NamedTuple):
    """A head on a setting.

    Attributes:
        classes, group: ints, how many classes, and in groups of how many.
        negatives: int, sampled classes of a step, without the labels.
        batch, steps: ints.
        method: str, in `METHODS` or `PAPERS`.
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
        fields = self._asdict().items()
        name = ",".join(f"{k}={v}" for k, v in fields if v != "")
        return os.path.join(CACHE, name + ".json")


# (classes, group, negatives): group sizes at 1 %, shares at a group of 50.
SMALL = [(10_000, 50, 100), (10_000, 1, 100), (10_000, 50, 10)]
SMALL += [(10_000, group, 100) for group in (10, 200)]
SMALL += [(10_000, 50, negatives) for negatives in (30, 300)]
# And the steps.
LARGE = [(100_000, group, 1000, 3000) for group in (50, 1, 10, 200)]
LARGE += [(100_000, 50, negatives, 3000) for negatives in (100, 300, 3000)]
LARGE += [(1_000_000, group, 1000, 20_000) for group in (50, 1, 10, 200)]
LARGE += [(1_000_000, 50, 3000, 20_000)]
PAPER = "forest_paper"  # the one that has all seeds in sweeps
FORESTS, TABLES = (PAPER, "forest"), ("lsh_uncorrected", "lsh")
SWEEPS = {
    "num_trees": (FORESTS, (2, 5, 10, 20, 50, 100, 200)),
    "leaf_size": (FORESTS, (25, 50, 100, 200, 400)),
    "rebuild_interval": (FORESTS, (50, 200, 500, 1000, 3000)),
    "num_tables": (TABLES, (10, 25, 50, 100)),
    "num_hashes": (TABLES, (5, 7, 9, 12)),
}


def usual_jobs(seeds):
    """The jobs of the table `groups`; those with few classes come first."""
    small = [
        GroupsJob(*setting, 128, 3000, method, seed)
        for seed in seeds
        for setting in SMALL
        for method in METHODS
    ]
    small += [
        GroupsJob(*SMALL[0], 128, 3000, method, seed)
        for seed in seeds
        for method in PAPERS
    ]
    large = [
        GroupsJob(*setting, 512, steps, method, seed)
        for seed in seeds
        for *setting, steps in LARGE
        for method in METHODS
    ]
    return [job._replace(optimizer=SHARED) for job in small + large]


def usual_row(job, results):
    ends = [result["curve"][-1] for result in results]
    reached = [end["accuracy"] for end in ends]
    row = {
        "classes": job.classes,
        "group": job.group,
        "negatives": job.negatives,
        "method": job.method,
        "steps": ends[0]["step"],
        "seeds": len(ends),
        "accuracy": statistics.fmean(reached),
        "accuracy +-": statistics.stdev(reached) if reached[1:] else "",
    }
    for name in ("v", "noise"):
        row[name] = statistics.fmean(
            point[name] for result in results for point in result["curve"]
        )
    return {**row, "cpu_ms": cpu_ms(ends)}


def lsh_jobs(seeds):
    return [
        GroupsJob(*SMALL[0], 128, 3000, method, seed, optimizer=SHARED)
        for seed in seeds
        for method in ("uniform", "random", "lsh_uncorrected", "lsh_paper")
    ]


def lsh_row(job, results):
    ends = [result["curve"][-1] for result in results]
    reached = [end["accuracy"] for end in ends]
    return {
        "method": LABELS.get(job.method, job.method),
        "seeds": len(ends),
        "accuracy": statistics.fmean(reached),
        "cpu_s": statistics.fmean(end["cpu_s"] for end in ends),
        "least": min(reached),
        "most": max(reached),
    }


def sweep_jobs(seeds):
    jobs = [GroupsJob(*SMALL[0], 128, 3000, "random", seed) for seed in seeds]
    return jobs + [
        GroupsJob(*SMALL[0], 128, 3000, method, seed, f"{option}={value}")
        for seed in seeds
        for option, (methods, values) in SWEEPS.items()
        for method in methods
        for value in values
        if seed == seeds[0] or method == PAPER
    ]


def sweep_row(job, results):
    ends = [result["curve"][-1] for result in results]
    option, _, value = job.option.partition("=")
    return {
        "option": option,
        "value": int(value) if value else "",
        "method": NAMES[job.method],
        "seeds": len(ends),
        "accuracy": statistics.fmean(end["accuracy"] for end in ends),
        "cpu_ms": cpu_ms(ends),
    }


def cpu_ms(ends):
    """CPU time of a step, the mean over jobs that have these ends."""
    return statistics.fmean(1e3 * end["cpu_s"] / end["step"] for end in ends)


#: The jobs, a row of those that differ in their seed alone, and its keys.
KINDS = {
    "groups": (
        usual_jobs,
        usual_row,
        ("classes", "group", "negatives", "method"),
    ),
    "groups_lsh": (lsh_jobs, lsh_row, ("method",)),
    "groups_sweeps": (sweep_jobs, sweep_row, ("option", "value", "method")),
}


def result_of(job):
    """The result of a job, run if there is none; or `{"error": line}`."""

    def run():
        text = json.dumps(job._asdict())
        found = measure.in_fresh_process("-m", TRAIN, text)
        print(os.path.basename(job.path), found.get("error", "done"))
        return found

    return measure.kept(job.path, run)


def tabulate(name, seeds):
    """Runs the jobs of a table, and saves its rows; how many jobs failed."""
    make_jobs, row_of, keys = KINDS[name]
    found, failed = {}, 0
    for job in make_jobs(seeds):
        result = result_of(job)
        if "error" in result:
            failed += 1
        else:
            found.setdefault(job._replace(seed=0), []).append(result)
    rows = [row_of(job, results) for job, results in found.items()]
    name = f"comparison/{name}"
    measure.save(name, measure.with_earlier(name, rows, keys))
    return failed


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    args = parser.parse_args(argv)
    failed = [tabulate(name, args.seeds) for name in args.tables or KINDS]
    return int(any(failed))


if __name__ == "__main__":
    sys.exit(main())
