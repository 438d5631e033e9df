"""A process with fallback ops alone says what is slow, once."""

import time
import warnings

import pytest
import tensorflow as tf

from tfxclass.ops import library
from tfxclass.ops.fallback import registry
from tfxclass.ops.fallback import slow


@pytest.fixture
def nap(monkeypatch):
    """A fallback that takes as long as it is told; 0.2 s are long."""
    monkeypatch.setattr(slow, "PATIENCE", 0.2)
    monkeypatch.setattr(registry, "FALLBACKS", {})

    @registry.fallback
    def nap(seconds: registry.Doubles) -> tf.Tensor:
        def run(seconds):
            time.sleep(float(seconds))
            return (seconds,)

        return registry.on_host(run, [tf.float64], [seconds], [[]])[0]

    yield nap
    slow._warned.discard("nap")
    slow._seconds.pop("nap")


def said(nap, *calls):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for seconds in calls:
            assert float(nap(seconds)) == seconds
    return [str(x.message) for x in found if "slower" in str(x.message)]


def test_a_call_that_takes_long(nap, monkeypatch):
    monkeypatch.setattr(library, "build", lambda: {"ops": "fallback"})
    assert said(nap, 0.0) == []
    (message,) = said(nap, 1.0, 0.0)
    assert message.startswith("The op nap is some times slower here than")
    assert "run `make setup`" in message
    assert said(nap, 0.5) == []


def test_with_compiled_ops_nothing_is_said(nap):
    """Tests and exports take fallbacks, too."""
    assert library.build()["ops"] == "compiled"
    assert said(nap, 0.5) == []
