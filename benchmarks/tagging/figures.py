"""Accuracy against CPU seconds: a figure a set, and a ranking of all."""

import json
import os
import textwrap

from benchmarks import figure_style
from benchmarks.tagging.sets import SETS


def draw_set(folder, name):
    """<set>.png: P@1 and P@5 of the tools of <set>.json, best first."""
    rows = rows_of(folder, name)
    figure, axes = figure_style.new_figure(rows=2, width=5.6, height=3.7)
    for axis, measured in zip(axes, ("P@1", "P@5")):
        _draw_ranking(axis, rows, measured)
    best = max(rows, key=lambda row: row["P@1"])["tool"]
    title = f"{SETS[name].title}: {best} has the highest P@1"
    figure_style.save(figure, os.path.join(folder, name + ".png"), title)


def draw_all(folder):
    """accuracy.png: P@1 of each set with two tools or more, best first."""
    found = {name: rows_of(folder, name) for name in SETS}
    found = {name: rows for name, rows in found.items() if len(rows) > 1}
    if not found:
        return
    figure, axes = figure_style.new_figure(
        rows=len(found), width=5.6, height=3.8
    )
    for axis, (name, rows) in zip(axes, found.items()):
        _draw_ranking(axis, rows, "P@1")
        axis.set_title(textwrap.fill(SETS[name].title, 40))
    figure_style.save(
        figure, os.path.join(folder, "accuracy.png"), _conclusion(found)
    )


def _draw_ranking(axis, rows, measured):
    """A bar for each tool; its CPU seconds are written on it."""
    for row in sorted(rows, key=lambda row: row[measured]):
        is_ours = row["tool"].startswith("Tagger")
        color = "tab:blue" if is_ours else "lightgray"
        axis.barh(row["tool"], 100 * row[measured], color=color)
        axis.text(
            0,
            row["tool"],
            f" {100 * row[measured]:.1f} %, {row['cpu_s']:,.3g} s",
            va="center",
            color="white" if is_ours else "black",
            fontsize=9,
        )
    axis.grid(visible=False)
    axis.tick_params(axis="y", length=0, labelsize=10)
    axis.set_xlabel(f"{measured} in percent, CPU seconds of training")


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
