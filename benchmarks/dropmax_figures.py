"""Figures of the DropMax table: the paper's 3 and 4."""

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
_SETS = {
    "mnist_1k": "1,000 images",
    "mnist_5k": "5,000 images",
    "mnist_55k": "55,000 images",
    "mnist_55k_long": "55,000 images, 6,000 steps",
    "mnist_55k_paper": "55,000 images, 20,000 steps",
    "eurlex": "EU law",
}


def _axes(count, width=5.0):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(1, count, figsize=(width * count, 4), squeeze=False)


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
            axis.plot(steps, errors, label=label)
        title = _SETS.get(name, name)
        axis.set(xlabel="step", ylabel="validation error in percent")
        axis.locator_params(axis="x", nbins=5)
        if len(names) > 1:
            axis.set_title(title)
        axis.legend()
        if ends:
            best = min(ends, key=ends.get)
            titles.append(f"{title}: {best} ends lowest, {ends[best]:.2f} %")
    path = os.path.join(args.out, "dropmax_convergence.png")
    figure_style.save(figure, path, "; ".join(titles[:2]))


def draw_retain(args):
    """dropmax_retain.png: mean rho for each class of test rows."""
    methods = ("attention", "adaptive", "posterior")
    first = dropmax.shown_sets(args)[0]
    rows = {m: dropmax.load(args, first, m) for m in methods}
    found = {m: r[0][-1][0]["retain"] for m, r in rows.items() if r}
    if not found:
        return
    figure, axes = _axes(len(found), 4.5)
    for ax, (method, rho) in zip(axes[0], found.items()):
        image = ax.imshow(rho, vmin=0, vmax=1, cmap="viridis")
        ax.set(title=method, xlabel="class retained", ylabel="true class")
        figure.colorbar(image, ax=ax, shrink=0.8)
    _save(figure, args, "dropmax_retain.png")


def _save(figure, args, name):
    import matplotlib.pyplot as plt

    figure.tight_layout()
    figure.savefig(os.path.join(args.out, name), dpi=90)
    plt.close(figure)
