"""What an op refuses its fallback refuses, and nothing else."""

import numpy as np
import pytest

from tests.fuzz_ops.values import Draw
from tests.fuzz_ops.wrong import wrong_calls
from tests.ops import test_fallback as pairs
from tfxclass.ops import fallback
from tfxclass.ops.fallback.registry import FALLBACKS

#: Arguments of which an op checks what it reads, and the fallback all.
READ_IN_PART = {
    "tfxclass_tree_path_loss": ("nodes", "leaves"),
    "tfxclass_tree_top_k": ("nodes",),
}


def accepted_call(name, monkeypatch, skip=0):
    """A call that the op accepts, without empty arrays where there is one."""
    draws = (Draw(pairs.random_of(name, number)) for number in range(skip, 40))
    calls = [
        call
        for call in (pairs.draw(name, drawing) for drawing in draws)
        if type(pairs.run(pairs.COMPILED, call, monkeypatch)) is list
    ]
    return max(calls, key=lambda x: min(map(np.size, pairs.numbers_of(x.args))))


def differences(call, monkeypatch):
    """How op and fallback differ in calls with one wrong argument."""
    for argument, what, wrong in wrong_calls(call):
        try:
            pairs.is_equal(call.op, wrong, monkeypatch)
        except Exception as e:
            if not is_stricter(argument, wrong, monkeypatch):
                yield f"{argument}, {what}: {type(e).__name__}: {e}"[:300]


def is_stricter(argument, call, monkeypatch):
    if argument not in READ_IN_PART.get(call.op, ()):
        return False
    found = pairs.run(fallback.ops, call, monkeypatch)
    return isinstance(found, pairs.calls.REFUSALS)


@pytest.mark.parametrize("name", sorted(FALLBACKS))
def test_op_and_fallback_refuse_the_same(name, monkeypatch):
    call = accepted_call(name, monkeypatch)
    found = [*differences(call, monkeypatch)]
    assert not found, "\n".join([*found, call.snippet()])
