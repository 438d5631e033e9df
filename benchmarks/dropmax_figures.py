"""Figures of the DropMax table: the paper's 3 and 4."""

import os

import numpy as np

from benchmarks import dropmax


def _axes(count, width=5.0):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt.subplots(1, count, figsize=(width * count, 4), squeeze=False)


def draw_curves(args):
    """dropmax_convergence.png: error on validation rows against steps."""
    names = dropmax.shown_sets(args)
    figure, axes = _axes(len(names))
    for ax, name in zip(axes[0], names):
        for method in dropmax.curves_of(name):
            rows = dropmax.load(args, name, method)
            if not rows:
                continue
            found = rows[0][-1]
            steps = [point["step"] for point in found[0]["curve"]]
            errors = np.median(
                [[p["error"] for p in r["curve"]] for r in found], axis=0
            )
            ax.plot(steps, errors, label=method)
        ax.set(title=name, xlabel="step", ylabel="error, %")
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    _save(figure, args, "dropmax_convergence.png")


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
