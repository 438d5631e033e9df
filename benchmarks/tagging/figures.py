"""Accuracy against CPU seconds: a figure a set, and a ranking of all."""

import json
import os

from benchmarks import figure_style
from benchmarks.tagging.sets import SETS
from benchmarks.tagging.tools import TOOLS

LABELS = [tool.label for tool in TOOLS.values()]


def draw_set(folder, name):
    """<set>.png: P@1 and P@5 of the tools of <set>.json."""
    rows = rows_of(folder, name)
    figure, axes = _axes(2)
    for axis, k in zip(axes, (1, 5)):
        _draw(axis, rows, f"P@{k}")
    axes[0].legend(fontsize=8)
    figure.suptitle(SETS[name].title)
    _save(figure, os.path.join(folder, name + ".png"))


def draw_all(folder):
    """accuracy.png: P@1 of each set with two tools or more, best first."""
    found = {name: rows_of(folder, name) for name in SETS}
    found = {name: rows for name, rows in found.items() if len(rows) > 1}
    if not found:
        return
    columns = min(2, len(found))
    figure, axes = figure_style.new_figure(
        columns, -(-len(found) // columns), width=5.6, height=3.7
    )
    for axis in axes[len(found) :]:
        axis.remove()
    for axis, (name, rows) in zip(axes, found.items()):
        _draw_ranking(axis, sorted(rows, key=lambda row: row["P@1"]))
        axis.set_title(SETS[name].title, fontsize=9)
    figure_style.save(
        figure, os.path.join(folder, "accuracy.png"), _conclusion(found)
    )


def _draw_ranking(axis, rows):
    """A bar for each tool; its CPU seconds are written on it."""
    for row in rows:
        is_ours = row["tool"].startswith("Tagger")
        color = "tab:blue" if is_ours else "lightgray"
        axis.barh(row["tool"], 100 * row["P@1"], color=color)
        axis.text(
            0,
            row["tool"],
            f" {100 * row['P@1']:.1f} %, {row['cpu_s']:,.3g} s",
            va="center",
            color="white" if is_ours else "black",
            fontsize=9,
        )
    axis.grid(visible=False)
    axis.tick_params(axis="y", length=0, labelsize=10)
    axis.set_xlabel("P@1 in percent, CPU seconds of training")


def _conclusion(found):
    best = [max(rows, key=lambda row: row["P@1"]) for rows in found.values()]
    wins = sum(row["tool"].startswith("Tagger") for row in best)
    return f"A Tagger has the highest P@1 on {wins} of {len(found)} data sets"


def rows_of(folder, name):
    """The rows of <set>.json that have figures; none without the file."""
    path = os.path.join(folder, name + ".json")
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [row for row in json.load(f)["rows"] if "cpu_s" in row]


def _axes(count):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    width = (5.5 if count < 3 else 4) * count
    figure, axes = plt.subplots(1, count, figsize=(width, 4.2), squeeze=False)
    return figure, axes[0]


def _draw(axis, rows, measured):
    for row in rows:
        i = LABELS.index(row["tool"]) if row["tool"] in LABELS else 0
        axis.plot(
            row["cpu_s"], row[measured], "osv^D<>pPX"[i % 10], linestyle="",
            color=f"C{i % 10}", label=row["tool"],
            markersize=9 if i < 2 else 6,
        )  # fmt: skip
    axis.set(xscale="log", xlabel="CPU seconds to train", ylabel=measured)
    axis.grid(alpha=0.3)


def _save(figure, path, bottom=0.0):
    import matplotlib.pyplot as plt

    figure.tight_layout(rect=(0, bottom, 1, 1))
    figure.savefig(path, dpi=90)
    plt.close(figure)
