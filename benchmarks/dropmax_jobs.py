"""Jobs of the DropMax table: what is trained, where it lies, what is chosen.

A job is a model: a set, a method, a setting, a seed. The usual setting of a
method is trained with all seeds. Then others are, with the first seed: the
weights of the entropy, and the decays of the network's weights beside the best
of them. The setting with the least error on validation rows is trained with
the other seeds, too. No test set chooses.
"""

import os
from typing import NamedTuple

from benchmarks import dropmax
from benchmarks import dropmax_methods
from benchmarks import measure


class Setting(NamedTuple):
    """What is chosen on validation rows.

    Attributes:
        l2: float, of the network's weights.
        entropy_weight: float, the paper's lambda; None is the head's own.
    """

    l2: float
    entropy_weight: float | None = None

    def __str__(self):
        weight = self.entropy_weight
        shown = "own" if weight is None else f"{weight:g}"
        return f"l2={self.l2:g},lambda={shown}"


#: What nothing chose.
USUAL = Setting(1e-4)


def path_of(args, name, steps, method, setting, seed):
    file = f"{method.replace(' ', '_')},{setting},seed={seed}.json"
    return os.path.join(args.jobs, name, f"{steps}steps", file)


def results_of(args, name, steps, method, train=None):
    """`(setting, tried, results)` of the usual setting and of a better one.

    Those there are, each with the results of its seeds, and of how many
    settings it is the best.

    Args:
        args: with `jobs`, `seeds` and `usual`.
        name: str, in `dropmax.SETS`.
        steps: int.
        method: str.
        train: function of a setting and a seed that returns a result, for jobs
            that have none; None trains nothing.
    """

    def result(setting, seed):
        path = path_of(args, name, steps, method, setting, seed)
        if train is None:
            return measure.read(path)
        return measure.kept(path, lambda: train(setting, seed))

    def of_seeds(setting):
        found = [result(setting, seed) for seed in args.seeds]
        return [one for one in found if one is not None]

    usual, errors = of_seeds(USUAL), {}

    def errors_of(settings):
        """On validation rows, with the first seed; no test set chooses."""
        for setting in settings:
            if (found := result(setting, args.seeds[0])) is not None:
                errors[setting] = found["scores"]["validation 18"]["error"]
        return min(errors, key=errors.get, default=USUAL)

    weights = dropmax_methods.METHODS[method].entropy_weights
    best = errors_of([USUAL])
    if not args.usual:
        best = errors_of([USUAL._replace(entropy_weight=w) for w in weights])
        if len(errors) == len(weights):
            l2 = dropmax.SETS[name].l2
            best = errors_of([best._replace(l2=value) for value in l2])
    found = [(USUAL, len(errors) if best == USUAL else 1, usual)]
    if best != USUAL:
        found.append((best, len(errors), of_seeds(best)))
    return [one for one in found if one[-1]]
