"""Characters as classes: the papers' faces that anyone can draw again.

    python -m benchmarks.glyphs [FOLDER] [--seeds 0 1 2]

FOLDER is for the fonts and the drawings (`glyphs_data.py`), by default under
benchmarks/cache. Each job is one head with a small convolutional encoder,
trained for so many steps, in a process of its own; a job that has a result,
under benchmarks/cache/glyphs, is not run again. Into benchmarks/results:

    glyphs.json, .png     means over seeds, and the curves
    glyphs.csv            every point of every curve

`--figures` makes them again from the results there are. With `--steps N` they
are glyphs_N.json and so on; with `--shared`, one second moment of Adam's for
all class rows, glyphs_shared.json.
"""

import argparse
import csv
import os
import statistics
import sys
from typing import NamedTuple

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
    _figure(found, path + ".png")
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


def _figure(found, path):
    def draw(axes):
        for (method, seed), result in found.items():
            if seed == 0:
                curve = result["curve"]
                seconds = [point["cpu_s"] for point in curve]
                reached = [point["accuracy"] for point in curve]
                label = LABELS.get(method, method)
                axes.plot(seconds, reached, ".-", label=label)
        axes.set_title(first["data"].split(", ", 1)[0])

    first = next(iter(found.values()))
    measure.plot_to(
        path, draw, "seconds of the CPU", "accuracy in fonts never seen"
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
    pending = [] if args.figures else kept_jobs.pending(jobs)
    if pending:
        print(glyphs_data.about(glyphs_data.load(args.folder)))
    module = "benchmarks.glyphs_train"
    failed = kept_jobs.run_all(pending, module, args.folder)
    collect(read(jobs), args.out)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
