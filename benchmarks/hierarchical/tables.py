"""Tables and a figure of what has been run."""

import glob
import json
import os
import sys
import time

from benchmarks import measure

FASTTEXT = "fastText hs"
FULL = "softmax"
_PATHS = ("--fasttext", "--data", "--cache", "--out")


def write(folders, out):
    """A JSON for each data set, as report.py reads it, and the figure.

    Args:
        folders: dict of `(set, size)` to the folder of its results.
        out: folder.
    """
    os.makedirs(out, exist_ok=True)
    for name in dict.fromkeys(name for name, _ in folders):
        rows = []
        for (of_set, size), folder in folders.items():
            if of_set == name:
                rows += rows_of(folder, size)
        save(os.path.join(out, name + ".json"), rows)
        if name == "eurlex57k" and rows:
            draw(rows, out)


def save(path, rows):
    """Writes what report.py shows, and prints it."""
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": measure.machine(),
        "command": "python -m benchmarks.hierarchical " + _options(),
        "rows": rows,
    }
    measure.write(path, record)
    print(measure.table(rows))


def _options():
    """Those given, but for paths of the machine."""
    options = sys.argv[1:]
    kept = []
    for i, option in enumerate(options):
        is_path = i and options[i - 1] in _PATHS
        kept.append("..." if is_path else option)
    return " ".join(kept)


def rows_of(folder, size):
    """A row a method, in the order of their results."""
    results = []
    paths = glob.glob(os.path.join(glob.escape(folder), "*, final.json"))
    # Of two rates the one that was chosen last.
    for path in sorted(paths, key=os.path.getmtime):
        with open(path) as f:
            results.append(json.load(f))
    by_method = {result["method"]: result["curve"] for result in results}
    rates = {result["method"]: result["rate"] for result in results}
    rows = []
    for method, curve in sorted(by_method.items()):
        last = dict(curve[-1])
        row = {"n": size} if size else {}
        row.update(method=method, rate=rates[method], **last)
        if FASTTEXT in by_method:
            f1 = by_method[FASTTEXT][-1]["f1"]
            row["cpu_s_to_fasttext_hs_f1"] = seconds_to(curve, f1)
        if FULL in by_method:
            full = by_method[FULL]
            row["softmax_cpu_s_to_f1"] = seconds_to(full, last["f1"])
        rows.append(row)
    return rows


def seconds_to(curve, f1):
    """When a curve reaches `f1`, of the CPU; "" if it never does."""
    reached = [p["cpu_seconds"] for p in curve if p["f1"] >= f1]
    return reached[0] if reached else ""


def draw(rows, out):
    """Macro-F1 and seconds against n, as the paper's figure 3."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.5))
    for method in sorted({row["method"] for row in rows}):
        own = [row for row in rows if row["method"] == method]
        own.sort(key=lambda row: row["n"])
        style = "--" if method.startswith("fastText") else "-"
        for axis, column in zip(axes, ("f1", "cpu_seconds")):
            axis.plot(
                [row["n"] for row in own],
                [row[column] for row in own],
                "o" + style,
                label=method,
            )
    axes[0].set(xscale="log", xlabel="labels", ylabel="macro-F1")
    axes[1].set(xscale="log", yscale="log", xlabel="labels")
    axes[1].set(ylabel="training, seconds of CPU")
    for axis in axes:
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(os.path.join(out, "eurlex57k.png"), dpi=110)
    plt.close(figure)
