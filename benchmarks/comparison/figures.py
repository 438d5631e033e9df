"""The figures of a data set, from its CSV."""

import os

import numpy as np

from benchmarks import figure_style
from benchmarks.comparison.methods import METHODS
from benchmarks.comparison.results import Runs
from benchmarks.comparison.results import save_table
from benchmarks.comparison.sets import SETS
from benchmarks.comparison.sweeps import PARTS
from benchmarks.comparison.sweeps import text_of


def draw(file, name, out):
    """Table and figures of a set from its CSV, if there is one.

    Args:
        file: str, name of the files, without endings.
        name: str, of the set.
        out: folder.
    """
    path = os.path.join(out, file + ".csv")
    if not os.path.exists(path):
        return
    runs = Runs.read(path)
    save_table(file, runs, out)
    for part, draw_part in _FIGURES.items():
        drawn = draw_part(name, runs)
        if drawn is not None:
            path = os.path.join(out, f"{file}_{part}.png")
            figure_style.save(drawn[0], path, drawn[1])


LABEL = "precision at 1, in percent"
#: The methods whose curves are drawn; the table has all. Colors by family.
CURVES = {
    "full": "full",
    "uniform": "uniform",
    "auto": "auto",
    "forest": "forest",
    "lsh_embedding": "lsh",
    "forest_paper": "forest_paper",
}


def draw_curves(name, runs):
    """P@1 against time and against steps; `(figure, title)` or None."""
    methods = [method for method in CURVES if method in runs.methods]
    if len(methods) < 2:
        return None
    figure, axes = figure_style.new_figure(rows=2, height=4)
    titles = {"cpu_seconds": "CPU seconds of training", "step": "steps"}
    for one, (column, title) in zip(axes, titles.items(), strict=True):
        for method in methods:
            family = CURVES[method]
            one.plot(
                *mean_curve(runs.seeds(method), column),
                marker=".",
                color=figure_style.COLORS[family],
                label=figure_style.NAMES[family],
            )
        one.set(xlabel=title, xscale="log", ylabel=LABEL)
        figure_style.plain_ticks(one.xaxis)
    # Below the axes, so that it covers no point.
    axes[1].legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    return figure, _conclusion(name, runs, methods)


def mean_curve(curves, column):
    """`(x, P@1)`, the means of the seeds at each point."""
    points = list(zip(*curves))
    x = [np.mean([point[column] for point in at]) for at in points]
    return x, [100 * np.mean([p["precision@1"] for p in at]) for at in points]


def _conclusion(name, runs, methods):
    ends = {method: 100 * runs.final(method) for method in methods}
    best, worst = max(ends, key=ends.get), min(ends, key=ends.get)
    gap = ends[best] - ends[worst]
    title = _TITLES.get(name, name)
    if gap < 3:
        return f"{title}: all end within {gap:.1f} points of each other"
    best, worst = (
        f"{figure_style.NAMES[CURVES[x]]} ({ends[x]:.0f} %)"
        for x in (best, worst)
    )
    return f"{title}: {best} ends highest, {worst} lowest"


_TITLES = {
    "verses": "Bible verses",
    "eurlex57k": "EU law",
    "word2vec": "Skip-gram",
    "reverse_dictionary": "Reverse dictionary",
}


def draw_sweeps(name, runs, part):
    """P@1 at the end against what is varied, a panel each."""
    panels = [
        (sweep, lines)
        for sweep in PARTS[part]
        if (lines := sweep_lines(sweep, name, runs))
    ]
    if not panels:
        return None
    figure, axes = figure_style.new_figure(rows=len(panels), height=3.8)
    spans = {}
    for one, (sweep, lines) in zip(axes, panels, strict=True):
        for method, points in lines.items():
            x, y = zip(*points, strict=True)
            y = [100 * value for value in y]
            one.plot(x, y, ".-", label=METHODS[method].label)
            spans[max(y) - min(y)] = METHODS[method].label, sweep.title
        if (full := runs.final("full")) is not None:
            label = figure_style.NAMES["full"]
            one.axhline(100 * full, color="black", linestyle=":", label=label)
        one.set(xlabel=sweep.title, ylabel=LABEL)
        one.set_xscale("log" if sweep.log else "linear")
        if sweep.log:
            figure_style.plain_ticks(one.xaxis)
        # Below the axes, so that it covers no point.
        one.legend(loc="upper center", bbox_to_anchor=(0.5, -0.25), fontsize=9)
    span = max(spans)
    label, option = spans[span]
    title = f"{_TITLES.get(name, name)}: {option} change precision by at most"
    return figure, f"{title} {span:.1f} points ({label})"


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


#: What the figure of the overlap shows; the table has all.
_OVERLAP = {
    **{method: family for method, family in CURVES.items() if method != "full"},
    "top_k": "optimal",
}


def draw_overlap(name, runs):
    """P@1 at the end against the overlap with the optimal selection."""
    figure, (axes,) = figure_style.new_figure(height=5.6)
    found = []
    for (method, family), marker in zip(_OVERLAP.items(), "os^Dvp"):
        overlap, precision = runs.overlap(method), runs.final(method)
        if None not in (overlap, precision):
            family_name = figure_style.NAMES[family]
            found.append((precision, 100 * overlap, family_name))
            axes.plot(
                100 * overlap,
                100 * precision,
                marker,
                markersize=9,
                color=figure_style.COLORS[family],
                label=family_name,
            )
    if len(axes.lines) < 2:
        return None
    axes.set(
        xlabel="percent of the best classes in the sample",
        ylabel=LABEL,
    )
    # Below the axes, so that it covers no point.
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
    title = _TITLES.get(name, name)
    if found:
        title += ": " + _overlap_conclusion(found)
    return figure, title


def _overlap_conclusion(found):
    """What `[(P@1, overlap in percent, method), ...]` say."""
    precision, overlap, best = max(found)
    gap = 100 * (precision - min(found)[0])
    if gap < 3:
        return (
            f"all within {gap:.1f} points, whether a sample has "
            f"{_percent(min(each[1] for each in found))} or "
            f"{_percent(max(each[1] for each in found))} % of the best classes"
        )
    return f"{best} is best, with {_percent(overlap)} % of the best classes"


def _percent(value):
    return f"{value:.0f}" if value >= 1 else f"{value:.1f}"


_FIGURES = {
    "curves": draw_curves,
    "num_sampled": lambda *args: draw_sweeps(*args, "num_sampled"),
    "overlap": draw_overlap,
}
