"""Accuracy against CPU seconds: a figure a set, and one of all."""

import json
import os

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
    """accuracy.png: P@1 of each set with two tools or more."""
    found = {name: rows_of(folder, name) for name in SETS}
    found = {name: rows for name, rows in found.items() if len(rows) > 1}
    if not found:
        return
    figure, axes = _axes(len(found))
    for axis, (name, rows) in zip(axes, found.items()):
        _draw(axis, rows, "P@1")
        axis.set_title(SETS[name].title, fontsize=9)
    handles = {}
    for axis in axes:
        handles.update(zip(*axis.get_legend_handles_labels()[::-1]))
    figure.legend(
        handles.values(), handles, loc="lower center", ncols=5, fontsize=8
    )
    _save(figure, os.path.join(folder, "accuracy.png"), bottom=0.16)


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
