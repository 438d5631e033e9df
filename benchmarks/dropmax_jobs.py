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


def settings_of(args, name, steps, method):
    """`Setting`s to train with the first seed, as far as results tell."""
    if args.usual:
        return [USUAL]
    weights = dropmax_methods.METHODS[method].entropy_weights
    settings = [USUAL._replace(entropy_weight=w) for w in weights]
    errors = _errors(args, name, steps, method, settings)
    if len(errors) == len(settings):
        best = min(errors, key=errors.get)
        settings += [best._replace(l2=l2) for l2 in dropmax.SETS[name].l2]
    return settings


def _errors(args, name, steps, method, settings):
    """Error on validation rows of those `settings` that have a result."""
    found = {}
    for setting in settings:
        path = path_of(args, name, steps, method, setting, args.seeds[0])
        if (result := measure.read(path)) is not None:
            found[setting] = result["scores"]["validation 18"]["error"]
    return found


def path_of(args, name, steps, method, setting, seed):
    file = f"{method.replace(' ', '_')},{setting},seed={seed}.json"
    return os.path.join(args.jobs, name, f"{steps}steps", file)


def chosen(args, name, steps, method):
    """`(setting, tried)`: of all trained, what errs least; how many there are.

    On validation rows, with the first seed; None where it has no result.
    """
    settings = settings_of(args, name, steps, method)
    errors = _errors(args, name, steps, method, settings)
    return min(errors, key=errors.get) if errors else None, len(errors)


def pending(args, name, steps, method):
    """Next `(setting, seed, path)` without a result, or None."""
    settings = settings_of(args, name, steps, method)
    jobs = [(USUAL, seed) for seed in args.seeds]
    jobs += [(setting, args.seeds[0]) for setting in settings]
    best, _ = chosen(args, name, steps, method)
    jobs += [(best, seed) for seed in args.seeds]
    for setting, seed in jobs:
        path = path_of(args, name, steps, method, setting, seed)
        if not os.path.exists(path):
            return setting, seed, path
    return None


def load(args, name, steps, method):
    """`(setting, tried, results)` of the usual setting and of a better one.

    Those there are, each with the results of its seeds.
    """
    best, tried = chosen(args, name, steps, method)
    found = []
    for setting in dict.fromkeys([USUAL, best or USUAL]):
        paths = [
            path_of(args, name, steps, method, setting, seed)
            for seed in args.seeds
        ]
        results = [r for r in map(measure.read, paths) if r is not None]
        if results:
            found.append((setting, tried if setting == best else 1, results))
    return found
