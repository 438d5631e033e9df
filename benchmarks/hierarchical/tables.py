"""Tables of what has been run."""

import glob
import os
import sys

from benchmarks import measure

FASTTEXT = "fastText hs"
FULL = "softmax"
COMMAND = "python -m benchmarks.hierarchical"


def write(folders, out):
    """eurlex57k.json, as report.py reads it.

    Args:
        folders: dict of n to the folder of its results.
        out: folder.
    """
    os.makedirs(out, exist_ok=True)
    rows = []
    for size, folder in folders.items():
        rows += rows_of(folder, size)
    save(os.path.join(out, "eurlex57k.json"), rows)


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
