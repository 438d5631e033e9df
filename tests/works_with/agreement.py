"""What each program reports; imported by the scripts `ask_*.py`."""

import importlib.metadata
import sys

import numpy as np


def versions(*packages):
    """Prints the versions of packages, and of Python."""
    found = [f"{x} {importlib.metadata.version(x)}" for x in packages]
    print("  " + ", ".join([*found, f"Python {sys.version.split()[0]}"]))


def report(what, ids, expected):
    """Prints how many of the best classes are ours, in percent."""
    same = np.mean(
        [len({*a} & {*b}) / len(b) for a, b in zip(np.asarray(ids), expected)]
    )
    print(f"  {what}: {same:.1%} of the best {expected.shape[1]}", flush=True)


def refused(what, error):
    """Prints the first lines of an error."""
    text = " ".join(str(error).split())
    print(f"  {what}: {type(error).__name__}: {text[:300]}", flush=True)
