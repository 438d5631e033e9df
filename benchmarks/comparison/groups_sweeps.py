"""Trees L, cells, rebuilds T, tables L and functions K where neighbours pay.

    python -m benchmarks.comparison.groups_sweeps [--seeds 0 1 2]

The first setting of `groups.py` (10,000 classes in groups of 50, 100
negatives), by the papers' rules and as `SelectiveSoftmax` and `LSHSoftmax` are.
What has a result, under benchmarks/cache/groups, is not run again. Into
benchmarks/results/comparison:

    groups_sweeps.json    how each job ends, means over the seeds
    groups_sweeps.png     a panel for each option
"""

import statistics
import sys

from benchmarks.comparison import groups
from benchmarks.comparison import groups_command
from benchmarks.comparison.groups_results import LABELS
from benchmarks.comparison.groups_results import ms_a_step

FORESTS, TABLES = ("forest_paper", "forest"), ("lsh_uncorrected", "lsh")
SWEEPS = {
    "num_trees": (FORESTS, (2, 5, 10, 20, 50)),
    "leaf_size": (FORESTS, (25, 50, 100, 200, 400)),
    "rebuild_interval": (FORESTS, (50, 200, 500, 1000, 3000)),
    "num_tables": (TABLES, (10, 25, 50, 100)),
    "num_hashes": (TABLES, (5, 7, 9, 12)),
}
TITLES = {
    "num_trees": "trees L",
    "leaf_size": "rows of a cell",
    "rebuild_interval": "rebuild interval T, steps",
    "num_tables": "LSH tables L",
    "num_hashes": "LSH functions K",
}
NAMES = {**LABELS, "forest": "SelectiveSoftmax", "lsh": "LSHSoftmax"}


def make_jobs(seeds):
    return [
        groups.GroupsJob(
            *groups.SMALL[0], 128, 3000, method, seed, f"{option}={value}"
        )
        for seed in seeds
        for option, (methods, values) in SWEEPS.items()
        for method in methods
        for value in values
    ]


def rows_of(found):
    """A row for each option and method, means over the seeds."""
    ends = {}
    for job, result in found:
        ends.setdefault((job.method, job.option), []).append(result["curve"])
    rows = []
    for (method, setting), curves in ends.items():
        option, value = setting.split("=")
        reached = [curve[-1]["accuracy"] for curve in curves]
        rows.append(
            {
                "option": option,
                "value": int(value),
                "method": NAMES[method],
                "seeds": len(curves),
                "accuracy": statistics.fmean(reached),
                "cpu_ms": statistics.fmean(map(ms_a_step, curves)),
            }
        )
    return rows


def draw(rows, path):
    """Accuracy over each option, a line for each method."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    options = [
        name for name in SWEEPS if any(r["option"] == name for r in rows)
    ]
    figure, panels = plt.subplots(
        1,
        len(options),
        figsize=(3 * len(options), 3),
        sharey=True,
        squeeze=False,
    )
    for axes, option in zip(panels[0], options):
        for label in NAMES.values():
            points = sorted(
                (row["value"], row["accuracy"])
                for row in rows
                if (row["option"], row["method"]) == (option, label)
            )
            if points:
                axes.plot(*zip(*points), ".-", label=label)
        axes.set_xscale("log")
        values = SWEEPS[option][1]
        axes.set_xticks(values, [str(value) for value in values])
        axes.minorticks_off()
        axes.set_xlabel(TITLES[option])
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    panels[0][0].set_ylabel("accuracy")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(argv=None):
    return groups_command.run(
        "groups_sweeps", __doc__, make_jobs, rows_of, argv, draw
    )


if __name__ == "__main__":
    sys.exit(main())
