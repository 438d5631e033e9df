"""Clocks for tests of `advise`, which do not depend on the machine."""

from tfxclass.advice import budget
from tfxclass.advice.runner import Runner


def tick(patch, seconds):
    """A clock that goes on by `seconds` whenever it is read."""
    now = [0.0]

    def clock():
        now[0] += seconds
        return now[0]

    patch.setattr(budget, "clock", clock)


class SlowMachine:
    """A clock that only what it is told of moves.

    Args:
        patch: pytest's monkeypatch.
        step: float, seconds of a training step.
        made: float, seconds to make or trace a model.
        check: float, seconds of the loss of a batch over all classes.
    """

    def __init__(self, patch, step, made=1.0, check=0.5):
        self.now = 0.0
        patch.setattr(budget, "clock", lambda: self.now)
        for name, seconds in (("trace", made), ("step", step)):
            patch.setattr(Runner, name, self._slow(name, seconds))
        loss = Runner.held_out_loss

        def held_out_loss(runner, batches):
            self.now += check * len(batches)
            return loss(runner, batches)

        patch.setattr(Runner, "held_out_loss", held_out_loss)

    def _slow(self, name, seconds):
        original = getattr(Runner, name)

        def method(runner, *args):
            begin = self.now
            result = original(runner, *args)
            self.now = begin + seconds
            if name == "trace":
                runner.seconds += seconds
            return result

        return method
