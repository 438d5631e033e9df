"""Figures of the DropMax tables: the paper's 3, and 4 in numbers."""

import os

import numpy as np

from benchmarks import dropmax
from benchmarks import figure_style

_LABELS = {
    "base": "softmax",
    "sparsemax": "sparsemax",
    "attention": "attention",
    "adaptive": "adaptive DropMax",
    "posterior": "posterior DropMax",
}
_COLORS = {
    "base": "black",
    "sparsemax": "tab:gray",
    "attention": "tab:green",
    "adaptive": "tab:blue",
    "posterior": "tab:orange",
}
_SETS = {
    "mnist_1k": "1,000 images",
    "mnist_5k": "5,000 images",
    "mnist_55k": "55,000 images",
    "mnist_55k_long": "55,000 images, 6,000 steps",
    "mnist_55k_paper": "55,000 images, 20,000 steps",
    "eurlex": "EU law",
}


def draw_curves(args):
    """dropmax_convergence.png: error on validation rows against steps."""
    names = dropmax.shown_sets(args)
    figure, axes = figure_style.new_figure(rows=len(names), height=3.8)
    titles = []
    for axis, name in zip(axes, names):
        ends = {}
        for method in dropmax.curves_of(name):
            rows = dropmax.load(args, name, method)
            if not rows:
                continue
            found, label = rows[0][-1], _LABELS.get(method, method)
            steps = [point["step"] for point in found[0]["curve"]]
            errors = np.median(
                [[p["error"] for p in r["curve"]] for r in found], axis=0
            )
            ends[label] = errors[-1]
            axis.plot(steps, errors, label=label, color=_COLORS.get(method))
        title = _SETS.get(name, name)
        axis.set(xlabel="training step", ylabel="validation error in percent")
        axis.locator_params(axis="x", nbins=5)
        if len(names) > 1:
            axis.set_title(title)
        axis.legend()
        if ends:
            titles.append(_conclusion(title, ends))
    path = os.path.join(args.out, "dropmax_convergence.png")
    figure_style.save(figure, path, "; ".join(titles[:2]))


def _conclusion(title, ends):
    """What the errors at the end say, in percent by method."""
    best, worst = min(ends, key=ends.get), max(ends, key=ends.get)
    gap = ends[worst] - ends[best]
    if gap < 0.3:
        return f"{title}: all end within {gap:.2f} points of each other"
    return f"{title}: {best} ends lowest, {ends[best]:.2f} %"


def draw_retained(rows, path):
    """Retain probabilities and errors by the weight of the entropy.

    Args:
        rows: list of dicts, of dropmax_retained.json.
        path: str, of the figure.
    """
    rows = [row for row in rows if row["method"] == "adaptive"]
    weights = [
        "1" if r["lambda"] == "own" else f"{r['lambda']:g}" for r in rows
    ]
    figure, (above, below) = figure_style.new_figure(rows=2, height=3.2)
    least, most = ([row[key] for row in rows] for key in ("least", "most"))
    spans = [high - low for low, high in zip(least, most)]
    above.bar(weights, spans, 0.3, least, label="other classes")
    label = [row["of the label"] for row in rows]
    above.plot(weights, label, "D", color="tab:orange", label="the label")
    above.set(ylabel="retain probability", ylim=(0, 1.05))
    above.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1))
    errors = [row["error_%"] for row in rows]
    below.plot(weights, errors, "o-", color="tab:red")
    below.set(ylabel="test error in percent", ylim=(0, 1.2 * max(errors)))
    for one in (above, below):
        one.set(xlabel="weight of the entropy (1 by default)")
    best = min(rows, key=lambda row: row["error_%"])
    title = (
        f"Adaptive DropMax errs least, {min(errors):.1f} %, with "
        f"{'the default' if best['lambda'] == 'own' else 'another'} weight: "
        "other classes are retained about alike"
    )
    figure_style.save(figure, path, title)
