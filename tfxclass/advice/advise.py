"""`tfxclass.advise`: a minute with the user's own model and data."""

import contextlib
import dataclasses
import math
from typing import Any

import keras
import tensorflow as tf

from tfxclass import progress
from tfxclass.advice.batches import Split
from tfxclass.advice.batches import split
from tfxclass.advice.budget import Budget
from tfxclass.advice.head_times import HeadTimes
from tfxclass.advice.head_times import Tell
from tfxclass.advice.rates import RateSearch
from tfxclass.advice.rates import rates_around
from tfxclass.advice.report import DEFAULT
from tfxclass.advice.report import Advice
from tfxclass.advice.report import rate_text
from tfxclass.advice.runner import Runner
from tfxclass.advice.trial import Trial
from tfxclass.checks import check_positive_int
from tfxclass.samplers.auto import PAYS_ABOVE


def advise(
    model: keras.Model,
    data: Any,
    batch_size: int = 256,
    num_sampled: int | None = None,
    seconds: float = 60.0,
    verbose: int = 1,
) -> Advice:
    """Recommends a head, an optimizer and a learning rate for a model.

    Use it before a long training. `advise` works on a copy of the model and
    tries what it recommends on your data. The model itself stays as it is.
    Three steps follow each other:

    1. The copy is trained with uniform samples. The softmax of a few examples
       is then computed over all classes, which tells how noisy uniform samples
       are.
    2. Training steps of each head are timed.
    3. The recommended head is trained from the model's weights with several
       learning rates, under the model's optimizer and under `HeadAdam`.
       Held-out examples judge them by their loss over all classes.

    The noise grows as a model learns: the advice for a trained model is about
    the model as it is, and more time gives better advice. The learning rates
    are compared as constants over short trainings. A schedule that ends low
    often allows a larger one.

    Args:
        model: a built Sequential or functional model that ends in a
            `FullSoftmax`, `SampledSoftmax`, `SelectiveSoftmax` or `LSHSoftmax`.
            If it is compiled, its optimizer is tried, too.
        data: `(x, y)`, arrays (`x` may be a structure of them) as for
            `model.fit`, or a `tf.data.Dataset` of such batches. A tenth of the
            examples, and at most 512, is held out of training.
        batch_size: int, number of examples in a training batch. A dataset has
            its own. Defaults to 256.
        num_sampled: int, number of classes in a training step of a sampled
            head. By default the head's own number, or 1 % of the classes and at
            least twice the labels of a batch.
        seconds: float > 0, time limit. What there is no time for is left out,
            and the advice says so. At least one training step and the softmax
            of a few examples are computed. Defaults to 60.
        verbose: 0 or 1, whether the advice is printed. Defaults to 1.

    Returns:
        An `Advice`. `head()` and `optimizer()` make what is recommended,
        `learning_rate` and `rates` are the numbers, and `str(advice)` is the
        text.

    Raises:
        ValueError: if the model is of another kind, there are no data, numbers
            are out of range, or a training loss is not finite.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(500)
    model = keras.Sequential([keras.Input([16]), head])
    model.compile(tfxclass.optimizers.LazyAdam(), loss=head.loss)
    x = np.random.default_rng(0).normal(size=[1024, 16]).astype("float32")
    y = np.arange(1024) % 500
    advice = tfxclass.advise(model, (x, y), seconds=2, verbose=0)
    head, optimizer = advice.head(), advice.optimizer()
    ```
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
    times = HeadTimes(trial)
    advice = times.run(advice, x, y, tell)
    del trial.uniform
    advice = _with_rates(advice, trial, times.runner, found, tell)
    if verbose:
        print(advice)
    return advice


def _with_rates(
    advice: Advice, trial: Trial, runner: Runner, data: Split, tell: Tell
) -> Advice:
    """The advice with the best optimizer and learning rate."""
    runners = {trial.own: runner}
    if trial.own != DEFAULT:
        # Building it, its first step, and at least as much for training.
        if trial.time.left() > 3 * (runner.seconds + trial.first_step):
            with tell(f"Making a model with {DEFAULT}"):
                other = trial.runner(advice.recommended, DEFAULT)
                other.trace(*next(data.batches()))
            runners = {DEFAULT: other, **runners}
        else:
            trial.notes.append(
                f"{DEFAULT} was not tried: this needs more `seconds`."
            )
    step = advice.step_ms(advice.recommended) / 1e3
    search = RateSearch(runners, data, step, trial.time, tell)
    own = {trial.own: rates_around(trial.rate)}
    search.run({name: own.get(name) or rates_around(1e-3) for name in runners})
    notes = [*trial.notes, *_notes_of(search, trial.rate, data)]
    return dataclasses.replace(
        advice,
        rates=tuple(search.trials),
        best=search.best,
        held_out_rows=search.held_out_rows,
        notes=tuple(dict.fromkeys(notes)),
    )


def _notes_of(search, rate, data):
    """Sentences about what the search could not do."""
    trials = search.trials
    if len(trials) < 2:
        yield (
            f"Learning rate {rate_text(rate)} was not compared with others: "
            "this needs more `seconds`."
        )
        return
    longest = max(trial.steps for trial in trials)
    if search.best is None and not all(t.diverged for t in trials):
        yield (
            f"No learning rate lowered the held-out loss within {longest:,} "
            f"steps, so that {rate_text(rate)} is kept: more `seconds` tell "
            "more."
        )
    elif search.best is None:
        yield (
            "Training diverged at every rate that was tried. Check that the "
            "features are finite and of moderate size."
        )
    elif search.was_cut:
        yield "There was no time for all rates: more `seconds` try more."
    if longest < data.steps < math.inf:
        yield (
            f"The rates were compared over {longest:,} steps, which are less "
            "than a pass over the data: more `seconds` compare them longer."
        )
    if not search.held_out_rows:
        yield (
            "The data has too few rows to hold some out, so that training "
            "rows judged the rates."
        )
