"""Which of a test's cases run always, and which with --slow alone."""

import pytest


def quick(cases, names):
    """Parameters of a test: all cases, those not in `names` marked slow.

    For tests of which each case is long and tries much the same code.
    """
    missing = set(names) - set(cases)
    assert not missing, missing
    slow = [pytest.mark.slow]
    return [pytest.param(x, marks=[] if x in names else slow) for x in cases]
