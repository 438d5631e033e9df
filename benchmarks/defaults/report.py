"""Tables and a figure of regrets: how far a fixed choice is behind the best.

The best choice of a cell is the optimizer, its rate and the encoder's rate
that have the best validation rows. Regret is the difference of test rows, in
points. `HeadAdam()` and the best choice of a cell have three seeds, others one.
"""

import collections
import json

import numpy as np

from benchmarks import figure_style
from benchmarks import measure
from benchmarks.defaults.cells import CELLS
from benchmarks.defaults.model import OPTIMIZERS

#: The runs, from which the tables are made.
RUNS = measure.result_path("defaults/runs.jsonl")
SGD = "SGD, momentum"
#: A setting is the optimizer, its rate and the encoder's rate.
DEFAULT = "HeadAdam", 1e-3, 1e-3
#: What the figure shows, and what it calls them.
_SHOWN = {
    "HeadAdam": "HeadAdam(), the default",
    "Adam": "Adam",
    "Adam, a moment a row": "Adam, one moment per class",
    "Adagrad": "Adagrad",
    SGD: "SGD with momentum",
}


def settings_of(rows):
    """`{cell: {setting: rows}}` of the runs with uniform samples."""
    found = {cell.name: collections.defaultdict(list) for cell in CELLS}
    for row in rows:
        if not row.get("sampler"):
            key = row["optimizer"], row["rate"], row["encoder_rate"]
            found[row["cell"]][key].append(row)
    return found


def points(rows):
    """Percent of right test rows, a mean over seeds."""
    return float(np.mean([100 * row["test"] for row in rows]))


def best_of(runs, *optimizers):
    """The setting with the best validation rows, of all rules by default."""
    keys = [key for key in runs if key[0] in (optimizers or OPTIMIZERS)]
    return max(keys, key=lambda key: runs[key][0]["validation"])


def cell_table(cells):
    """A row for each cell: the default and the best of seven rules."""
    table = []
    for cell, runs in cells.items():
        name, rate, encoder_rate = best_of(runs)
        best = points(runs[name, rate, encoder_rate])
        default = points(runs[DEFAULT])
        table.append(
            {
                "cell": cell,
                "LazyAdam(1e-3)": round(points(runs["Adam", 1e-3, 1e-3]), 1),
                "SGD, best rate": round(points(runs[best_of(runs, SGD)]), 1),
                "HeadAdam()": round(default, 1),
                "best of seven": round(best, 1),
                "which": f"{name} {rate:g}, encoder {encoder_rate:g}",
                "behind": round(best - default, 1),
            }
        )
    return sorted(table, key=lambda row: -row["behind"])


def regret_table(cells):
    """A row for each fixed setting that all cells have, encoder at 1e-3."""
    best = {cell: points(runs[best_of(runs)]) for cell, runs in cells.items()}
    table = []
    for name, rate, encoder_rate in set.intersection(*map(set, cells.values())):
        # `HeadAdam` has one rate, for the encoder as well.
        if encoder_rate != (rate if name == DEFAULT[0] else 1e-3):
            continue
        behind = {
            cell: best[cell] - points(runs[name, rate, encoder_rate])
            for cell, runs in cells.items()
        }
        worst = max(behind, key=behind.get)
        table.append(
            {
                "optimizer": name,
                "rate": rate,
                "mean regret": round(float(np.mean([*behind.values()])), 2),
                "worst": round(behind[worst], 1),
                "worst cell": worst,
                "behind": sorted(behind.values(), reverse=True),
            }
        )
    return sorted(table, key=lambda row: row["mean regret"])


def sampler_table(rows):
    """A row for each cell in which samplers were compared."""
    table = []
    for cell in CELLS:
        found = collections.defaultdict(list)
        for row in rows:
            if row["cell"] == cell.name and row.get("sampler"):
                found[row["sampler"]].append(row)
        seconds = {
            name: np.median([row["seconds"] for row in of_name])
            for name, of_name in found.items()
        }
        cells = {
            name: f"{points(found[name]):.1f} ({x / seconds['uniform']:.1f})"
            for name, x in seconds.items()
        }
        if cells:
            table.append({"cell": cell.name, **cells})
    return table


def draw(table):
    """results/defaults/cells.png, of `regret_table`: worst cell first."""
    figure, (axes,) = figure_style.new_figure()
    for name, label in _SHOWN.items():
        # The table begins with the best rate.
        row = next(r for r in table if r["optimizer"] == name)
        axes.plot(
            range(1, len(row["behind"]) + 1),
            row["behind"],
            label=f"{label}: {row['rate']:g}",
            linewidth=2.5 if name == DEFAULT[0] else 1.5,
        )
    axes.axhline(0, color="gray", linewidth=1)
    axes.set(
        ylim=(-20, 60),
        xlabel="tasks, each line from its worst to its best",
        ylabel="points of accuracy behind the best choice",
    )
    axes.legend(title="optimizer and its best single rate")
    title = "One fixed setting of HeadAdam is near the best of each task"
    path = measure.result_path("defaults/cells.png")
    figure_style.save(figure, path, title)


def tables(rows):
    """Rows of the results' tables by name; draws the figure."""
    found = settings_of(rows)
    kept_back = {cell.name for cell in CELLS if cell.is_kept_back}
    cells = {c: runs for c, runs in found.items() if c not in kept_back}
    others = {c: runs for c, runs in found.items() if c in kept_back}
    result = {
        "cells": cell_table(cells),
        "rates": regret_table(cells),
        "rates_kept_back": regret_table(others),
        "samplers": sampler_table(rows),
    }
    draw(result["rates"])
    for row in result["rates"] + result["rates_kept_back"]:
        del row["behind"]
    return result


def finished():
    with open(RUNS) as f:
        return [json.loads(line) for line in f]


def write(rows):
    """Writes runs.jsonl, results/defaults/*.json and the figure."""
    with open(RUNS, "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    for name, table in tables(rows).items():
        command = "python -m benchmarks.defaults DATA"
        measure.save(f"defaults/{name}", table, command=command)
