"""Tables and a figure of regrets: how far a fixed choice is behind the best.

The best choice of a cell is the optimizer, its rate and the encoder's rate
that have the best validation rows. Regret is the difference of test rows, in
points. `HeadAdam()` and the best choice of a cell have three seeds, others one.
"""

import json
import os
import time

import numpy as np

from benchmarks import figure_style
from benchmarks import measure
from benchmarks.defaults.cells import CELLS
from benchmarks.defaults.model import ADAM_FOR_EMBEDDINGS
from benchmarks.defaults.model import OPTIMIZERS

NAME = "defaults"
#: The runs, from which the tables are made.
RUNS = os.path.join(measure.RESULTS, NAME, "runs.jsonl")
DEFAULT = "HeadAdam"
BASELINE = "class means"
SGD = "SGD, momentum"
_KEPT_BACK = {cell.name for cell in CELLS if cell.is_kept_back}
# One color for each optimizer.
_SHOWN = {
    "HeadAdam": "tab:blue",
    "Adam": "tab:orange",
    "Adam, a moment a row": "tab:red",
    "Adagrad": "tab:green",
    "SGD, momentum": "tab:purple",
}
# What the figure calls them.
_CALLED = {
    "HeadAdam": "HeadAdam(), the default",
    "Adam, a moment a row": "Adam, one moment per class",
    SGD: "SGD with momentum",
}


def allowed(best):
    """Points behind the best that the goal allows."""
    return max(2.0, 0.04 * (100 - best))


def settings(rows, cell):
    """Test and validation points of each setting of a cell, a dict.

    Keys are `(optimizer, rate, encoder_rate)`; values are pairs of means over
    seeds: the validation rows of seed 0, and the test rows of all seeds.
    """
    found = {}
    for row in rows:
        is_ours = row["cell"] == cell and row["optimizer"] != BASELINE
        if is_ours and not row.get("sampler"):
            key = row["optimizer"], row["rate"], row["encoder_rate"]
            found.setdefault(key, []).append(row)
    return {
        key: (
            100 * of_key[0]["validation"],
            float(np.mean([100 * row["test"] for row in of_key])),
        )
        for key, of_key in found.items()
    }


def best_of(of_cell, optimizer=None):
    """`(setting, test points)`, chosen on validation rows."""
    keys = [
        key
        for key in of_cell
        if key[0] in ([optimizer] if optimizer else OPTIMIZERS)
    ]
    key = max(keys, key=lambda key: of_cell[key][0])
    return key, of_cell[key][1]


def finished_cells(rows):
    """Names of the cells whose runs are complete, in order."""
    found = [
        {
            row["cell"]
            for row in rows
            if row["optimizer"] in ([DEFAULT] if is_default else OPTIMIZERS)
            and row["seed"] == 2
            and not row.get("sampler")
        }
        for is_default in (False, True)
    ]
    return [cell.name for cell in CELLS if cell.name in found[0] & found[1]]


def cell_table(rows, cells):
    """A row for each cell: the default and the best of seven rules."""
    table = []
    for cell in cells:
        of_cell = settings(rows, cell)
        (name, rate, encoder_rate), best = best_of(of_cell)
        default = of_cell[DEFAULT, 1e-3, 1e-3][1]
        means = [
            row["test"]
            for row in rows
            if row["cell"] == cell and row["optimizer"] == BASELINE
        ]
        table.append(
            {
                "cell": cell,
                "class means": round(100 * means[0], 1),
                "LazyAdam(1e-3)": round(of_cell["Adam", 1e-3, 1e-3][1], 1),
                "SGD, best rate": round(best_of(of_cell, SGD)[1], 1),
                "HeadAdam()": round(default, 1),
                "best of seven": round(best, 1),
                "which": f"{name} {rate:g}, encoder {encoder_rate:g}",
                "behind": round(best - default, 1),
                "allowed": round(allowed(best), 1),
            }
        )
    return sorted(table, key=lambda row: -row["behind"])


def regret_table(rows, cells):
    """A row for each fixed setting with the encoder at 1e-3."""
    of_cells = {cell: settings(rows, cell) for cell in cells}
    best = {cell: best_of(of_cells[cell])[1] for cell in cells}
    names = {
        key[:2]
        for found in of_cells.values()
        for key in found
        if key[2] == (key[1] if key[0] == DEFAULT else 1e-3)
    }
    table = []
    for name, rate in names:
        key = name, rate, rate if name == DEFAULT else 1e-3
        if not all(key in found for found in of_cells.values()):
            continue
        behind = {c: best[c] - of_cells[c][key][1] for c in cells}
        worst = max(behind, key=behind.get)
        over = sum(behind[c] > allowed(best[c]) for c in cells)
        table.append(
            {
                "optimizer": name,
                "rate": rate,
                "mean regret": round(float(np.mean([*behind.values()])), 2),
                "worst": round(behind[worst], 1),
                "cells over the limit": over,
                "worst cell": worst,
            }
        )
    return sorted(table, key=lambda row: row["mean regret"])


def tuned_table(rows, cells):
    """A row for each optimizer at its best rate in each cell."""
    of_cells = {cell: settings(rows, cell) for cell in cells}
    names = [DEFAULT, *OPTIMIZERS]
    table = []
    for name in names:
        behind = [
            best_of(of_cells[c])[1] - best_of(of_cells[c], name)[1]
            for c in cells
        ]
        table.append(
            {
                "optimizer, best rate of each cell": name,
                "mean regret": round(float(np.mean(behind)), 2),
                "worst": round(max(behind), 1),
            }
        )
    return sorted(table, key=lambda row: row["mean regret"])


def embedding_table(rows, cells):
    """Accuracy with Adam and with Adagrad for embeddings."""
    table = []
    for cell in cells:
        found = settings(rows, cell)
        key = ADAM_FOR_EMBEDDINGS, 1e-3, 1e-3
        if key in found:
            table.append(
                {
                    "cell": cell,
                    "HeadAdam(embedding_rate='adam')": round(found[key][1], 1),
                    "HeadAdam()": round(found[DEFAULT, 1e-3, 1e-3][1], 1),
                }
            )
    return table


def decile_table(rows, cells):
    """Accuracy by tenth of the classes, most frequent first."""
    table = []
    for label, choose in {
        "HeadAdam()": lambda found: (DEFAULT, 1e-3, 1e-3),
        "Adam, best rate": lambda found: best_of(found, "Adam")[0],
        "Adagrad, best rate": lambda found: best_of(found, "Adagrad")[0],
        "SGD, best rate": lambda found: best_of(found, SGD)[0],
    }.items():
        parts = []
        for cell in cells:
            key = choose(settings(rows, cell))
            for row in rows:
                same = row["cell"] == cell and not row.get("sampler")
                if not same or row["optimizer"] != key[0]:
                    continue
                if (row["rate"], row["encoder_rate"], row["seed"]) == (
                    *key[1:],
                    0,
                ):
                    parts.append(row.get("deciles") or [0.0] * 10)
        parts = np.array(parts, float)
        means = 100 * np.nanmean(parts, axis=0)
        numbers = {str(i + 1): round(float(x), 1) for i, x in enumerate(means)}
        table.append({"optimizer": label, **numbers})
    return table


def sampler_table(rows):
    """A row for each cell in which samplers were compared."""
    table = []
    for cell in (cell.name for cell in CELLS):
        found = {}
        for row in rows:
            if row["cell"] == cell and row.get("sampler"):
                found.setdefault(row["sampler"], []).append(row)
        if not found:
            continue
        line = {"cell": cell}
        base = np.median([row["seconds"] for row in found["uniform"]])
        for name, of_name in found.items():
            mean = 100 * np.mean([row["test"] for row in of_name])
            time = np.median([row["seconds"] for row in of_name]) / base
            line[name] = f"{mean:.1f} ({time:.1f})"
        table.append(line)
    return table


def draw(rows, cells, path):
    """Regret of each optimizer's best fixed rate, worst cell first."""
    table = regret_table(rows, cells)
    of_cells = {cell: settings(rows, cell) for cell in cells}
    figure, (axes,) = figure_style.new_figure()
    for name, color in _SHOWN.items():
        first = next(r for r in table if r["optimizer"] == name)
        rate = 1e-3 if name == DEFAULT else first["rate"]
        key = name, rate, rate if name == DEFAULT else 1e-3
        behind = sorted(
            (best_of(of_cells[c])[1] - of_cells[c][key][1] for c in cells),
            reverse=True,
        )
        label = f"{_CALLED.get(name, name)}: {rate:g}"
        axes.plot(
            range(1, len(cells) + 1), behind, label=label, color=color,
            linewidth=2.5 if name == DEFAULT else 1.5,
        )  # fmt: skip
    axes.axhline(0, color="gray", linewidth=1)
    axes.set_ylim(-20, 60)
    axes.set_xlabel("tasks, each line from its worst to its best")
    axes.set_ylabel("points of accuracy behind the best choice")
    axes.legend(title="optimizer and its best single rate")
    figure_style.save(
        figure,
        path,
        "One fixed setting of HeadAdam is near the best of each task",
    )


def tables(rows):
    """Rows of the results' tables by name."""
    cells = finished_cells(rows)
    chosen_by = [cell for cell in cells if cell not in _KEPT_BACK]
    kept_back = [cell for cell in cells if cell in _KEPT_BACK]
    return {
        "cells": cell_table(rows, chosen_by),
        "kept_back": cell_table(rows, kept_back),
        "rates": regret_table(rows, chosen_by),
        "rates_kept_back": regret_table(rows, kept_back),
        "tuned": tuned_table(rows, cells),
        "frequency": decile_table(rows, cells),
        "embeddings": embedding_table(rows, cells),
        "samplers": sampler_table(rows),
    }


def finished():
    """All runs that are committed, a list of dicts."""
    if not os.path.exists(RUNS):
        return []
    with open(RUNS) as f:
        return [json.loads(line) for line in f]


def write(rows):
    """Writes runs.jsonl, results/defaults/*.json and the figure."""
    with open(RUNS, "w") as f:
        f.writelines(json.dumps(row) + "\n" for row in rows)
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": measure.machine(),
        "command": "python -m benchmarks.defaults DATA",
    }
    folder = os.path.join(measure.RESULTS, NAME)
    os.makedirs(folder, exist_ok=True)
    for name, of_table in tables(rows).items():
        path = os.path.join(folder, f"{name}.json")
        if of_table:
            measure.write(path, {**about, "rows": of_table})
    redraw(rows)


def redraw(rows):
    """Writes results/defaults/cells.png."""
    cells = [c for c in finished_cells(rows) if c not in _KEPT_BACK]
    draw(rows, cells, os.path.join(measure.RESULTS, NAME, "cells.png"))
