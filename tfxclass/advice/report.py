"""The result of `advise`: the numbers, and what follows from them."""

import dataclasses
import math

import keras

from tfxclass import layers
from tfxclass.advice.runner import at_rate
from tfxclass.memory import Estimate
from tfxclass.optimizers import HeadAdam
from tfxclass.types import Config

#: The heads that are compared, exact first.
NAMES = ("full", "uniform", "auto", "forest", "lsh")
#: The name of the optimizer that is recommended to everybody.
DEFAULT = HeadAdam.__name__
_CALLS = {
    "full": "FullSoftmax({num_classes:_})",
    "uniform": "SampledSoftmax({num_classes:_}, {num_sampled:_})",
    "auto": "SampledSoftmax({num_classes:_}, {num_sampled:_})",
    "forest": "SelectiveSoftmax({num_classes:_}, {num_sampled:_})",
    "lsh": "LSHSoftmax({num_classes:_}, {num_sampled:_})",
}
_TITLES = {
    "full": "FullSoftmax",
    "uniform": "SampledSoftmax, uniform",
    "auto": "SampledSoftmax, similar",
    "forest": "SelectiveSoftmax",
    "lsh": "LSHSoftmax",
}
_BY_DEFAULT = ("uniform", "auto")
# Two timings that differ by less are equal; the default head is then taken.
_EQUAL = 1.05


@dataclasses.dataclass(frozen=True)
class Choice:
    """A head that was tried.

    Attributes:
        name: str, `"full"`, `"uniform"`, `"auto"`, `"forest"` or `"lsh"`.
        step_ms: float, median time of a training step of the whole model.
        first_step_s: float, seconds of the first step, which builds an index.
        memory: `tfxclass.Estimate` of the head.
    """

    name: str
    step_ms: float
    first_step_s: float
    memory: Estimate


@dataclasses.dataclass(frozen=True)
class RateTrial:
    """A learning rate that was tried.

    Attributes:
        optimizer: str, the class name of the optimizer.
        rate: float, the constant learning rate.
        loss: float, the lowest loss over all classes on held-out examples, or
            NaN if the training loss was not finite.
        diverged: bool, whether a loss was not finite, or the held-out loss rose
            by 10 % together with the training loss.
        steps: int, training steps. The best two are trained twice, the second
            time for longer.
    """

    optimizer: str
    rate: float
    loss: float
    diverged: bool
    steps: int


@dataclasses.dataclass(frozen=True)
class Advice:
    """The result of `tfxclass.advise`. `print` shows the recommendation.

    Attributes:
        choices: tuple of `Choice`, the heads whose steps were timed.
        trained_steps: int, training steps before the noise was measured.
        k_eff: float, the effective number of classes that share the probability
            mass of the negatives, (sum p)^2 / sum p^2, geometric mean over
            examples.
        v: float, the relative variance of the uniform estimate of this mass,
            num_classes / (negatives * k_eff), mean over examples.
        noise: float, v in proportion to the model's uncertainty about the
            labels, v (1 - p_y), mean over examples.
        constant: float. Uniform sampling is too noisy if `noise` is larger.
        num_classes: int, number of classes.
        num_sampled: int, number of classes in a training step of a sampled
            head.
        batch: int, number of examples in a training batch.
        config: dict, the arguments of the model's head that a new head gets.
        rates: tuple of `RateTrial`, what was tried. It is empty if there was no
            time.
        best: `RateTrial` or None, the recommended one. None if no trial lowered
            the loss.
        own_optimizer: str, class name of the model's optimizer.
        own_rate: float, its learning rate.
        optimizers: dict of optimizer configurations by class name.
        held_out_rows: int, number of examples that `rates` were judged by. 0 if
            they were training examples.
        notes: tuple of str, sentences about what could not be tried.
    """

    choices: tuple[Choice, ...]
    trained_steps: int
    k_eff: float
    v: float
    noise: float
    constant: float
    num_classes: int
    num_sampled: int
    batch: int
    config: Config
    rates: tuple[RateTrial, ...] = ()
    best: RateTrial | None = None
    own_optimizer: str = DEFAULT
    own_rate: float = 1e-3
    optimizers: Config = dataclasses.field(default_factory=dict)
    held_out_rows: int = 0
    notes: tuple[str, ...] = ()

    def time_to_learn(self, name: str) -> float:
        """The time of a step, in ms, corrected for its noise.

        Uniform sampling needs `noise / constant` times as many steps, if that
        is more than 1.
        """
        (choice,) = [each for each in self.choices if each.name == name]
        noise = self.noise / self.constant if name == "uniform" else 1.0
        return choice.step_ms * max(noise, 1.0)

    def _ranked(self):
        """Names of the choices, best first."""

        def cost(name):
            handicap = 1.0 if name in _BY_DEFAULT else _EQUAL
            return handicap * self.time_to_learn(name)

        return sorted((c.name for c in self.choices), key=cost)

    @property
    def recommended(self) -> str:
        """The name of the choice that learns most in a given time."""
        return self._ranked()[0]

    def head(self) -> keras.layers.Layer:
        """Makes the recommended head; `"uniform"` has `sampler="auto"`."""
        options = {} if self.recommended == "full" else self._sampled()
        return new_head(self.recommended, {**self.config, **options})

    def _sampled(self):
        sampled = {"num_sampled": self.num_sampled}
        if self.recommended in _BY_DEFAULT:
            sampled["sampler"] = "auto"
        return sampled

    @property
    def learning_rate(self) -> float:
        """The recommended rate, or the optimizer's own if none was tried."""
        return self.own_rate if self.best is None else self.best.rate

    @property
    def optimizer_name(self) -> str:
        """Class name of the recommended optimizer."""
        return self.own_optimizer if self.best is None else self.best.optimizer

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Makes the recommended optimizer, with the recommended rate."""
        config = self.optimizers.get(self.optimizer_name)
        if config is None:
            return HeadAdam(self.learning_rate)
        return at_rate(config, self.learning_rate)

    @property
    def reason(self) -> str:
        """Why this head is recommended, in one sentence."""
        name, ms = self.recommended, self.time_to_learn
        noise = f"{self.noise:.2g}; below {self.constant:g} is fine"
        if name == "full":
            others = [n for n in self._ranked() if n != "full"]
            than = f" ({ms('full'):.3g} ms a step)"
            if others:
                step_ms = self.step_ms(others[0])
                than = f" ({ms('full'):.3g} ms a step instead of {step_ms:.3g})"
            if self.noise > self.constant:
                return (
                    f"Uniform sampling is too noisy here ({noise}), and the "
                    f"exact softmax costs little{than}."
                )
            return f"The exact softmax costs no more than a sample{than}."
        if self.noise <= self.constant:
            return f"Uniform sampling is precise enough here ({noise})."
        if name == "uniform" and "auto" in self._ranked():
            return (
                f"Uniform sampling is noisy here ({noise}), and similar "
                "classes would take more time than they save."
            )
        if name == "uniform":
            return (
                f"Uniform sampling is too noisy here ({noise}), so the head "
                "will add similar classes."
            )
        return f"Uniform sampling is too noisy here ({noise})."

    def step_ms(self, name: str) -> float:
        """Time of a training step with a choice, in ms."""
        (choice,) = [each for each in self.choices if each.name == name]
        return choice.step_ms

    def _call(self, name):
        return _CALLS[name].format(
            num_classes=self.num_classes, num_sampled=self.num_sampled
        )

    def _optimizer_sentences(self):
        if self.best is None:
            return
        best = self.best
        rates = {t.rate: t.diverged for t in self.rates if _is_of(t, best)}
        diverged = [rate_text(rate) for rate, failed in rates.items() if failed]
        found = []
        if diverged:
            found.append(f"{listed(diverged)} diverged")
        others = self._others(lambda t: _is_of(t, best) and t.rate != best.rate)
        if others:
            other, ours = others[0]
            rows = "training rows"
            if self.held_out_rows:
                rows = f"{self.held_out_rows} held-out rows"
            found.append(
                f"{rate_text(other.rate)} has a higher loss on {rows} "
                f"({other.loss:.4g} instead of {ours.loss:.4g})"
            )
        if found:
            yield (
                f"Learning rate {rate_text(best.rate)}: {', and '.join(found)}."
            )
        rivals = dict.fromkeys(t.optimizer for t in self.rates)
        for rival in rivals:
            if rival != best.optimizer:
                yield self._comparison(rival)

    def _others(self, is_one):
        """Pairs of another trial and the best candidate's, best others first.

        Both have as many steps, the most that both have.
        """
        best = self.best
        ours = {
            t.steps: t
            for t in self.rates
            if _is_of(t, best) and t.rate == best.rate
        }
        others = [
            t
            for t in self.rates
            if is_one(t) and not t.diverged and t.steps in ours
        ]
        others.sort(key=lambda t: (-t.steps, t.loss))
        return [(other, ours[other.steps]) for other in others]

    def _comparison(self, rival):
        """Why the best optimizer is better than another, one sentence."""
        name = self.best.optimizer
        others = self._others(lambda t: t.optimizer == rival)
        if not others:
            return f"{name} learns, and {rival} diverged."
        other, ours = others[0]
        return (
            f"{name} has a lower loss than {rival} at its best rate of those "
            f"tried, {rate_text(other.rate)} ({ours.loss:.4g} instead of "
            f"{other.loss:.4g} after {ours.steps:,} steps)."
        )

    def _next_best(self):
        name = self.recommended
        others = [
            n for n in self._ranked() if self._call(n) != self._call(name)
        ]
        if not others:
            return
        yield (
            f"Next best: {self._call(others[0])} "
            f"({self.step_ms(others[0]):.3g} ms a step instead of "
            f"{self.step_ms(name):.3g})."
        )

    def _table(self):
        yield (
            f"{'head':24} {'ms a step':>10} {'first step, s':>14} "
            f"{'memory, MB':>11}"
        )
        for choice in self.choices:
            memory = choice.memory.total_bytes / 1e6
            yield (
                f"{_TITLES[choice.name]:24} {choice.step_ms:10.3g} "
                f"{choice.first_step_s:14.3g} {memory:11,.1f}"
            )
        if not self.rates:
            return
        yield (
            f"{'optimizer':24} {'rate':>10} {'held-out loss':>14} {'steps':>11}"
        )
        for trial in sorted(
            self.rates, key=lambda t: (t.optimizer, t.rate, t.steps)
        ):
            loss = "diverged" if trial.diverged else f"{trial.loss:.4g}"
            yield (
                f"{trial.optimizer:24} {rate_text(trial.rate):>10} {loss:>14} "
                f"{trial.steps:11,}"
            )

    def __str__(self):
        rate = rate_text(self.learning_rate)
        optimizer = f"{self.optimizer_name}({rate})"
        return "\n".join(
            [
                f"Recommended: {self._call(self.recommended)} with "
                f"{optimizer}.",
                self.reason,
                *self._optimizer_sentences(),
                *self._next_best(),
                *self.notes,
                f"The model has {self.num_classes:,} classes and batches of "
                f"{self.batch}. After {self.trained_steps:,} training steps, "
                f"{self.k_eff:.3g} classes share the probability of the wrong "
                f"answers (v is {self.v:.3g}).",
                "",
                *self._table(),
            ]
        )


def rate_text(rate: float) -> str:
    """A learning rate as one would type it: 3e-3."""
    if math.isnan(rate) or rate == 0 or 0.05 <= rate < 1000:
        return f"{rate:g}"
    mantissa, exponent = f"{rate:.1e}".split("e")
    mantissa = mantissa.removesuffix(".0")
    return f"{mantissa}e{int(exponent)}"


def _is_of(trial, other):
    return trial.optimizer == other.optimizer


def listed(words: list[str]) -> str:
    """Words with commas and "and"."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"


def new_head(name: str, config: Config) -> keras.layers.Layer:
    """A head of `NAMES` with the arguments of `config`."""
    kinds = {
        "full": layers.FullSoftmax,
        "uniform": layers.SampledSoftmax,
        "auto": layers.SampledSoftmax,
        "forest": layers.SelectiveSoftmax,
        "lsh": layers.LSHSoftmax,
    }
    if name in _BY_DEFAULT:
        config = {"sampler": name, **config}
    return kinds[name].from_config(config)
