"""Cases of tests: which are slow ones, and what refuses wrong arguments."""

import pytest


def quick(cases, names):
    """Parameters of a test: all cases, those not in `names` marked slow.

    For tests of which each case is long and tries much the same code.
    """
    missing = set(names) - set(cases)
    assert not missing, missing
    slow = [pytest.mark.slow]
    return [pytest.param(x, marks=[] if x in names else slow) for x in cases]


def check_refused(call, parts):
    """That a call raises ValueError with all of `parts` in its message."""
    with pytest.raises(ValueError) as error:
        call()
    for part in parts:
        assert part in str(error.value)
