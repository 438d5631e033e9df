"""Results of jobs as a CSV of all curves, and a table of how they end.

The CSV is kept with the code, so that figures can be drawn again, and single
methods run again, without the jobs' files.
"""

import csv
import glob
import os
import statistics

from benchmarks import measure
from benchmarks.comparison.jobs import text_of
from benchmarks.comparison.methods import METHODS

FOLDER = os.path.join(measure.RESULTS, "comparison")
GOOD = 0.9  # of the best P@1: how soon a method gets there is in the table
_TEXT = ("set", "method", "setting", "budget", "date", "machine")


def file_of(set_name, suffix=None):
    """Name of the files of a set."""
    parts = set_name, "steps", suffix
    return "_".join(part for part in parts if part)


def collect(name, jobs_folder, out):
    """Writes `<out>/<name>.csv` of the results there are, if any, and a table.

    Jobs of the same budget that the file has, and the folder has not, stay.
    """
    rows = []
    for path in sorted(glob.glob(os.path.join(jobs_folder, "*.json"))):
        rows += rows_of(measure.read(path))
    if rows:
        measure.merge_csv(
            os.path.join(out, name + ".csv"),
            rows,
            job=("set", "method", "setting", "seed"),
            same="budget",
        )
        save_table(name, Runs.read(os.path.join(out, name + ".csv")), out)


def rows_of(result):
    """Rows of the CSV: a point of the curve each."""
    job = result["job"]
    common = {
        "set": job["set"],
        "method": job["method"],
        "setting": text_of(job["options"]),
        "seed": job["seed"],
        "budget": f"--epochs {job['epochs']:g}",
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

    def spread(self, method, setting="", column="precision@1"):
        """Standard deviation over the seeds at the end; None for one."""
        ends = [c[-1][column] for c in self.seeds(method, setting)]
        return statistics.stdev(ends) if len(ends) > 1 else None

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

    @property
    def varied(self):
        """`(method, setting)` of what was varied, in the table's order."""
        found = {key[:2] for key in self.curves if key[1]}

        def place(key):
            option, _, value = key[1].partition("=")
            return list(METHODS).index(key[0]), option, float(value)

        return sorted(found, key=place)


def _numbers(row):
    return {
        key: value if key in _TEXT else float(value) if value else None
        for key, value in row.items()
    }


def _mean(values):
    values = [value for value in values if value is not None]
    return sum(values) / len(values) if values else None


def save_table(name, runs, out):
    """`<out>/<name>.json`, which report.py shows: each method at the end."""
    if not runs.methods:
        return
    best = max(runs.final(method) for method in runs.methods)
    columns = ("epochs", "seconds", "cpu_seconds", "peak_gb")
    rows = []
    # A table of a part of the methods has what was varied, too.
    is_part = "_steps_" in name
    varied = runs.varied if is_part else []
    for method, setting in [*((m, "") for m in runs.methods), *varied]:
        scores = ("precision@1", "precision@5", "accuracy@10")
        row = {"method": METHODS[method].label}
        if varied:
            row["setting"] = setting
        row["seeds"] = len(runs.seeds(method, setting))
        row["precision@1 +-"] = runs.spread(method, setting)
        for column in ("num_sampled", *scores, *columns):
            row[column] = runs.final(method, setting, column)
        row["overlap"] = runs.overlap(method, setting)
        if not setting:
            row[f"cpu_s_to_{GOOD:.0%}"] = runs.time_to(GOOD * best, method)
        rows.append({key: _shown(value) for key, value in row.items()})
    # Rows that were merged may be of several days, and machines.
    ran = {(c[0]["date"], c[0]["machine"]) for c in runs.curves.values()}
    date = max(date for date, _ in ran)
    machine = "; ".join(sorted({machine for _, machine in ran}))
    record = measure.record_of(rows, date=date, machine=machine)
    measure.write(os.path.join(out, name + ".json"), record)


def _shown(value):
    if value is None:
        return ""
    whole = isinstance(value, float) and value > 1 and value.is_integer()
    return int(value) if whole else value
