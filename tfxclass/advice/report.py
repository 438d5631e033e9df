"""What `advise` found: the numbers, and what follows from them."""

import dataclasses

import keras

from tfxclass import layers
from tfxclass.memory import Estimate
from tfxclass.types import Config

#: The heads that are compared, exact first.
NAMES = ("full", "uniform", "auto", "forest", "lsh")
_CALLS = {
    "full": "FullSoftmax({num_classes:_})",
    "uniform": 'SampledSoftmax({num_classes:_}, {num_sampled:_}, "auto")',
    "auto": 'SampledSoftmax({num_classes:_}, {num_sampled:_}, "auto")',
    "forest": "SelectiveSoftmax({num_classes:_}, {num_sampled:_})",
    "lsh": "LSHSoftmax({num_classes:_}, {num_sampled:_})",
}


@dataclasses.dataclass(frozen=True)
class Choice:
    """A head that was tried.

    Attributes:
        name: str, `"full"`, `"uniform"`, `"forest"` or `"lsh"`.
        step_ms: float, median time of a training step of the whole model.
        first_step_s: float, of the first one, which builds an index.
        memory: `tfxclass.Estimate`, of the head.
    """

    name: str
    step_ms: float
    first_step_s: float
    memory: Estimate


@dataclasses.dataclass(frozen=True)
class Advice:
    """What `tfxclass.advise` found. As a string: the recommendation.

    Attributes:
        choices: tuple of `Choice`.
        trained_steps: int, steps of uniform draws before `v` was measured.
        k_eff: float, geometric mean over rows: of how many classes the mass of
            the negatives is, (sum p)^2 / sum p^2.
        v: float, mean over rows: the relative variance of uniform's estimate
            of that mass, num_classes / (negatives k_eff).
        noise: float, mean over rows of v (1 - p_y): it counts as far as a row
            does not know its labels.
        constant: float, what the noise must be above, times the ratio of the
            costs of two steps, for neighbours to pay.
        num_classes, num_sampled, batch: ints.
        config: dict, the arguments of a head that the model's had.
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

    def time_to_learn(self, name: str) -> float:
        """A step's time, in ms, as if it had no noise.

        Uniform draws pay for theirs: `noise / constant` times as long, where
        that is more than 1.
        """
        (choice,) = [each for each in self.choices if each.name == name]
        noise = self.noise / self.constant if name == "uniform" else 1.0
        return choice.step_ms * max(noise, 1.0)

    @property
    def recommended(self) -> str:
        """The name of the choice that learns most in a given time."""
        return min((c.name for c in self.choices), key=self.time_to_learn)

    def head(self) -> keras.layers.Layer:
        """A new head as recommended; `"uniform"` with `sampler="auto"`."""
        options = {} if self.recommended == "full" else self._sampled()
        return new_head(self.recommended, {**self.config, **options})

    def _sampled(self):
        sampled = {"num_sampled": self.num_sampled}
        if self.recommended in ("uniform", "auto"):
            sampled["sampler"] = "auto"
        return sampled

    @property
    def reason(self) -> str:
        """One sentence."""
        name, ms = self.recommended, self.time_to_learn
        if name == "full":
            return (
                f"The exact softmax, {ms('full'):.3g} ms a step, is no dearer "
                f"than uniform draws with their noise, {ms('uniform'):.3g} ms."
            )
        if name == "uniform":
            return (
                f"The noise of uniform draws, {self.noise:.3g}, is too little "
                "for neighbours to pay; should it grow, the head takes some."
            )
        return (
            f"The noise of uniform draws, {self.noise:.3g}, is worth "
            f"{ms('uniform'):.3g} ms a step, one of {name} takes "
            f"{ms(name):.3g}."
        )

    def __str__(self):
        sizes = {
            "num_classes": self.num_classes,
            "num_sampled": self.num_sampled,
        }
        lines = [
            f"tfxclass.layers.{_CALLS[self.recommended].format(**sizes)}",
            self.reason,
            f"{self.num_classes:,} classes, batch {self.batch}; after "
            f"{self.trained_steps:,} steps of uniform draws: k_eff "
            f"{self.k_eff:.3g}, v {self.v:.3g}, noise {self.noise:.3g} "
            f"(neighbours pay above {self.constant:g} times the ratio of the "
            "costs).",
            f"{'':8} {'ms a step':>10} {'first, s':>10} {'memory, MB':>12}",
        ]
        for choice in self.choices:
            memory = choice.memory.total_bytes / 1e6
            lines.append(
                f"{choice.name:8} {choice.step_ms:10.3g} "
                f"{choice.first_step_s:10.3g} {memory:12,.1f}"
            )
        return "\n".join(lines)


def new_head(name: str, config: Config) -> keras.layers.Layer:
    """A head of `NAMES` with the arguments of `config`."""
    kinds = {
        "full": layers.FullSoftmax,
        "uniform": layers.SampledSoftmax,
        "auto": layers.SampledSoftmax,
        "forest": layers.SelectiveSoftmax,
        "lsh": layers.LSHSoftmax,
    }
    if name == "auto":
        config = {**config, "sampler": "auto"}
    return kinds[name].from_config(config)
