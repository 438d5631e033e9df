"""Tables and a figure of what has been run."""

import glob
import os
import sys

from benchmarks import figure_style
from benchmarks import measure

FASTTEXT = "fastText hs"
FULL = "softmax"
COMMAND = "python -m benchmarks.hierarchical"


def write(folders, out):
    """eurlex57k.json, as report.py reads it, and the figure.

    Args:
        folders: dict of n to the folder of its results.
        out: folder.
    """
    os.makedirs(out, exist_ok=True)
    rows = []
    for size, folder in folders.items():
        rows += rows_of(folder, size)
    save(os.path.join(out, "eurlex57k.json"), rows)
    if rows:
        draw(rows, out)


def save(path, rows):
    """Writes what report.py shows, and prints it."""
    command = " ".join([COMMAND, *sys.argv[1:]])
    measure.write(path, measure.record_of(rows, command=command))
    print(measure.table(rows))


def rows_of(folder, size):
    """A row a method, in the order of their results."""
    paths = glob.glob(os.path.join(glob.escape(folder), "*, final.json"))
    # Of two rates the one that was chosen last.
    results = [measure.read(x) for x in sorted(paths, key=os.path.getmtime)]
    by_method = {result["method"]: result["curve"] for result in results}
    rates = {result["method"]: result["rate"] for result in results}
    rows = []
    for method, curve in sorted(by_method.items()):
        last = dict(curve[-1])
        row = {"n": size, "method": method, "rate": rates[method], **last}
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


#: The methods that are drawn, and what they are called; the table has all.
_SHOWN = {
    FULL: "exact softmax",
    "plt clustered, wide": "clustered label tree",
    "hs huffman": "Huffman tree",
    "fastText softmax": "fastText, softmax",
    FASTTEXT: "fastText, Huffman tree",
}
_COLORS = {
    FULL: "black",
    "plt clustered, wide": "tab:orange",
    "hs huffman": "tab:blue",
    "fastText softmax": "tab:gray",
    FASTTEXT: "tab:red",
}


def draw(rows, out):
    """Macro-F1 and seconds against n, as the paper's figure 3."""
    figure, (above, below) = figure_style.new_figure(rows=2, height=3.6)
    for method, label in _SHOWN.items():
        own = sorted(
            (row["n"], 100 * row["f1"], row["cpu_seconds"])
            for row in rows
            if row["method"] == method
        )
        if own:
            sizes, scores, seconds = zip(*own)
            style = {"color": _COLORS[method], "label": label}
            style["ls"] = "--" if method.startswith("fastText") else "-"
            above.plot(sizes, scores, marker="o", **style)
            below.plot(sizes, seconds, marker="o", **style)
    above.set(xscale="log", ylabel="macro-F1 in percent")
    below.set(xscale="log", yscale="log", xlabel="number of labels")
    below.set(ylabel="CPU seconds of training")
    for axis in (above.xaxis, below.xaxis, below.yaxis):
        figure_style.plain_ticks(axis)
    above.legend(loc="lower left")
    path = os.path.join(out, "eurlex57k.png")
    figure_style.save(figure, path, conclusion(rows))


def conclusion(rows):
    """What the label tree costs and saves, of the most labels."""
    most = max(row["n"] for row in rows)
    found = {row["method"]: row for row in rows if row["n"] == most}
    if FULL not in found or "plt clustered, wide" not in found:
        return "EU law: trees against the exact softmax"
    tree, full = found["plt clustered, wide"], found[FULL]
    time, f1 = (tree[key] / full[key] for key in ("cpu_seconds", "f1"))
    return (
        f"EU law, {most:,} labels: the label tree trains in {100 * time:.0f} % "
        f"of the exact softmax's time, with {100 * f1:.0f} % of its F1"
    )
