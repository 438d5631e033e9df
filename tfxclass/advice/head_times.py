"""Measures the time of a training step with each head."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass.advice import budget
from tfxclass.advice.report import NAMES
from tfxclass.advice.report import Advice
from tfxclass.advice.report import Choice
from tfxclass.advice.report import listed
from tfxclass.advice.report import new_head
from tfxclass.advice.runner import Runner
from tfxclass.advice.trial import Trial
from tfxclass.memory import estimate

# The fraction of the time at which timing of the heads ends.
_MEASURED = 0.5
# Steps whose time is a median, and at least.
_TIMED, _LEAST_TIMED = 50, 2
# Rough seconds, to leave out what would take too long: of one multiplication
# and addition, and of a number of a class vector in an index.
_PER_PRODUCT = 1e-10
_PER_NUMBER = {"forest": 2e-7, "lsh": 1e-7}

#: A context manager that tells what takes long.
Tell = Callable[[str], contextlib.AbstractContextManager]


class HeadTimes:
    """Times steps of as many heads as there is time for.

    Args:
        trial: `Trial`, trained.

    Attributes:
        runner: `Runner` of the recommended head.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._made = trial.uniform.seconds
        self.runner = trial.uniform

    def run(self, advice: Advice, x: Any, y: tf.Tensor, tell: Tell) -> Advice:
        """The advice with its choices."""
        trial = self._trial
        first = self._choice(
            trial.uniform, "uniform", trial.step_times, trial.first_step
        )
        advice = _with_choice(advice, first)
        late = []
        for name in ("auto", "full", "lsh", "forest"):
            if trial.time.left(_MEASURED) < self._guess(name):
                late.append(name)
                continue
            with tell(f'Taking steps with "{name}"'):
                runner = trial.runner(name)
                choice = self._measure(runner, name, x, y)
            advice = _with_choice(advice, choice)
            # Class vectors and optimizer state of others are no longer needed.
            if advice.recommended == name:
                self.runner = runner
        self._note_late([name for name in late if name != "auto"])
        return advice

    def _note_late(self, names):
        if names:
            kinds = [type(new_head(n, self._trial.sizes(n))) for n in names]
            verb = "was" if len(kinds) == 1 else "were"
            self._trial.notes.append(
                f"{listed([kind.__name__ for kind in kinds])} {verb} not "
                "timed: this needs more `seconds`."
            )

    def _guess(self, name):
        """Roughly, the seconds that `_measure` takes."""
        trial = self._trial
        dim = int(trial.head.kernel.shape[1])
        numbers = trial.head.num_classes * dim
        steps = 3 * trial.step_times[-1]
        if name == "full":
            steps = 4 * trial.positions * numbers * 3 * _PER_PRODUCT
        index = numbers * _PER_NUMBER.get(name, 0.0)
        return self._made + trial.first_step + steps + index

    def _measure(self, runner, name, x, y):
        """Times steps of a head on one batch, with what was trained."""
        time = self._trial.time
        runner.load(self._trial.trained)
        runner.trace(x, y)
        seconds = [_seconds_of(runner, x, y)]
        end = budget.clock() + time.left(_MEASURED) / 2
        # The first step, which prepares much, says little of the others.
        while len(seconds) <= _TIMED:
            is_enough = len(seconds) > _LEAST_TIMED and budget.clock() > end
            if is_enough or time.left() < 2 * seconds[-1]:
                break
            seconds.append(_seconds_of(runner, x, y))
        return self._choice(runner, name, seconds[1:] or seconds, seconds[0])

    def _choice(self, runner: Runner, name, seconds, first):
        return Choice(
            name=name,
            step_ms=1e3 * float(np.median(seconds)),
            first_step_s=first,
            memory=estimate(
                runner.head,
                dim=int(runner.head.kernel.shape[1]),
                batch=self._trial.positions,
                optimizer=self._trial.optimizer_of_head,
            ),
        )


def _with_choice(advice, choice):
    choices = {each.name: each for each in (*advice.choices, choice)}
    in_order = tuple(choices[name] for name in NAMES if name in choices)
    return dataclasses.replace(advice, choices=in_order)


def _seconds_of(runner, x, y):
    begin = budget.clock()
    runner.step(x, y)
    return budget.clock() - begin
