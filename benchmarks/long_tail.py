"""Losses for long tails, compared: EU law and the reverse dictionary.

    python -m benchmarks.long_tail [--sets ...] [--losses ...] [--seeds ...]

The same model, optimizer and epochs for each loss; of each job P@k, PSP@k and
macro-F1 by how many training rows a class has. A job is a model of one seed,
in a process of its own with one thread; one that has a result is not trained
again, so the comparison may be stopped and resumed. A distilled model learns
from the plain one of its seed, which comes first.
"""

import argparse
import json
import os
import sys
import time
from typing import NamedTuple

import numpy as np

from benchmarks import figure_style
from benchmarks import measure
from benchmarks.comparison import sets as sets_lib

CACHE = os.path.join(measure.FOLDER, "cache", "long_tail")


class SetUp(NamedTuple):
    """How a set is trained and judged.

    Attributes:
        epochs: int; what one thread does in half a minute.
        bands: rising ints: a band holds the classes with as many training
            rows, up to those of the next.
        k: int, macro-F1 is of the k best classes of a row.
        losses: names in `long_tail_train.LOSSES`, in their order.
    """

    epochs: int
    bands: tuple
    k: int
    losses: tuple


SOFTMAX = (
    "plain",
    "class_weight",
    "propensities",
    "focal 2",
    "label_smoothing 0.1",
    "adjusted 0.5",
    "adjusted 1",
)
BINARY = ("sigmoid", "sigmoid propensities")
SETS = {
    "eurlex57k": SetUp(
        5, (1, 6, 21, 101), 5, (*SOFTMAX, "distilled 0.5", *BINARY)
    ),
    "reverse_dictionary": SetUp(3, (1, 2, 3, 6), 1, SOFTMAX),
    "generated": SetUp(2, (1, 8, 16, 32), 1, (*SOFTMAX, "distilled 0.5")),
}


class Job(NamedTuple):
    """A model: its set, its loss, its seed."""

    set: str
    loss: str
    seed: int

    def path(self, folder):
        name = f"{self.loss.replace(' ', '_')},seed={self.seed}.json"
        return os.path.join(folder, self.set, name)

    def teacher(self, folder):
        """Where the plain model of the seed leaves its answers, .npz."""
        return os.path.join(folder, self.set, f"teacher,seed={self.seed}.npz")


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.long_tail", description=__doc__
    )
    names = list(dict.fromkeys(x for s in SETS.values() for x in s.losses))
    add = parser.add_argument
    add("--data", default="../shared/data", help="folder of the data sets")
    add("--sets", nargs="+", choices=SETS, default=[*SETS][:2])
    add("--losses", nargs="+", choices=names, default=names)
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--figures", action="store_true", help="run nothing, only draw")
    add("--jobs", default=CACHE, help="folder of their results")
    add("--out", default=measure.RESULTS, help="folder of tables and figures")
    return parser.parse_args(argv)


def jobs_of(args):
    """All jobs, seed by seed, the plain model of a seed first."""
    return [
        Job(name, loss, seed)
        for seed in args.seeds
        for name in args.sets
        for loss in SETS[name].losses
        if loss in args.losses
    ]


def run(args):
    """Trains what has no result yet; tells of what failed."""
    paths, failed = {}, []
    for job in jobs_of(args):
        if os.path.exists(job.path(args.jobs)):
            continue
        if job.set not in paths:
            paths[job.set] = _prepared(job.set, args)
        result = measure.in_fresh_process(
            "-m",
            "benchmarks.long_tail_train",
            json.dumps(job),
            paths[job.set],
            args.jobs,
        )
        if "error" in result:
            failed.append(job)
        else:
            measure.write(job.path(args.jobs) + ".part", result)
            os.replace(job.path(args.jobs) + ".part", job.path(args.jobs))
        print(*job, result.get("error") or result["scores"], flush=True)
        tabulate(args)
    return failed


def _prepared(name, args):
    """The file of a set, made if it is not there."""
    os.makedirs(os.path.join(args.jobs, name), exist_ok=True)
    path = os.path.join(args.jobs, f"{name}.npz")
    if not os.path.exists(path):
        sets_lib.prepare(name, args.data, path)
    return path


def load(args, name, loss):
    """Results of the seeds that have one."""
    paths = [Job(name, loss, seed).path(args.jobs) for seed in args.seeds]
    found = []
    for path in filter(os.path.exists, paths):
        with open(path) as f:
            found.append(json.load(f))
    return found


def rows_of(args, name):
    """The table of a set: means over seeds, and the range of P@1."""
    rows = []
    for loss in SETS[name].losses:
        found = load(args, name, loss)
        if not found:
            continue
        scores = [r["scores"] for r in found]
        first = [s["P@1"] for s in scores]
        row = {"loss": loss, "seeds": len(found)}
        for key in scores[0]:
            row[key] = round(float(np.mean([s[key] for s in scores])), 4)
        row["P@1 least"] = round(min(first), 4)
        row["P@1 most"] = round(max(first), 4)
        row["cpu_s"] = round(np.mean([r["cpu_s"] for r in found]), 1)
        rows.append(row)
    return rows


def tabulate(args):
    """Writes long_tail/<set>.json and .png of what there is."""
    for name in args.sets:
        rows = rows_of(args, name)
        path = os.path.join(args.out, "long_tail", name)
        if not rows:
            redraw(path)
            continue
        os.makedirs(os.path.join(args.out, "long_tail"), exist_ok=True)
        record = {
            "date": time.strftime("%Y-%m-%d"),
            "machine": measure.machine(),
            "command": f"python -m benchmarks.long_tail --sets {name}",
            "rows": rows,
        }
        measure.write(path + ".json", record)
        draw(rows, path + ".png")


def redraw(path):
    """The figure of the committed `<path>.json`, if there is one."""
    if os.path.exists(path + ".json"):
        with open(path + ".json") as f:
            draw(json.load(f)["rows"], path + ".png")


#: The losses of the figure; the table has all.
SHOWN = {
    "plain": "plain softmax",
    "sigmoid": "sigmoid",
    "label_smoothing 0.1": "label smoothing",
    "propensities": "propensities",
    "class_weight": "class weights",
    "adjusted 0.5": "logit adjustment 0.5",
}


def draw(rows, path):
    """P@1 against PSP@1; macro-F1 by band."""
    found = {row["loss"]: row for row in rows if row["loss"] in SHOWN}
    figure, (above, below) = figure_style.new_figure(rows=2, height=3.8)
    bands = [key for key in rows[0] if key.startswith("F1 ")]
    for (loss, row), marker in zip(found.items(), "osv^D<"):
        style = {"marker": marker, "label": SHOWN[loss]}
        above.plot(100 * row["P@1"], 100 * row["PSP@1"], ls="", ms=9, **style)
        below.plot(bands, [100 * row[band] for band in bands], **style)
    above.set(
        xlabel="precision at 1, in percent",
        ylabel="PSP@1 in percent (rare labels weigh more)",
    )
    above.legend()
    below.set(xlabel="training samples of a class", ylabel="F1 in percent")
    below.set_xticks(range(len(bands)), [band[3:] for band in bands])
    best, rare = (
        SHOWN[max(found.values(), key=lambda row: row[key])["loss"]]
        for key in ("P@1", "PSP@1")
    )
    title = f"Best precision: {best}. Where rare labels weigh more: {rare}"
    if best == rare:
        title = f"Best precision, also where rare labels weigh more: {best}"
    figure_style.save(figure, path, title)


def main(argv=None):
    args = parse_arguments(argv)
    failed = [] if args.figures else run(args)
    tabulate(args)
    for name in args.sets:
        print(measure.table(rows_of(args, name)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
