"""Characters as classes: the papers' faces that anyone can draw again.

    python -m benchmarks.glyphs [FOLDER] [--seeds 0 1 2]

FOLDER is for the fonts and the drawings (`glyphs_data.py`), by default under
benchmarks/cache. Each job is one head with a small convolutional encoder,
trained for so many steps, in a process of its own; a job that has a result,
under benchmarks/cache/glyphs, is not run again. results/glyphs.json has means
over seeds, glyphs.csv every point of every curve. `--figures` runs nothing, and
draws the figure again.
"""

import argparse
import csv
import os
import statistics
from typing import NamedTuple

import numpy as np

from benchmarks import figure_style
from benchmarks import kept_jobs
from benchmarks import measure
from benchmarks.comparison.groups_results import LABELS
from benchmarks.comparison.groups_results import mean
from benchmarks.comparison.groups_results import ms_a_step
from benchmarks.comparison.groups_results import speed_up

CACHE = os.path.join(measure.CACHE, "glyphs")
POINTS = os.path.join(measure.RESULTS, "glyphs.csv")
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
    """A head, trained for so many steps."""

    method: str
    steps: int
    seed: int = 0

    @property
    def path(self):
        return kept_jobs.path_of(CACHE, self)


def read(jobs):
    """Results there are: `{(method, seed): dict}`."""
    found = kept_jobs.read(jobs)
    return {(job.method, job.seed): result for job, result in found}


def at_time(curve, seconds):
    """Accuracy after so many seconds of the CPU, by lines between points."""
    times = [0.0, *(point["cpu_s"] for point in curve)]
    accuracies = [0.0, *(point["accuracy"] for point in curve)]
    return float(np.interp(seconds, times, accuracies))


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


def collect(found, seeds):
    """Saves the table and the points."""
    rows = [each for each in (row(found, name) for name in METHODS) if each]
    if not rows:
        return
    with open(POINTS, "w", newline="") as f:
        writer = csv.writer(f, lineterminator="\n")
        writer.writerow(("method", "seed", *_POINT, "recall"))
        for (method, seed), result in found.items():
            for point in result["curve"]:
                numbers = [f"{point[key]:.5g}" for key in _POINT]
                recall = point["sampler"].get("recall", "")
                writer.writerow((method, seed, *numbers, recall))
    command = f"python -m benchmarks.glyphs --seeds {' '.join(map(str, seeds))}"
    measure.save("glyphs", rows, command=command)


def draw():
    """Writes glyphs.png, the curves of glyphs.csv."""
    runs = _runs(POINTS)
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
    path = os.path.join(measure.RESULTS, "glyphs.png")
    figure_style.save(figure, path, _conclusion(runs))


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
    pairs = zip(runs["uniform"].values(), runs["auto"].values())
    sooner = statistics.fmean(speed_up(*pair, 0) for pair in pairs)
    return (
        "Characters in unseen fonts: auto reaches uniform's final accuracy "
        f"{sooner:.1f} times sooner"
    )


def main():
    from benchmarks import glyphs_data

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=CACHE)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--figures", action="store_true", help="run nothing")
    args = parser.parse_args()
    if not args.figures:
        glyphs_data.load(args.folder)
        jobs = [
            GlyphsJob(method, args.steps, seed)
            for seed in args.seeds
            for method in METHODS
        ]
        module = "benchmarks.glyphs_train"
        kept_jobs.run_all(kept_jobs.pending(jobs), module, args.folder)
        collect(read(jobs), args.seeds)
    draw()


if __name__ == "__main__":
    main()
