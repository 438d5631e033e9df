"""How few classes carry the softmax and its gradient, over training.

    python -m benchmarks.comparison.concentration [--sets ...] [--epochs 2]

Fig. 1 of Zhang et al. (AAAI 2018) on the sets of the comparison, on classes in
groups of 50 and on glyphs. CP_K is the sum of the K highest probabilities.
NCG_K (eq. 5) is the part of the gradient's energy, the sum of (p - y)^2, that
the K classes with the highest responses carry. Both are exact means over 512
training rows of a model that is trained with uniform samples. The results are
benchmarks/results/comparison/concentration.json. Each set runs in a process of
its own; its result is kept in benchmarks/cache/concentration.
"""

import argparse
import json
import os
import sys

import numpy as np

from benchmarks import measure
from benchmarks.comparison import sets as sets_lib

NAME = "comparison/concentration"
GLYPHS = os.path.join(measure.CACHE, "glyphs")
SETS = [name for name in sets_lib.SETS if name not in sets_lib.EXTRA]
SETS += ["groups", "glyphs"]
# Of the training, where the curves are taken.
PARTS = (0.0, 0.03, 0.1, 0.3, 1.0)
SHOWN = (1, 10, 100, 1000)
SHARE = 0.0115  # of the classes: the paper's 1,000 of 87,000


def curves(probabilities, targets):
    """CP_K and NCG_K for every K, means over the rows.

    Args:
        probabilities, targets: float `[rows, num_classes]`.

    Returns:
        `(CP, NCG)`, float64 `[num_classes]`; index K - 1 holds the value at K.
    """
    p = np.asarray(probabilities, np.float64)
    energy = (p - targets) ** 2
    whole = np.maximum(energy.sum(axis=1, keepdims=True), 1e-300)
    # Both sums run over the classes with the highest responses (eq. 5). The
    # responses rank the classes as the probabilities do.
    order = np.argsort(-p, axis=1, kind="stable")
    return tuple(
        np.cumsum(np.take_along_axis(part, order, 1), axis=1).mean(axis=0)
        for part in (p, energy / whole)
    )


def targets_of(labels, num_classes):
    """Labels in equal parts, float64 `[rows, num_classes]`."""
    targets = np.zeros((len(labels), num_classes))
    for row, own in zip(targets, labels):
        own = np.unique(own[own >= 0])
        row[own] = 1 / max(len(own), 1)
    return targets


def train(subject):
    """What is measured of a `Subject` along its training, a list of dicts."""
    import tensorflow as tf

    from benchmarks.comparison.subjects import probabilities

    step = tf.function(lambda x, y: subject.model.train_step((x, y)))
    labels, num_classes = subject.labels, subject.num_classes
    found, done = [], 0
    for part in PARTS:
        for _ in range(int(part * subject.steps) - done):
            step(*next(subject.batches))
        done = int(part * subject.steps)
        both = [np.zeros(num_classes)] * 2
        for at in np.array_split(np.arange(len(labels)), 16):
            targets = targets_of(labels[at], num_classes)
            new = curves(probabilities(subject, at), targets)
            weight = len(at) / len(labels)
            both = [old + weight * one for old, one in zip(both, new)]
        found.append(point(done, *both))
        print(f"step {done} of {subject.steps}", file=sys.stderr, flush=True)
    return found


def point(step, cp, ncg):
    """A row of the table."""
    row = {"step": step}
    for label, curve in (("CP", cp), ("NCG", ncg)):
        for n in SHOWN:
            row[f"{label}_{n}"] = round(float(curve[min(n, len(cp)) - 1]), 3)
        share = float(curve[round(SHARE * len(cp)) - 1])
        row[f"{label} of 1.15 %"] = round(share, 3)
    return row


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.comparison.concentration",
        description=__doc__,
    )
    add = parser.add_argument
    add("--data", default="../shared/data", help="folder of the data sets")
    add("--glyphs", default=GLYPHS, help="folder of benchmarks.glyphs")
    add("--sets", nargs="+", choices=(*SETS, "generated"), default=SETS)
    add("--epochs", type=float, default=2.0, help="of texts")
    add("--child", help="a set: prints what is measured of it")
    args = parser.parse_args(argv)
    if args.child:
        from benchmarks.comparison import subjects

        made = subjects.make(args.child, args.data, args.epochs)
        print(json.dumps(train(made)))
        return 0
    found = {}
    for name in args.sets:
        folder = args.glyphs if name == "glyphs" else args.data
        options = "--child", name, "--epochs", args.epochs, "--data", folder
        file = f"{name},epochs={args.epochs:g}.json"
        found[name] = measure.kept(
            os.path.join(measure.CACHE, "concentration", file),
            lambda options=options: measure.in_fresh_process(
                "-m", "benchmarks.comparison.concentration", *options
            ),
        )
        if "error" in found[name]:
            print(f"FAILED {name}: {found[name]['error']}")
            return 1
    save(found)
    return 0


def save(found):
    """The table; rows of sets that were not run stay."""
    rows = [
        {"set": name, **row} for name, points in found.items() for row in points
    ]
    rows = measure.with_earlier(NAME, rows, ("set",))
    rows.sort(key=lambda row: (row["set"], row["step"]))
    measure.save(NAME, rows)


if __name__ == "__main__":
    sys.exit(main())
