"""What the jobs of `groups.py` come to: a CSV, tables, one figure.

The speed-up of a method over uniform in steps is at the accuracy that the
worse of the two ends with: how many steps either took to it. That in time is
the same with the seconds of the CPU, and an encoder of so many ms a step added
to both.
"""

import csv
import os
import statistics

import numpy as np

from benchmarks import figure_style
from benchmarks import measure

FOLDER = os.path.join(measure.RESULTS, "comparison")
ENCODERS = (0, 5, 20)  # ms a step
CONSTANTS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0, 4.0)
#: What methods are called, where their name does not say it.
LABELS = {
    "full": "full softmax",
    "random": "the papers' random",
    "forest_paper": "the paper's forest",
    "lsh_uncorrected": "LSH, uncorrected",
    "lsh_paper": "the paper's LSH",
}
# Fewer do not tell one constant from another.
_LEAST_SETTINGS = 4
_COMMAND = "python -m benchmarks.comparison.groups"
SETTING = ("classes", "group", "negatives")
_JOB = (*SETTING, "batch", "steps", "method", "seed")
_POINT = ("step", "cpu_s", "accuracy", "v", "noise", "k_eff")
_STATE = ("recall", "choice", "table_hit_rate")


def collect(results, out):
    """Writes `<out>/groups.csv`: a point of a curve each.

    Other jobs that it has stay; those of a setting that was run anew only if
    the same machine ran them, for times of two machines cannot be compared.
    """
    rows = [
        _row(result, point) for result in results for point in result["curve"]
    ]
    if rows:
        path = os.path.join(out, "groups.csv")
        measure.merge_csv(path, rows, _JOB, same=("machine",), within=SETTING)


def _row(result, point):
    numbers = {key: point[key] for key in _POINT}
    state = point["sampler"]
    numbers.update((key, state.get(key, "")) for key in _STATE)
    rounded = {
        key: float(f"{value:.5g}") if isinstance(value, float) else value
        for key, value in numbers.items()
    }
    about = {key: result[key] for key in ("date", "machine")}
    return {**{key: result["job"][key] for key in _JOB}, **rounded, **about}


def read(path):
    """`{(setting, method, seed): curve}` of a CSV, curves lists of dicts."""
    curves = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            for key in (*SETTING, "batch", "steps", "seed", "step"):
                row[key] = int(row[key])
            for key in (*_POINT[1:], *_STATE):
                row[key] = float(row[key]) if row[key] else None
            setting = tuple(row[key] for key in SETTING)
            key = setting, row["method"], row["seed"]
            curves.setdefault(key, []).append(row)
    return curves


def first_at(curve, accuracy, encoder_ms=None):
    """Steps to an accuracy, or seconds, by lines between the points."""
    at = np.array([0, *(point["step"] for point in curve)], float)
    if encoder_ms is not None:
        cpu = np.array([0, *(point["cpu_s"] for point in curve)])
        at = cpu + at * encoder_ms / 1e3
    reached = np.array([0, *(point["accuracy"] for point in curve)])
    later = int(np.argmax(reached >= accuracy))
    low, high = reached[later - 1], reached[later]
    part = (accuracy - low) / (high - low) if high > low else 1.0
    return at[later - 1] + part * (at[later] - at[later - 1])


def speed_up(uniform, other, encoder_ms=None):
    """Of `other` over `uniform`, in steps or time; both curves."""
    goal = min(uniform[-1]["accuracy"], other[-1]["accuracy"])
    times = [first_at(each, goal, encoder_ms) for each in (uniform, other)]
    return float(times[0] / times[1])


def mean(curve, column):
    return statistics.fmean(point[column] for point in curve)


def ms_a_step(curve):
    return 1e3 * curve[-1]["cpu_s"] / curve[-1]["step"]


def table(curves):
    """How the jobs end, and their speed-ups; rows of groups.json.

    Numbers are means over the seeds, those of "+-" standard deviations.
    """
    of_method = {}
    for (setting, method, seed), curve in curves.items():
        of_method.setdefault((setting, method), {})[seed] = curve
    rows = []
    for (setting, method), runs in of_method.items():
        ends = [
            _end(curve, curves.get((setting, "uniform", seed)))
            for seed, curve in runs.items()
        ]
        reached = [end["accuracy"] for end in ends]
        last = next(iter(runs.values()))[-1]
        rows.append(
            {
                **dict(zip(SETTING, setting, strict=True)),
                "method": method,
                "steps": last["step"],
                "seeds": len(ends),
                **{key: _mean(ends, key) for key in ends[0]},
                "accuracy +-": statistics.stdev(reached) if ends[1:] else "",
                "machine": last["machine"],
            }
        )
    return rows


def _end(curve, uniform):
    """A job's numbers; those beside uniform are None without it."""
    end = {
        "accuracy": curve[-1]["accuracy"],
        "v": mean(curve, "v"),
        "noise": mean(curve, "noise"),
        "cpu_ms": ms_a_step(curve),
        "steps_x": uniform and speed_up(uniform, curve),
    }
    for ms in ENCODERS:
        end[f"time_x_{ms}ms"] = uniform and speed_up(uniform, curve, ms)
    return end


def _mean(ends, key):
    values = [end[key] for end in ends if end[key] is not None]
    return statistics.fmean(values) if values else ""


def constants(curves):
    """What each constant of `AutoSampler` would cost; rows of a table.

    With a constant c neighbours are taken where the noise v (1 - p_y) of
    uniform draws, averaged over their training, exceeds c times the ratio of
    the costs of the two steps, the encoder included. `excess` is the geometric
    mean, over settings and encoders, of the time that the choice takes to the
    accuracy that both reach, over that of the better one; `worst` the most.
    """
    pairs = [
        (uniform, curves[setting, "neighbors", seed])
        for (setting, method, seed), uniform in curves.items()
        if method == "uniform" and (setting, "neighbors", seed) in curves
    ]
    rows = []
    for constant in CONSTANTS if pairs else ():
        excess = [
            _excess(uniform, other, ms, constant)
            for uniform, other in pairs
            for ms in ENCODERS
        ]
        rows.append(
            {
                "constant": constant,
                "excess": float(np.exp(np.mean(np.log(excess)))),
                "worst": float(max(excess)),
                "right": sum(bool(each == 1.0) for each in excess),
                "of": len(excess),
            }
        )
    return rows


def _excess(uniform, other, encoder_ms, constant):
    costs = [ms_a_step(curve) + encoder_ms for curve in (uniform, other)]
    takes_other = mean(uniform, "noise") > constant * costs[1] / costs[0]
    gain = speed_up(uniform, other, encoder_ms)
    return max(1 / gain if takes_other else gain, 1.0)


def draw(out):
    """The tables and the figure of `<out>/groups.csv`, if there is one."""
    path = os.path.join(out, "groups.csv")
    if not os.path.exists(path):
        return
    curves = read(path)
    _save("groups", table(curves), curves, out)
    pairs = {key[0] for key in curves if key[1] == "neighbors"}
    if len(pairs) >= _LEAST_SETTINGS:
        paired = {key: each for key, each in curves.items() if key[0] in pairs}
        _save("groups_constant", constants(paired), paired, out)
    _figure(curves, os.path.join(out, "groups.png"))


def _save(name, rows, curves, out):
    """`<out>/<name>.json`; settings may be of several days, and machines."""
    dates, machines = (
        {curve[0][key] for curve in curves.values()}
        for key in ("date", "machine")
    )
    record = {
        "date": max(dates),
        "machine": "; ".join(sorted(machines)),
        "command": _COMMAND,
        "rows": rows,
    }
    measure.write(os.path.join(out, name + ".json"), record)
    print(measure.table(rows))


#: The methods whose curves are drawn; the table has all.
_SHOWN = ("full", "uniform", "auto", "forest", "lsh", "forest_paper")
_COMPARED = ("auto", "forest", "lsh")
_ENCODER_MS = 5


def _figure(curves, path):
    """The curves of the first setting, and below the speed-ups against v."""
    figure, (above, below) = figure_style.new_figure(rows=2)
    _curves(above, curves)
    gains = {name: _speed_ups(curves, name) for name in _COMPARED}
    _points(below, gains)
    figure_style.save(figure, path, _conclusion(gains))


def _curves(axes, curves):
    first = next(iter(curves))[0]
    for name in _SHOWN:
        curve = curves.get((first, name, 0))
        if curve is not None:
            axes.plot(
                [point["cpu_s"] for point in curve],
                [100 * point["accuracy"] for point in curve],
                ".-",
                color=figure_style.COLORS[name],
                label=figure_style.NAMES[name],
            )
    title = "{:,} classes in groups of {}, {} sampled".format(*first)
    axes.set(
        title=title,
        xlabel="CPU seconds of training",
        ylabel="accuracy in percent",
        xscale="log",
    )
    figure_style.plain_ticks(axes.xaxis)
    axes.legend(loc="lower right")


def _speed_ups(curves, name):
    """`[(v, times faster)]` of a method, with an encoder of 5 ms."""
    return [
        (mean(uniform, "v"), speed_up(uniform, other, _ENCODER_MS))
        for (setting, of, seed), uniform in sorted(curves.items())
        if of == "uniform"
        and (other := curves.get((setting, name, seed))) is not None
    ]


def _points(axes, gains):
    for name, marker in zip(gains, "^os"):
        if gains[name]:
            axes.plot(
                *zip(*gains[name]),
                marker,
                color=figure_style.COLORS[name],
                alpha=0.7,
                label=figure_style.NAMES[name],
            )
    axes.axhline(1.0, color=figure_style.COLORS["uniform"], label="uniform")
    axes.set(
        title=f"each point is a training, encoder of {_ENCODER_MS} ms",
        xlabel="noise of uniform sampling (v, mean over training)",
        ylabel="times faster than uniform to the same accuracy",
        xscale="log",
        yscale="log",
    )
    axes.set_ylim(top=8)  # room for the legend
    for axis in (axes.xaxis, axes.yaxis):
        figure_style.plain_ticks(axis)
    axes.legend(loc="upper left", ncols=2)


def _conclusion(gains):
    found = [gain for _, gain in gains["auto"]]
    if not found:
        return "Classes in groups"
    faster = sum(gain > 1 for gain in found)
    return (
        f"Classes in groups: auto is faster than uniform in {faster} of "
        f"{len(found)} trainings"
    )
