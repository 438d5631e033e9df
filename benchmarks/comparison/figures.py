"""The figure of a data set, from its CSV."""

import os

import numpy as np

from benchmarks import figure_style
from benchmarks.comparison.results import Runs

#: The methods whose curves are drawn; the table has all. Colors by family.
CURVES = {
    "full": "full",
    "uniform": "uniform",
    "auto": "auto",
    "forest": "forest",
    "lsh_embedding": "lsh",
    "forest_paper": "forest_paper",
}
_TITLES = {
    "verses": "Bible verses",
    "eurlex57k": "EU law",
    "word2vec": "Skip-gram",
    "reverse_dictionary": "Reverse dictionary",
}


def draw(file, name, out):
    """The figure of a set from its CSV, if there is one.

    Args:
        file: str, name of the files, without endings.
        name: str, of the set.
        out: folder.
    """
    path = os.path.join(out, file)
    if not os.path.exists(path + ".csv"):
        return
    runs = Runs.read(path + ".csv")
    drawn = [method for method in CURVES if method in runs.methods]
    if len(drawn) < 2:
        return
    lines = [
        (runs.seeds(method), figure_style.NAMES[family])
        for method, family in CURVES.items()
        if method in drawn
    ]
    colors = [figure_style.COLORS[CURVES[method]] for method in drawn]
    title = _conclusion(name, runs, drawn)
    draw_curves(lines, path + "_curves.png", title, colors)


def draw_curves(lines, path, title, colors=None, **options):
    """P@1 against CPU time and against steps.

    Args:
        lines: list of pairs: curves of the seeds, and a label.
        path, title: str, of the figure.
        colors: list of str, of the lines, or None.
        **options: of the axes.
    """
    figure, axes = figure_style.new_figure(rows=2, height=4)
    titles = {"cpu_seconds": "CPU seconds of training", "step": "steps"}
    for one, (column, xlabel) in zip(axes, titles.items(), strict=True):
        for i, (curves, label) in enumerate(lines):
            color = colors and colors[i]
            one.plot(
                *mean_curve(curves, column), ".-", color=color, label=label
            )
        one.set(xlabel=xlabel, xscale="log", **options)
        one.set(ylabel="precision at 1, in percent")
        figure_style.plain_ticks(one.xaxis)
    # Below the axes, so that it covers no point.
    axes[1].legend(ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2))
    figure_style.save(figure, path, title)


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
