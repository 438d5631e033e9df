"""Jobs of the DropMax table: what is trained, where it lies, what is chosen.

A job is a model: a set, a method, a setting, a seed. Each setting of a method
is trained with the first seed; the one with the least error on validation rows
is trained with the others, and is what the table shows. No test set chooses.
"""

import itertools
import json
import os
from typing import NamedTuple

from benchmarks import dropmax_methods

L2 = (0.0, 1e-5, 1e-4, 1e-3)


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


def settings_of(args, method):
    """List of `Setting`."""
    weights = dropmax_methods.method(method).entropy_weights
    weights = [None] if args.default_weights else weights
    # An embedding has no weight decay.
    l2 = [0.0] if method in dropmax_methods.SAMPLED_METHODS else args.l2
    return [Setting(*both) for both in itertools.product(l2, weights)]


def path_of(args, name, steps, method, setting, seed):
    file = f"{method.replace(' ', '_')},{setting},seed={seed}.json"
    return os.path.join(args.jobs, name, f"{steps}steps", file)


def read(path):
    """A job's result, or None."""
    if not os.path.exists(path):
        return None
    with open(path) as f:
        return json.load(f)


def chosen(args, name, steps, method):
    """The `Setting` that errs least on validation rows, of those trained.

    None where the first seed has no result in any.
    """
    found = {}
    for setting in settings_of(args, method):
        path = path_of(args, name, steps, method, setting, args.seeds[0])
        if (result := read(path)) is not None:
            found[setting] = result["scores"]["validation 18"]["error"]
    return min(found, key=found.get) if found else None


def pending(args, name, steps, method):
    """Next `(setting, seed, path)` without a result, or None.

    The settings with the first seed; then the best with the others.
    """
    first, *others = args.seeds
    jobs = [(setting, first) for setting in settings_of(args, method)]
    best = chosen(args, name, steps, method)
    jobs += [(best, seed) for seed in others]
    for setting, seed in jobs:
        path = path_of(args, name, steps, method, setting, seed)
        if not os.path.exists(path):
            return setting, seed, path
    return None


def load(args, name, steps, method):
    """`(setting, results)` of a row: those of the seeds there are."""
    setting = chosen(args, name, steps, method)
    if setting is None:
        return None, []
    paths = [
        path_of(args, name, steps, method, setting, seed) for seed in args.seeds
    ]
    return setting, [r for r in map(read, paths) if r is not None]
