"""Every op: how a call of it is drawn, and what it promises."""

from typing import Any
from typing import NamedTuple

import numpy as np

#: By the op's name in Python.
DESCRIPTIONS = {}


class Description(NamedTuple):
    draw: Any
    check: Any


def described(name, check=None):
    """Registers `draw(d)`, the arguments of a valid call.

    `check(args, outputs, live)` raises AssertionError where a promise is not
    kept; it is called for changed arguments, too.
    """

    def register(draw):
        DESCRIPTIONS["tfxclass_" + name] = Description(draw, check)
        return draw

    return register


def is_moderate(*arrays):
    """Whether sums of products of a few hundred of them are finite."""
    return all(
        np.all(np.isfinite(a)) and np.all(np.abs(a).astype(float) < 1e15)
        for a in map(np.asarray, arrays)
        if a.dtype.kind == "f"
    )


def assert_ids(ids, bound, padded=False):
    ids = np.asarray(ids)
    assert np.all((ids >= (-1 if padded else 0)) & (ids < bound)), ids


def assert_distinct(ids):
    assert len(np.unique(ids)) == np.size(ids), ids


def assert_ranked(ids, scores, bound):
    """Rows of ids in [0, bound), best first, then -1."""
    assert_ids(ids, bound, padded=True)
    for row, of_row in zip(ids, scores):
        found = int(np.sum(row >= 0))
        assert np.all(row[:found] >= 0), row
        assert_distinct(row[:found])
        assert np.all(of_row[1:found] <= of_row[:found][:-1]), of_row


def assert_near(result, expected, bound):
    """Within `bound` of each, an error bound of float32 arithmetic."""
    np.testing.assert_array_less(
        np.abs(np.asarray(result, np.float64) - expected),
        np.asarray(bound) + 1e-30,
    )
