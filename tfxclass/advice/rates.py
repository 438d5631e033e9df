"""A search for the learning rate on the user's data."""

import contextlib
import math
from collections.abc import Callable
from typing import NamedTuple

from tfxclass.advice import budget as budget_lib
from tfxclass.advice.batches import Split
from tfxclass.advice.budget import Budget
from tfxclass.advice.report import RateTrial
from tfxclass.advice.runner import Runner

#: The rates that are tried, in the order in which they are given up last.
RATES = (1e-3, 3e-3, 3e-4, 1e-2)
# An optimizer whose own rate is not between these has rates around its own.
_USUAL = (2e-4, 2e-2)
# The best two are trained again, for at least so many times as many steps.
_FINALISTS, _LONGER = 2, 3
# Rates beyond the best one that may be tried.
_BEYOND = 2
# More candidates than a few are tried where each gets a good number of steps.
_FEW, _GOOD_STEPS = 4, 100
# Fewer steps in the first round say nothing; more passes over the data are
# about overfitting.
_LEAST_STEPS, _MOST_PASSES = 10, 30
# Fractions: of the time left, for the search; of this, for held-out losses.
_SPENT, _JUDGED = 0.9, 0.4
# Above so many times the loss at the start, training has diverged.
_RISE = 1.1
# Of all time, what measuring the time of a held-out loss may take too much.
_OVERTIME = 0.1
# Steps whose time is measured before.
_CALIBRATED = 20
_CHECKS = (0.25, 0.5, 1.0)


class Candidate(NamedTuple):
    """An optimizer and a rate that are tried.

    Attributes:
        optimizer: str, name of one of the runners.
        rate: float.
    """

    optimizer: str
    rate: float


class Plan(NamedTuple):
    """How many candidates are tried, and for how long.

    Attributes:
        number: int, candidates of the first round; 0 where time is too short.
        steps: int, of each of them in the first round.
    """

    number: int
    steps: int


def rates_around(own: float) -> list[float]:
    """Learning rates to try for an optimizer whose own rate is `own`."""
    if not own > 0 or not math.isfinite(own):
        return list(RATES)
    if not _USUAL[0] <= own <= _USUAL[1]:
        return [own * rate / RATES[0] for rate in RATES]
    others = [rate for rate in RATES if not 0.8 < rate / own < 1.25]
    return [own, *others]


def candidates_of(rates: dict[str, list[float]]) -> list[Candidate]:
    """Candidates of all optimizers in turn, the most important ones first."""
    longest = max(map(len, rates.values()))
    return [
        Candidate(name, some[i])
        for i in range(longest)
        for name, some in rates.items()
        if i < len(some)
    ]


def plan(
    count: int, step: float, check: float, seconds: float, most: float
) -> Plan:
    """Plans as many candidates as there is time for.

    Args:
        count: int, candidates.
        step: float, seconds of a training step.
        check: float, seconds of a candidate without its steps.
        seconds: float, for all.
        most: float, the most steps of the longest trial that are of use.
    """
    wanted = [(number, _GOOD_STEPS) for number in range(count, _FEW, -1)]
    wanted += [(number, _LEAST_STEPS) for number in range(_FEW, 1, -1)]
    for number, least in wanted:
        if number > count:
            continue
        least = min(least, max(most / _LONGER, _LEAST_STEPS))
        finalists = _FINALISTS if number > _FINALISTS else 0
        beyond = _BEYOND if number == count else 0
        trials = number + finalists + beyond
        weight = number + _LONGER * finalists + beyond
        left = seconds - trials * check
        steps = int(min(left / max(step, 1e-6) / weight, most / _LONGER))
        if left > 0 and steps >= least:
            return Plan(number, steps)
    return Plan(0, 0)


class RateSearch:
    """Trains each candidate from the same weights for as many steps.

    The best two of a first round are trained again for longer. A candidate is
    judged by its lowest loss over all classes on held-out rows.

    Args:
        runners: dict of `Runner` by name.
        data: `Split`.
        step: float, seconds of a training step.
        time: `Budget`.
        tell: function of a message that returns a context manager.

    Attributes:
        trials: list of `RateTrial`, the first round first.
        start: float, the held-out loss before training.
        was_cut: bool, whether candidates were left out for lack of time.
    """

    def __init__(
        self,
        runners: dict[str, Runner],
        data: Split,
        step: float,
        time: Budget,
        tell: Callable[[str], contextlib.AbstractContextManager],
    ) -> None:
        self._runners, self._data = runners, data
        self._step, self._time, self._tell = max(step, 1e-6), time, tell
        self._first: dict[Candidate, RateTrial] = {}
        self._final: dict[Candidate, RateTrial] = {}
        self._check = 0.0
        self.start = math.nan
        self.was_cut = False

    @property
    def held_out_rows(self) -> int:
        """Rows that the losses are of; 0 where they are training rows."""
        return self._data.rows

    @property
    def trials(self) -> list[RateTrial]:
        return [*self._first.values(), *self._final.values()]

    def run(self, rates: dict[str, list[float]]) -> None:
        """Tries rates of each runner, given by name."""
        candidates = candidates_of(rates)
        # Before anything else, with steps alone.
        left = self._time.left() * _SPENT
        if not plan(len(candidates), self._step, 0.0, left, math.inf).number:
            self.was_cut = True
            return
        runner = self._runners[candidates[0].optimizer]
        begin = budget_lib.clock()
        runner.begin(candidates[0].rate)
        reset = budget_lib.clock() - begin
        if not self._measure_check(runner, len(candidates)):
            self.was_cut = True
            return
        for other in self._runners.values():
            self._warm_up(other)
        self._measure_step(runner)
        passes = max(_MOST_PASSES * self._data.steps, _LONGER * _LEAST_STEPS)
        chosen = plan(
            len(candidates),
            self._step,
            len(_CHECKS) * self._check + reset,
            self._time.left() * _SPENT,
            passes,
        )
        self.was_cut = chosen.number < len(candidates)
        begin = budget_lib.clock()
        for candidate in candidates[: chosen.number]:
            self._try(candidate, chosen.steps, self._first)
        seconds = budget_lib.clock() - begin
        if not self._first:
            return
        per_step = seconds / (len(self._first) * chosen.steps)
        if chosen.number == len(candidates):
            self._go_beyond(chosen.steps)
        if len(self._first) > _FINALISTS:
            self._try_longer(chosen.steps, per_step, passes)

    @property
    def best(self) -> RateTrial | None:
        """The trial with the lowest loss, of the final if there was one.

        None where no trial has a lower loss than the model at the start.
        """
        good = _learning(self._final.values())
        if not good or len(self._final) < _FINALISTS:
            failed = {c for c, t in self._final.items() if t.diverged}
            some = [t for c, t in self._first.items() if c not in failed]
            good = _learning(some)
        return good[0] if good and good[0].loss < self.start else None

    def _measure_check(self, runner, count):
        """The loss before training, of as many rows as there is time for.

        Returns:
            bool, whether there is time to go on.
        """
        kept = self._data.held_out
        begin = budget_lib.clock()
        runner.held_out_loss(kept[:1])  # with its trace
        first = budget_lib.clock() - begin
        if self._time.left() + _OVERTIME * self._time.seconds < 2 * first:
            return False
        begin = budget_lib.clock()
        self.start = runner.held_out_loss(kept[:1])
        one = budget_lib.clock() - begin
        number = len(_CHECKS) * (count + _FINALISTS + _BEYOND)
        most = max(self._time.left(), 0) * _JUDGED / number
        kept = kept[: max(int(most / max(one, 1e-6)), 1)]
        rows = sum(len(y) for _, y in kept) if self._data.rows else 0
        self._data = self._data._replace(held_out=kept, rows=rows)
        self._check = one * len(kept)
        if len(kept) > 1:
            self.start = runner.held_out_loss(kept)
        return True

    def _warm_up(self, runner):
        """A first step and a first loss, which prepare much."""
        if self._time.left() > 10 * (self._step + self._check):
            runner.step(*next(self._data.batches()))
            runner.held_out_loss(self._data.held_out[:1])

    def _measure_step(self, runner):
        """A step with the making of its batch."""
        count = min(int(self._time.left() / 20 / self._step), _CALIBRATED)
        batches = self._data.batches()
        begin = budget_lib.clock()
        for _ in range(count):
            runner.step(*next(batches))
        seconds = budget_lib.clock() - begin
        self._step = max(self._step, seconds / max(count, 1))

    def _try(self, candidate, steps, found):
        name, rate = candidate
        with self._tell(f"Training with {name}({rate:g})"):
            trial = self._trained(candidate, steps)
        if trial is None:
            self.was_cut = True
        else:
            found[candidate] = trial

    def _trained(self, candidate, steps):
        """A `RateTrial`, or None where time ran out."""
        runner = self._runners[candidate.optimizer]
        runner.begin(candidate.rate)
        batches = self._data.batches()
        checks = {max(int(share * steps), 1) for share in _CHECKS}
        losses, held_out = [], []
        for number in range(1, steps + 1):
            if self._time.left() < self._check + self._step:
                return None
            losses.append(runner.step(*next(batches)))
            if not math.isfinite(losses[-1]):
                break
            if number in checks:
                held_out.append(runner.held_out_loss(self._data.held_out))
        is_finite = all(map(math.isfinite, [*losses, *held_out]))
        has_risen = is_finite and self._has_risen(losses, held_out)
        return RateTrial(
            candidate.optimizer,
            candidate.rate,
            min(held_out) if is_finite else math.nan,
            not is_finite or has_risen,
            steps,
        )

    def _has_risen(self, losses, held_out):
        """Whether the loss is far above the first one, and does not fall.

        A little above says nothing: rows of classes that no batch had yet.
        """
        last = losses[-max(len(losses) // 4, 1) :]
        is_above = held_out[-1] > _RISE * self.start
        is_above &= _mean(last) > losses[0]
        return is_above and held_out[-1] >= held_out[0]

    def _go_beyond(self, steps):
        """Tries larger or smaller rates while the best one is at an edge."""
        for _ in range(_BEYOND):
            candidate = self._beyond()
            if candidate is None or candidate in self._first:
                return
            self._try(candidate, steps, self._first)

    def _beyond(self):
        """The next candidate past an edge, or None."""
        good = _learning(self._first.values())
        if not good:
            lowest = min(self._first, key=lambda c: c.rate)
            return lowest._replace(rate=lowest.rate / 10)
        name, rate = good[0].optimizer, good[0].rate
        rates = [c.rate for c in self._first if c.optimizer == name]
        factor = RATES[1] / RATES[0]
        if rate == max(rates):
            return Candidate(name, rate * factor)
        return Candidate(name, rate / factor) if rate == min(rates) else None

    def _try_longer(self, steps, per_step, most):
        """Trains the best candidates again, for as long as there is time."""
        left = self._time.left() * _SPENT / _FINALISTS / per_step
        longer = int(min(most, left))
        good = _learning(self._first.values())[:_FINALISTS]
        if longer < 1.5 * steps or len(good) < _FINALISTS:
            return
        for trial in good:
            candidate = Candidate(trial.optimizer, trial.rate)
            self._try(candidate, longer, self._final)


def _learning(trials):
    """Trials that did not diverge, the lowest loss first."""
    good = [trial for trial in trials if not trial.diverged]
    return sorted(good, key=lambda trial: trial.loss)


def _mean(values):
    return sum(values) / len(values)
