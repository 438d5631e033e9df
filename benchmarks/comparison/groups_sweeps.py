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

from benchmarks import figure_style
from benchmarks.comparison import groups
from benchmarks.comparison import groups_command
from benchmarks.comparison.groups_results import LABELS
from benchmarks.comparison.groups_results import ms_a_step

PAPER = "forest_paper"  # the one that has all seeds, the others the first
FORESTS, TABLES = (PAPER, "forest"), ("lsh_uncorrected", "lsh")
SWEEPS = {
    "num_trees": (FORESTS, (2, 5, 10, 20, 50)),
    "leaf_size": (FORESTS, (25, 50, 100, 200, 400)),
    "rebuild_interval": (FORESTS, (50, 200, 500, 1000, 3000)),
    "num_tables": (TABLES, (10, 25, 50, 100)),
    "num_hashes": (TABLES, (5, 7, 9, 12)),
}
TITLES = {
    "num_trees": "trees",
    "leaf_size": "classes in a leaf",
    "rebuild_interval": "steps between rebuilds",
    "num_tables": "LSH tables",
    "num_hashes": "hash functions per table",
}
TITLE = (
    "SelectiveSoftmax and LSHSoftmax hardly depend on the options of "
    "their index"
)
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
        if seed == seeds[0] or method == PAPER
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
    options = [
        name for name in SWEEPS if any(r["option"] == name for r in rows)
    ]
    figure, panels = figure_style.new_figure(
        2, (len(options) + 2) // 2, 2.8, 2.4, sharey=True
    )
    for axes, option in zip(panels, options):
        methods, values = SWEEPS[option]
        for method in methods:
            axes.plot(
                *_line(rows, option, NAMES[method]),
                ".-",
                color=figure_style.COLORS[method],
                label=NAMES[method],
            )
        axes.set(xlabel=TITLES[option], xscale="log")
        # Every second one: the panels are narrow.
        axes.set_xticks(values[::2], [f"{value:,}" for value in values[::2]])
        axes.minorticks_off()
    _legend(panels, len(options))
    figure.supylabel("accuracy in percent", fontsize=10)
    figure_style.save(figure, path, TITLE)


def _line(rows, option, label):
    """`(values, accuracies in percent)`, by value."""
    points = sorted(
        (row["value"], 100 * row["accuracy"])
        for row in rows
        if (row["option"], row["method"]) == (option, label)
    )
    return tuple(zip(*points)) or ((), ())


def _legend(panels, used):
    """One legend for all panels, in the first one that is not used."""
    found = {}
    for axes in panels[:used]:
        lines, labels = axes.get_legend_handles_labels()
        found.update(zip(labels, lines))
    for axes in panels[used:]:
        axes.set_axis_off()
    panels[used].legend(found.values(), found, loc="center")


def main(argv=None):
    return groups_command.run(
        "groups_sweeps", __doc__, make_jobs, rows_of, argv, draw
    )


if __name__ == "__main__":
    sys.exit(main())
