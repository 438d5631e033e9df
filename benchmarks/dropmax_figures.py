"""Figures of the DropMax tables: the paper's 2, 3 and 4."""

import os

import numpy as np

from benchmarks import figure_style
from benchmarks import measure

EPSILON = 1e-20


def draw_contours(path):
    """The paper's figure 2: softmax and DropMax of three classes in a plane.

    Masks are drawn for each point (equation 3).
    """
    random = np.random.default_rng(0)
    side = np.linspace(-3, 3, 80)
    points = np.stack(np.meshgrid(side, side), axis=-1)
    angles = np.pi / 2 + np.arange(3) * 2 * np.pi / 3
    exponentials = np.exp(points @ np.stack([np.cos(angles), np.sin(angles)]))
    figure, axes = figure_style.new_figure(rows=3, height=3.4)
    for axis, retain in zip(axes, ((1, 1, 1), (1, 0.6, 0.6), (0.6, 0.6, 0.6))):
        masks = random.uniform(size=exponentials.shape) < retain
        masked = masks * exponentials + EPSILON
        p = masked[..., 0] / masked.sum(axis=-1)
        shown = axis.contourf(side, side, p, np.linspace(0, 1, 11))
        figure.colorbar(shown, ax=axis, label="p of the upper class")
        axis.set_title(f"retained with {retain}")
    title = "Dropped classes blur the border between two classes"
    figure_style.save(figure, path, title)


def draw_curves(curves, path):
    """The paper's figure 3: cross-entropy of training and of test rows.

    Args:
        curves: dict of lists of points by method.
        path: str, of the figure.
    """
    figure, (axis,) = figure_style.new_figure()
    names = {"base": "softmax", "adaptive": "adaptive DropMax"}
    for method, color in (("base", "black"), ("adaptive", "tab:blue")):
        points = curves[method]
        steps = [point["step"] for point in points]
        for part, style in (("train", "--"), ("test", "-")):
            losses = [point[part] for point in points]
            label = f"{names[method]}, {part}"
            axis.plot(steps, losses, style, color=color, label=label)
    axis.set(xlabel="training step", ylabel="cross-entropy", yscale="log")
    axis.legend()
    ends = [curves[method][-1]["test"] for method in names]
    title = (
        f"1,000 images: cross-entropy of test rows ends at {ends[0]:.2f} with "
        f"the softmax, at {ends[1]:.2f} with adaptive DropMax"
    )
    figure_style.save(figure, path, title)


def draw_retained(shown, row, path):
    """The paper's figure 4, (a) to (d).

    Args:
        shown: dict, of `dropmax_retained.figure_of`.
        row: dict, of dropmax_retained.json.
        path: str, of the figure.
    """
    figure, axes = figure_style.new_figure(rows=4, height=3.4)
    random = np.random.default_rng(0)
    hard = np.array(shown["hard"]["retained"])
    masks = random.uniform(size=hard.shape) < hard
    for axis, name, values, title in (
        (axes[0], "easy", shown["easy"]["retained"], "(a) easy rows"),
        (axes[1], "hard", hard, "(b) hard rows; x: answer of the softmax"),
        (axes[2], "hard", masks, "(c) masks drawn for (b)"),
    ):
        image = axis.imshow(values, vmin=0, vmax=1, cmap="Blues", aspect="auto")
        figure.colorbar(image, ax=axis)
        labels = shown[name]["labels"]
        axis.set_yticks(range(len(labels)), labels)
        axis.set(title=title, ylabel="class of the row")
        axis.grid(False)
        if name == "hard":
            guesses = shown[name]["guesses"]
            axis.plot(guesses, range(len(guesses)), "x", color="tab:red")
    axes[3].bar(range(10), shown["mean of hard"])
    axes[3].set(title="(d) mean of hard rows", ylabel="retain probability")
    for axis in axes:
        axis.set(xlabel="class", xticks=range(10))
    title = (
        "Of rows that the softmax gets wrong, DropMax retains its answer with "
        f"{row['hard confused']:.2f}, and the eight others with "
        f"{row['hard rest']:.2f}"
    )
    figure_style.save(figure, path, title)


def draw_all(folder=measure.RESULTS, curves=None):
    """Those of dropmax.json: figure 2, and figure 3 if there are curves."""
    draw_contours(os.path.join(folder, "dropmax_contours.png"))
    if curves:
        draw_curves(curves, os.path.join(folder, "dropmax_convergence.png"))
