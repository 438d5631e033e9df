"""`tfxclass.advise`: a minute with the user's own model and data."""

import contextlib
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass import progress
from tfxclass.advice import budget
from tfxclass.advice.batches import Split
from tfxclass.advice.batches import split
from tfxclass.advice.budget import Budget
from tfxclass.advice.rates import RateSearch
from tfxclass.advice.rates import rates_around
from tfxclass.advice.report import DEFAULT
from tfxclass.advice.report import NAMES
from tfxclass.advice.report import Advice
from tfxclass.advice.report import Choice
from tfxclass.advice.report import listed
from tfxclass.advice.report import new_head
from tfxclass.advice.report import rate_text
from tfxclass.advice.runner import Runner
from tfxclass.advice.runner import State
from tfxclass.advice.runner import at_rate
from tfxclass.advice.runner import class_vectors
from tfxclass.advice.runner import is_scheduled
from tfxclass.advice.runner import rate_of
from tfxclass.checks import check_positive_int
from tfxclass.inference.graph import encoder_of
from tfxclass.inference.graph import inputs_as_given
from tfxclass.layers.full_softmax import FullSoftmax
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.memory import estimate
from tfxclass.optimizers import HeadAdam
from tfxclass.optimizers import MultiOptimizer
from tfxclass.rows.class_rows import ClassRows
from tfxclass.samplers.auto import PAYS_ABOVE
from tfxclass.samplers.effective import effective_classes
from tfxclass.samplers.sample_size import check_num_sampled
from tfxclass.samplers.sample_size import sample_size
from tfxclass.types import Config

# Rows whose softmax is computed in full, and steps whose time is a median.
_PROBED = 64
_TIMED, _LEAST_TIMED = 50, 2
# When training with uniform samples ends, and timing of the heads: fractions
# of the time. The search for a learning rate takes the rest.
_TRAINED, _MEASURED = 0.25, 0.5
# Rough seconds, to leave out what would take too long: of one multiplication
# and addition, and of a number of a class vector in an index.
_PER_PRODUCT = 1e-10
_PER_NUMBER = {"forest": 2e-7, "lsh": 1e-7}
# What a head hands to the others.
_KEPT = (
    "num_classes",
    "similarity",
    "scale",
    "margin",
    "margin_type",
    "use_bias",
    "activation",
    "kernel_initializer",
    "seed",
    "loss_options",
    "kernel_dtype",
)

Tell = Callable[[str], contextlib.AbstractContextManager]


def advise(
    model: keras.Model,
    data: Any,
    batch_size: int = 256,
    num_sampled: int | None = None,
    seconds: float = 60.0,
    verbose: int = 1,
) -> Advice:
    """Recommend a head, an optimizer and a learning rate for a model.

    `advise` works on a copy of the model and tries what it recommends on your
    data. The model itself stays as it is. Three steps follow each other:

    1. The copy is trained with uniform samples. The softmax of a few rows is
       then computed in full, which tells how noisy uniform samples are.
    2. Training steps of each head are timed.
    3. The recommended head is trained from the model's weights with several
       learning rates, under the model's optimizer and under `HeadAdam`. Rows
       that are held out of training judge them by their loss over all classes.

    Use it before a long training. The noise grows as a model learns: the advice
    for a trained model is about the model as it is, and more time gives better
    advice. The learning rates are compared as constants over short trainings;
    a schedule that ends low often allows a larger one.

    Args:
        model: a built Sequential or functional model that ends in a
            `FullSoftmax`, `SampledSoftmax`, `SelectiveSoftmax` or
            `LSHSoftmax`. If it is compiled, its optimizer is tried, too.
        data: `(x, y)`, arrays (`x` may be a structure of them) as for
            `model.fit`; or a `tf.data.Dataset` of such batches. A tenth of the
            rows, and at most 512, is held out of training.
        batch_size: int, rows of a training batch; a dataset has its own.
            Defaults to 256.
        num_sampled: int, classes that a step of a sampled head computes. By
            default the head's own number, or 1 % of the classes and at least
            twice the labels of a batch.
        seconds: float > 0, how long it may take. What there is no time for is
            left out, and the advice says so. At least one training step and
            the softmax of a few rows are computed. Defaults to 60.
        verbose: 0 or 1, whether the advice is printed. Defaults to 1.

    Returns:
        An `Advice`. `head()` and `optimizer()` make what is recommended,
        `learning_rate` and `rates` are the numbers, and `str(advice)` is the
        text.

    Raises:
        ValueError: another kind of model, no data, numbers out of range, or a
            training loss that is not finite.

    Example:

    >>> advice = tfxclass.advise(model, (x, y))
    >>> head, optimizer = advice.head(), advice.optimizer()
    """
    batch_size = check_positive_int("batch_size", batch_size)
    if not 0 < seconds < math.inf:
        raise ValueError(f"`seconds` must be > 0. Received: {seconds}")
    if tf.distribute.has_strategy():
        raise ValueError(
            "`advise` measures one device: call it outside of a strategy's "
            "scope. Received: a "
            f"{type(tf.distribute.get_strategy()).__name__}."
        )
    time = Budget(seconds)
    trial = Trial(model, time)
    found = split(data, batch_size)
    batches = found.batches()
    x, y = next(batches)
    trial.set_num_sampled(num_sampled, y)
    tell = progress.log_if_slow if verbose else contextlib.nullcontext
    with tell("Training with uniform samples"):
        trial.train(found, x, y)
    with tell("Computing the softmax of a few rows"):
        k_eff, v, noise = trial.noise(x, y)
    advice = Advice(
        choices=(),
        trained_steps=trial.steps,
        k_eff=k_eff,
        v=v,
        noise=noise,
        constant=PAYS_ABOVE,
        num_classes=trial.head.num_classes,
        num_sampled=trial.options["num_sampled"],
        batch=int(y.shape[0]),
        config=trial.config,
        own_optimizer=trial.own,
        own_rate=trial.rate,
        optimizers=trial.optimizers,
    )
    advice = trial.time_heads(advice, x, y, tell)
    advice = trial.try_rates(advice, found, tell)
    if verbose:
        print(advice)
    return advice


def _copy_of(encoder):
    """A model with the layers of `encoder`, and weights of its own."""
    try:
        copy = keras.models.clone_model(encoder)
    except (TypeError, NotImplementedError) as e:
        raise ValueError(
            "`advise` trains a copy of the model, made by its configuration. "
            "Fix: give a subclassed model a get_config, and register it with "
            "@keras.saving.register_keras_serializable(). Received: "
            f"{e}"
        ) from e
    copy.set_weights(encoder.get_weights())
    return copy


class Trial:
    """A copy of a model, whose head and optimizer are exchanged.

    Args:
        model: of `advise`.
        time: `Budget`.

    Attributes:
        own: str, class name of the optimizer that the model begins with.
        rate: float, its learning rate.
        optimizers: dict of optimizer configurations by class name.
        steps: int, steps of `train`.
        notes: list of str, what the advice has to say.
    """

    def __init__(self, model: keras.Model, time: Budget) -> None:
        inputs, features, head = encoder_of(model)
        if not isinstance(head, (FullSoftmax, SampledSoftmax)):
            raise ValueError(
                "`model` must end in a FullSoftmax, SampledSoftmax, "
                "SelectiveSoftmax or LSHSoftmax, which `advise` compares. "
                f"Received: a {type(head).__name__}."
            )
        loss = head.get_config()["loss"]
        if loss != "softmax":
            raise ValueError(
                "`advise` compares softmax heads: v is of a sum over all "
                f'classes. Received: a head with loss="{loss}".'
            )
        self.head, self._time = head, time
        self.config: Config = {name: head.get_config()[name] for name in _KEPT}
        encoder = keras.Model(inputs_as_given(model, inputs), features)
        self.encoder = _copy_of(encoder)
        rows = [w.numpy() for w in class_vectors(head)]
        self.start = self.trained = State(encoder.get_weights(), rows)
        self.options: Config = {}
        self.notes: list[str] = []
        self.steps = 0
        optimizer = getattr(model, "optimizer", None)
        self._take_optimizer(optimizer, model.trainable_variables)

    def _take_optimizer(self, optimizer, variables):
        """The model's optimizer, if it can have another rate."""
        self.own, self.rate = DEFAULT, 1e-3
        self.optimizer_of_head = HeadAdam(self.rate)
        default = keras.optimizers.serialize(self.optimizer_of_head)
        self.optimizers: Config = {DEFAULT: default}
        if optimizer is None:
            return
        try:
            config = keras.optimizers.serialize(optimizer)
            if isinstance(optimizer, MultiOptimizer) and not optimizer.built:
                config["config"] = optimizer.config_for(variables)
            rate = rate_of(optimizer)
            rate = 1e-3 if math.isnan(rate) else rate
            at_rate(config, rate)
        except (TypeError, ValueError, AttributeError, NotImplementedError):
            self.notes.append(
                f"{DEFAULT} was tried in place of the model's "
                f"{type(optimizer).__name__}, which cannot be copied with "
                "another learning rate."
            )
            return
        if is_scheduled(optimizer):
            self.notes.append(
                "The rates were tried as constants, without the schedule of "
                "your optimizer."
            )
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        self.own, self.rate = type(inner).__name__, rate
        self.optimizers = {self.own: config, **self.optimizers}
        self.optimizers[self.own] = config
        self.optimizer_of_head = inner
        if isinstance(inner, MultiOptimizer):
            # Its groups name this head, not those that are tried.
            self.optimizer_of_head = inner.optimizer_of(self.head)

    def set_num_sampled(self, given: int | None, labels: tf.Tensor) -> int:
        """Sets and returns how many classes a step of sampled heads has."""
        num_classes, num_labels = self.head.num_classes, int(tf.size(labels))
        chosen = check_num_sampled(given, num_classes)
        if chosen is None and isinstance(self.head, SampledSoftmax):
            chosen = self.head.sampler.size_for(num_labels)
        if chosen is None:
            chosen = sample_size(num_classes, num_labels)
        self.options = {"num_sampled": chosen}
        return chosen

    def runner(self, name: str, optimizer: str | None = None) -> Runner:
        """A new head under a new optimizer, at the start.

        Args:
            name: str, one of `NAMES`.
            optimizer: str, one of `optimizers`; the model's own by default.
        """
        options = {} if name == "full" else self.options
        optimizer = optimizer or self.own
        rate = self.rate if optimizer == self.own else 1e-3
        return Runner(
            self.encoder,
            new_head(name, {**self.config, **options}),
            at_rate(self.optimizers[optimizer], rate),
            self.start,
        )

    def train(self, data: Split, x: Any, y: tf.Tensor) -> None:
        """Trains with uniform samples, and times the steps."""
        self._uniform = runner = self.runner("uniform")
        runner.trace(x, y)
        for rate in (self.rate, self.rate / 10):
            loss, seconds = self._trained(runner, rate, data.batches())
            if math.isfinite(loss):
                break
            self.notes.append(
                f"Training at your learning rate {rate_text(self.rate)} "
                "diverged."
            )
        else:
            raise ValueError(
                f"The loss of `model` on `data` was {loss} after {self.steps} "
                "steps. Fix: a lower learning rate, or features that are "
                "finite."
            )
        self.trained = runner.state()
        self._made, self._uniform_times = runner.seconds, seconds

    def _trained(self, runner, rate, batches):
        """`(loss, seconds of each step)` of training until time is over."""
        runner.begin(rate)
        seconds, loss, self.steps = [], 0.0, 0
        while math.isfinite(loss):
            begin = budget.clock()
            loss = runner.step(*next(batches))
            self.steps += 1
            seconds = [*seconds[-_TIMED:], budget.clock() - begin]
            if self.steps == 1:
                self._first = seconds[0]
            # The first step, which prepares much, says little of the others.
            is_enough = self.steps > _LEAST_TIMED
            is_enough |= self._time.left() < 3 * seconds[-1]
            if is_enough and self._time.left(_TRAINED) < seconds[-1]:
                break
        return loss, seconds

    def noise(self, x: Any, y: tf.Tensor) -> tuple[float, float, float]:
        """`(k_eff, v, noise)` of rows of a batch; see `Advice`."""
        head = self._uniform.head
        features = self.encoder(x, training=False)
        self.positions = math.prod(features.shape[:-1])
        targets = head.targets(features, y).ids
        queries = head.queries(features)
        rows = ClassRows(
            head.class_matrix(),
            head.bias,
            normalize=self.config["similarity"] == "cosine",
        )
        found = effective_classes(queries[:_PROBED], targets[:_PROBED], rows)
        k_eff, missed, counts = (each.numpy() for each in found[:3])
        if not counts.any():
            raise ValueError(
                f"`data` must have labels: the first {len(counts)} rows of a "
                "batch have none, or no class that is not one of them."
            )
        labels = np.unique(targets.numpy())
        sampled = self.options["num_sampled"]
        negatives = max(sampled - int((labels >= 0).sum()), 1)
        v = self.head.num_classes / (negatives * k_eff[counts])
        # Where all classes are computed there is no noise.
        v *= sampled < self.head.num_classes
        missed = missed[counts]
        return (
            float(np.exp(np.log(k_eff[counts]).mean())),
            float(v.mean()),
            float((v * missed).mean()),
        )

    def time_heads(
        self, advice: Advice, x: Any, y: tf.Tensor, tell: Tell
    ) -> Advice:
        """Adds the times of as many heads as there is time for."""
        # The first step of a runner is slower than others.
        times = self._uniform_times[1:] or self._uniform_times
        choices = {"uniform": self._choice(self._uniform, "uniform", times)}
        self._runners = {"uniform": self._uniform}
        del self._uniform
        late = []
        for name in ("auto", "full", "lsh", "forest"):
            if self._time.left(_MEASURED) < self._guess(name):
                late.append(name)
                continue
            with tell(f'Taking steps with "{name}"'):
                runner = self.runner(name)
                choices[name] = self._measure(runner, name, x, y)
            self._runners[name] = runner
            advice = _with_choices(advice, choices)
            # The others' class vectors and slots would be kept for nothing.
            self._runners = {
                name: runner
                for name, runner in self._runners.items()
                if name == advice.recommended
            }
        if late:
            kinds = dict.fromkeys(
                type(new_head(name, self._sizes(name))).__name__
                for name in late
                if name != "auto" or "uniform" not in choices
            )
            self._note_late(kinds)
        return _with_choices(advice, choices)

    def _sizes(self, name):
        options = {} if name == "full" else self.options
        return {**self.config, **options}

    def _note_late(self, kinds):
        if kinds:
            verb = "was" if len(kinds) == 1 else "were"
            self.notes.append(
                f"{listed(list(kinds))} {verb} not timed: this needs more "
                "`seconds`."
            )

    def _guess(self, name):
        """Roughly, the seconds that `measure` takes."""
        dim = int(self.head.kernel.shape[1])
        numbers = self.head.num_classes * dim
        steps = 3 * self._uniform_times[-1]
        if name == "full":
            steps = 4 * self.positions * numbers * 3 * _PER_PRODUCT
        index = numbers * _PER_NUMBER.get(name, 0.0)
        return self._made + self._first + steps + index

    def _measure(self, runner, name, x, y):
        """Times steps of a head on one batch, with what was trained."""
        runner.load(self.trained)
        runner.trace(x, y)
        seconds = [_seconds_of(runner, x, y)]
        end = budget.clock() + self._time.left(_MEASURED) / 2
        # The first step, which prepares much, says little of the others.
        while len(seconds) <= _TIMED:
            is_enough = len(seconds) > _LEAST_TIMED and budget.clock() > end
            if is_enough or self._time.left() < 2 * seconds[-1]:
                break
            seconds.append(_seconds_of(runner, x, y))
        return self._choice(runner, name, seconds[1:] or seconds, seconds[0])

    def _choice(self, runner, name, seconds, first=None):
        head = runner.head
        return Choice(
            name=name,
            step_ms=1e3 * float(np.median(seconds)),
            first_step_s=self._first if first is None else first,
            memory=estimate(
                head,
                dim=int(head.kernel.shape[1]),
                batch=self.positions,
                optimizer=self.optimizer_of_head,
            ),
        )

    def try_rates(self, advice: Advice, data: Split, tell: Tell) -> Advice:
        """Adds the best optimizer and learning rate."""
        name = advice.recommended
        step = advice.step_ms(name) / 1e3
        runners = {self.own: self._runners[name]}
        if self.own != DEFAULT:
            # Building it, its first step, and at least as much for training.
            cost = 2 * (runners[self.own].seconds + self._first)
            if self._time.left() > 1.5 * cost:
                with tell(f"Making a model with {DEFAULT}"):
                    runners = {DEFAULT: self.runner(name, DEFAULT), **runners}
                    runners[DEFAULT].trace(*next(data.batches()))
            else:
                self.notes.append(
                    f"{DEFAULT} was not tried: this needs more `seconds`."
                )
        search = RateSearch(runners, data, step, self._time, tell)
        own = {self.own: rates_around(self.rate)}
        search.run({k: own.get(k) or rates_around(1e-3) for k in runners})
        best = search.best
        if not search.trials:
            self.notes.append(
                f"Learning rate {rate_text(self.rate)} was not compared with "
                "others: this needs more `seconds`."
            )
        elif best is None:
            self.notes.append(
                "Training diverged at every rate that was tried. Check that "
                "the features are finite and of moderate size."
            )
        elif search.was_cut:
            self.notes.append(
                "There was no time for all rates: more `seconds` try more."
            )
        longest = max((t.steps for t in search.trials), default=0)
        if 0 < longest < data.steps < math.inf:
            self.notes.append(
                f"The rates were compared over {longest:,} steps, which are "
                "less than a pass over the data: more `seconds` compare them "
                "longer."
            )
        if search.trials and not search.held_out_rows:
            self.notes.append(
                "The data has too few rows to hold some out, so that training "
                "rows judged the rates."
            )
        return dataclasses.replace(
            advice,
            rates=tuple(search.trials),
            best=best,
            held_out_rows=search.held_out_rows,
            notes=tuple(dict.fromkeys(self.notes)),
        )


def _with_choices(advice, choices):
    in_order = tuple(choices[name] for name in NAMES if name in choices)
    return dataclasses.replace(advice, choices=in_order)


def _seconds_of(runner, x, y):
    begin = budget.clock()
    runner.step(x, y)
    return budget.clock() - begin
