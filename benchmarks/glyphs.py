"""Characters as classes: the papers' faces that anyone can draw again.

    python -m benchmarks.glyphs [FOLDER] [--seeds 0 1 2]

FOLDER is for the fonts and the drawings (`glyphs_data.py`), by default under
benchmarks/cache. Each job is one head with a small convolutional encoder,
trained for so many steps, in a process of its own; a job that has a result,
under benchmarks/cache/glyphs, is not run again. Into benchmarks/results:

    glyphs.json, .png     means over seeds, and the curves
    glyphs.csv            every point of every curve

`--figures` runs nothing, and draws the figure again from the CSV. With
`--steps N` they are glyphs_N.json and so on; with `--shared`, one second moment
of Adam's for all class rows, glyphs_shared.json.
"""

import argparse
import csv
import os
import statistics
import sys
from typing import NamedTuple

from benchmarks import figure_style
from benchmarks import kept_jobs
from benchmarks import measure
from benchmarks.comparison.groups_results import LABELS
from benchmarks.comparison.groups_results import mean
from benchmarks.comparison.groups_results import ms_a_step
from benchmarks.comparison.groups_results import speed_up

CACHE = os.path.join(measure.CACHE, "glyphs")
METHODS = (
    "uniform",
    "auto",
    "forest",
    "lsh",
    "full",
    "random",
    "forest_paper",
    "lsh_uncorrected",
)
STEPS = 4000
_POINT = ("step", "cpu_s", "accuracy", "v", "noise", "k_eff")
#: The methods whose curves are drawn; the table has all.
_SHOWN = (
    "uniform",
    "auto",
    "forest",
    "random",
    "forest_paper",
    "lsh_uncorrected",
)


class GlyphsJob(NamedTuple):
    """A head; `steps` and `seed` are ints, `shared` is "shared" or ""."""

    method: str
    steps: int
    seed: int = 0
    shared: str = ""

    @property
    def path(self):
        return kept_jobs.path_of(CACHE, self)


def read(jobs):
    """Results there are: `{(method, seed): dict}`."""
    found = kept_jobs.read(jobs)
    return {(job.method, job.seed): result for job, result in found}


def at_time(curve, seconds):
    """Accuracy after so many seconds of the CPU, by lines between points."""
    before = {"cpu_s": 0.0, "accuracy": 0.0}
    for point in curve:
        if point["cpu_s"] >= seconds:
            part = seconds - before["cpu_s"]
            part /= point["cpu_s"] - before["cpu_s"]
            gain = point["accuracy"] - before["accuracy"]
            return before["accuracy"] + part * gain
        before = point
    return before["accuracy"]


def row(found, method):
    """Of a method, means over the seeds that it and uniform have."""
    pairs = [
        (found["uniform", seed]["curve"], result)
        for (name, seed), result in found.items()
        if name == method and ("uniform", seed) in found
    ]
    if not pairs:
        return None
    numbers = [_numbers(uniform, result) for uniform, result in pairs]
    ends = [each["accuracy"] for each in numbers]
    averaged = {
        key: statistics.fmean(each[key] for each in numbers)
        for key in numbers[0]
    }
    spread = {"accuracy +-": statistics.pstdev(ends)}
    about = {"method": LABELS.get(method, method), "seeds": len(numbers)}
    return {**about, **averaged, **spread}


def _numbers(uniform, result):
    curve = result["curve"]
    return {
        "accuracy": result["accuracy"],
        "in uniform's time": at_time(curve, uniform[-1]["cpu_s"]),
        "verified": result["verified"],
        "TPR@0.001": result["TPR@0.001"],
        "ms a step": ms_a_step(curve),
        "steps_x": speed_up(uniform, curve),
        "time_x": speed_up(uniform, curve, 0),
        "v": mean(curve, "v"),
        "noise": mean(curve, "noise"),
        "recall": curve[-1]["sampler"].get("recall", float("nan")),
    }


def collect(found, out):
    """The table, the points and the figure."""
    rows = [each for each in (row(found, name) for name in METHODS) if each]
    if not rows:
        return
    first = next(iter(found.values()))
    about = {key: first[key] for key in ("date", "machine")}
    record = {**about, "command": _command(found), "rows": rows}
    job = first["job"]
    name = name_of(job["steps"], job.get("shared", ""))
    path = os.path.join(out, name)
    measure.write(path + ".json", record)
    with open(path + ".csv", "w", newline="") as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(("method", "seed", *_POINT, "recall"))
        for (method, seed), result in found.items():
            for point in result["curve"]:
                numbers = [f"{point[key]:.5g}" for key in _POINT]
                recall = point["sampler"].get("recall", "")
                writer.writerow((method, seed, *numbers, recall))
    draw(path)
    print(measure.table(rows))


def name_of(steps, shared):
    """Of the files of results."""
    parts = ["glyphs", shared, "" if steps == STEPS else str(steps)]
    return "_".join(filter(None, parts))


def _command(found):
    """That which has these results."""
    methods = [name for name in METHODS if any(m == name for m, _ in found)]
    job = next(iter(found.values()))["job"]
    steps = job["steps"]
    seeds = sorted({seed for _, seed in found})
    parts = ["python -m benchmarks.glyphs --seeds", *map(str, seeds)]
    if steps != STEPS:
        parts.append(f"--steps {steps}")
    if job.get("shared"):
        parts.append("--shared")
    if len(methods) < len(METHODS):
        parts += ["--methods", *methods]
    return " ".join(parts)


def draw(path):
    """Writes `<path>.png`, the curves of `<path>.csv`."""
    runs = _runs(path + ".csv")
    curves = {method: _mean(seeds) for method, seeds in runs.items()}
    figure, (axes,) = figure_style.new_figure()
    for method in _SHOWN:
        if method in curves:
            axes.plot(
                [point["cpu_s"] for point in curves[method]],
                [100 * point["accuracy"] for point in curves[method]],
                ".-",
                color=figure_style.COLORS[method],
                label=figure_style.NAMES[method],
            )
    axes.set(
        xlabel="CPU seconds of training",
        ylabel="accuracy in unseen fonts, in percent",
    )
    axes.legend(loc="lower right")
    figure_style.save(figure, path + ".png", _conclusion(runs))


def _runs(path):
    """`{method: {seed: curve}}` of a CSV, the seeds that all methods have."""
    runs = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            point = {key: float(row[key]) for key in _POINT}
            seeds = runs.setdefault(row["method"], {})
            seeds.setdefault(row["seed"], []).append(point)
    common = set.intersection(*(set(seeds) for seeds in runs.values()))
    return {
        method: {seed: seeds[seed] for seed in sorted(common)}
        for method, seeds in runs.items()
    }


def _mean(seeds):
    """The mean curve of `{seed: curve}`."""
    return [
        {key: statistics.fmean(point[key] for point in at) for key in _POINT}
        for at in zip(*seeds.values())
    ]


def _conclusion(runs):
    if not {"uniform", "auto"} <= set(runs):
        return "Characters in unseen fonts"
    pairs = zip(runs["uniform"].values(), runs["auto"].values())
    sooner = statistics.fmean(speed_up(*pair, 0) for pair in pairs)
    return (
        "Characters in unseen fonts: auto reaches uniform's final accuracy "
        f"{sooner:.1f} times sooner"
    )


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.glyphs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="?", default=CACHE)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=METHODS
    )
    parser.add_argument(
        "--shared",
        action="store_const",
        const="shared",
        default="",
        help="one second moment for all class rows",
    )
    parser.add_argument("--figures", action="store_true", help="run nothing")
    parser.add_argument("--out", default=measure.RESULTS)
    return parser.parse_args(argv)


def main(argv=None):
    from benchmarks import glyphs_data

    args = parse_arguments(argv)
    jobs = [
        GlyphsJob(method, args.steps, seed, args.shared)
        for seed in args.seeds
        for method in args.methods
    ]
    if args.figures:
        draw(os.path.join(args.out, name_of(args.steps, args.shared)))
        return 0
    pending = kept_jobs.pending(jobs)
    if pending:
        print(glyphs_data.about(glyphs_data.load(args.folder)))
    module = "benchmarks.glyphs_train"
    failed = kept_jobs.run_all(pending, module, args.folder)
    collect(read(jobs), args.out)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
