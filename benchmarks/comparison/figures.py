"""What the results say: a CSV of the curves, a table and figures of a set.

`collect` makes the CSV of the jobs' results; the rest is drawn from the CSV,
which is kept with the code, so that figures can be drawn again without jobs.
"""

import csv
import glob
import json
import os

from benchmarks import measure
from benchmarks.comparison.methods import METHODS
from benchmarks.comparison.methods import PARTS
from benchmarks.comparison.methods import text_of
from benchmarks.comparison.sets import SETS

FOLDER = os.path.join(measure.RESULTS, "comparison")
GOOD = 0.9  # of the best P@1: how soon a method gets there is in the table
_TEXT = ("set", "method", "setting", "budget", "date", "machine")


def collect(name, jobs_folder, out):
    """Writes `<out>/<name>.csv` of the results there are, if any."""
    rows = []
    for path in sorted(glob.glob(os.path.join(jobs_folder, "*.json"))):
        with open(path) as f:
            rows += rows_of(json.load(f))
    if not rows:
        return
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, name + ".csv"), "w", newline="") as f:
        writer = csv.DictWriter(f, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def rows_of(result):
    """Rows of the CSV: a point of the curve each."""
    job = result["job"]
    budget = {key: job[key] for key in ("seconds", "epochs", "limit")}
    common = {
        "set": job["set"],
        "method": job["method"],
        "setting": text_of(job["options"]),
        "seed": job["seed"],
        "budget": " ".join(
            f"--{key} {value:g}" for key, value in budget.items() if value
        ),
        **{key: result[key] for key in ("date", "machine")},
        **{key: result[key] for key in ("num_classes", "num_sampled")},
        "peak_gb": round(result["peak_gb"], 3),
    }
    for point in result["curve"]:
        digits = {
            key: round(value, 5) if isinstance(value, float) else value
            for key, value in point.items()
        }
        yield {**common, **digits}


class Runs:
    """The rows of a CSV, by method, setting and seed.

    Args:
        rows: list of dicts.
    """

    def __init__(self, rows):
        self.curves = {}
        for row in rows:
            key = row["method"], row["setting"], row["seed"]
            self.curves.setdefault(key, []).append(row)

    @classmethod
    def read(cls, path):
        with open(path, newline="") as f:
            return cls([_numbers(row) for row in csv.DictReader(f)])

    def seeds(self, method, setting=""):
        """Curves of the seeds of a job; a list of lists of rows."""
        found = self.curves.items()
        return [c for key, c in found if key[:2] == (method, setting)]

    def final(self, method, setting="", column="precision@1"):
        """Mean over the seeds at the end, or None."""
        return _mean(curve[-1][column] for curve in self.seeds(method, setting))

    def overlap(self, method, setting=""):
        """Mean over the points of all seeds, or None."""
        points = sum(self.seeds(method, setting), [])
        return _mean(point["overlap"] for point in points)

    def time_to(self, value, method):
        """CPU seconds to P@1 of `value`, mean over the seeds, or None."""
        times = [
            next((p for p in curve if p["precision@1"] >= value), None)
            for curve in self.seeds(method)
        ]
        if None in times:
            return None
        return _mean(point["cpu_seconds"] for point in times)

    @property
    def methods(self):
        """Those with a curve at their usual setting, in the table's order."""
        return [name for name in METHODS if self.seeds(name)]


def _numbers(row):
    return {
        key: value if key in _TEXT else float(value) if value else None
        for key, value in row.items()
    }


def _mean(values):
    values = [value for value in values if value is not None]
    return sum(values) / len(values) if values else None


def draw(name, out):
    """Table and figures of a set from its CSV, if there is one."""
    path = os.path.join(out, name + ".csv")
    if not os.path.exists(path):
        return
    runs = Runs.read(path)
    save_table(name, runs, out)
    for part, draw_part in _FIGURES.items():
        figure = draw_part(name, runs)
        if figure is not None:
            figure.savefig(
                os.path.join(out, f"{name}_{part}.png"),
                dpi=110,
                bbox_inches="tight",
            )


def save_table(name, runs, out):
    """`<out>/<name>.json`, which report.py shows: each method at the end."""
    if not runs.methods:
        return
    best = max(runs.final(method) for method in runs.methods)
    columns = ("epochs", "seconds", "cpu_seconds", "peak_gb")
    rows = []
    for method in runs.methods:
        scores = ("precision@1", "precision@5", "accuracy@10")
        row = {"method": METHODS[method].label}
        for column in ("num_sampled", *scores, *columns):
            row[column] = runs.final(method, column=column)
        row["overlap"] = runs.overlap(method)
        row[f"cpu_s_to_{GOOD:.0%}"] = runs.time_to(GOOD * best, method)
        rows.append({key: _shown(value) for key, value in row.items()})
    first = runs.seeds(runs.methods[0])[0][0]
    command = (
        "python -m benchmarks.comparison --data DATA "
        f"--sets {name} {first['budget']}"
    )
    measure.write(
        os.path.join(out, name + ".json"),
        {
            "date": first["date"],
            "machine": first["machine"],
            "command": command,
            "note": "",
            "rows": rows,
        },
    )


def _shown(value):
    if value is None:
        return ""
    whole = isinstance(value, float) and value > 1 and value.is_integer()
    return int(value) if whole else value


def _axes(count):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.close("all")
    figure, axes = plt.subplots(
        1, count, figsize=(5.2 * count, 4.4), sharey=True, squeeze=False
    )
    for one in axes[0]:
        one.grid(alpha=0.3)
    axes[0][0].set_ylabel("precision@1")
    return figure, axes[0]


def _style(method):
    """The same colour and line for a method in every figure."""
    import matplotlib

    # The full softmax, the first, is black.
    colors = ["black", *matplotlib.colormaps["tab10"].colors]
    turn, color = divmod(list(METHODS).index(method), len(colors))
    return {
        "color": colors[color],
        "linestyle": ("-", "--", ":")[turn],
        "marker": (".", "x", "^")[turn],
        "label": METHODS[method].label,
    }


def draw_curves(name, runs):
    """P@1 against time and against iterations, every method."""
    if not runs.methods:
        return None
    figure, axes = _axes(2)
    titles = {"cpu_seconds": "training, seconds of CPU", "step": "iterations"}
    for one, (column, title) in zip(axes, titles.items(), strict=True):
        for method in runs.methods:
            style = _style(method)
            for curve in runs.seeds(method):
                x = [point[column] for point in curve]
                one.plot(x, [p["precision@1"] for p in curve], **style)
                style["label"] = None  # once in the legend
        one.set(xlabel=title, xscale="log")
    axes[1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def draw_sweeps(name, runs, part):
    """P@1 at the end against what is varied, a panel each."""
    panels = [
        (sweep, lines)
        for sweep in PARTS[part]
        if (lines := sweep_lines(sweep, name, runs))
    ]
    if not panels:
        return None
    figure, axes = _axes(len(panels))
    for one, (sweep, lines) in zip(axes, panels, strict=True):
        for method, points in lines.items():
            one.plot(*zip(*points, strict=True), **_style(method))
        if (full := runs.final("full")) is not None:
            one.axhline(full, color="black", linestyle=":", label="full")
        one.set_xlabel(sweep.title)
        one.set_xscale("log" if sweep.log else "linear")
        one.legend(fontsize=8)
    return figure


def sweep_lines(sweep, name, runs):
    """`{method: [(value, P@1), ...]}`, of two points and more."""
    lines = {}
    for method in sweep.methods:
        points = [
            (value, runs.final(method, text_of(options)))
            for value, options in sweep.settings(SETS[name], method).items()
        ]
        points = [point for point in points if point[1] is not None]
        if len(points) > 1:
            lines[method] = points
    return lines


def draw_overlap(name, runs):
    """P@1 at the end against the overlap with the optimal selection.

    A dot a method; and a line through a mixture of the optimal selection and
    random classes, in several shares.
    """
    dots = {method: [point_of(runs, method, "")] for method in runs.methods}
    mixed = {
        method: [
            point_of(runs, method, text_of(options))
            for options in sweep.settings(SETS[name], method).values()
        ]
        for sweep in PARTS["overlap"]
        for method in sweep.methods
    }
    figure, (axes,) = _axes(1)
    for method, points in {**dots, **mixed}.items():
        points = [point for point in points if None not in point]
        if points:
            axes.plot(*zip(*points, strict=True), **_style(method))
    if not axes.lines:
        return None
    if (full := runs.final("full")) is not None:
        axes.axhline(full, color="black", linestyle=":", label="full")
    axes.set_xlabel("overlap with the optimal selection")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def point_of(runs, method, setting):
    return runs.overlap(method, setting), runs.final(method, setting)


_FIGURES = {
    "curves": draw_curves,
    "num_sampled": lambda *args: draw_sweeps(*args, "num_sampled"),
    "overlap": draw_overlap,
    "index": lambda *args: draw_sweeps(*args, "index"),
}
