"""`tfxclass.advise`: trains the user's model by a few recipes, and compares."""

import dataclasses
import math
import operator
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass import layers
from tfxclass.checks import check_positive
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.data.batches import Batches
from tfxclass.data.batches import labelled_arrays
from tfxclass.data.batches import without_autotune
from tfxclass.inference.graph import encoder_of
from tfxclass.optimizers import HeadAdam
from tfxclass.optimizers import MultiOptimizer
from tfxclass.types import Config

# HeadAdam trains each head at the first rate, and the best head at the others.
_RATES = (1e-3, 3e-3, 1e-2, 3e-4)
_HEADS = ("SampledSoftmax", "FullSoftmax")
_OWN_HEADS = (*_HEADS, "SelectiveSoftmax", "LSHSoftmax")
# Fractions of the time: for which a recipe trains, without preparing it, and at
# which heads and rates are done. The finalists get what is left.
_SHARE, _HEADS_UNTIL, _RATES_UNTIL = 0.05, 0.5, 0.75
_MAX_HELD_OUT, _HELD_OUT = 512, 10
# The first steps trace the model and build an index, so they are not timed.
_UNTIMED = 2
# What a head hands to the others.
_KEPT = (
    "num_classes",
    "similarity",
    "use_bias",
    "activation",
    "kernel_initializer",
    "seed",
    "loss_options",
    "kernel_dtype",
)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A recipe, and what training by it gave.

    Attributes:
        head: str, the class of the head.
        rate: float, the learning rate of `HeadAdam`, or None for the model's
            own optimizer.
        loss: float, the held-out loss over all classes, or infinity if training
            diverged.
        steps: int, number of training steps.
        step_ms: float, mean time of a training step, in ms.
    """

    head: str
    rate: float | None
    loss: float
    steps: int
    step_ms: float


@dataclasses.dataclass(frozen=True)
class Advice:
    """The result of `tfxclass.advise`. `print` shows it with code to paste.

    Attributes:
        trials: tuple of `Trial`, what was tried. The finalists come last, and
            have had more time.
        best: `Trial`, the recommended one.
        start_loss: float, the held-out loss before training.
        config: dict, the arguments of the model's head that a new head gets.
        own_optimizer: dict or None, configuration of the model's optimizer.
        notes: tuple of str, sentences about what was not tried.
    """

    trials: tuple[Trial, ...]
    best: Trial
    start_loss: float
    config: Config
    own_optimizer: Config | None
    notes: tuple[str, ...] = ()

    def head(self) -> keras.layers.Layer:
        """Makes the recommended head, with the arguments of the model's."""
        return _new_head(self.best.head, self.config)

    def optimizer(self) -> keras.optimizers.Optimizer:
        """Makes the recommended optimizer."""
        return _new_optimizer(self.best.rate, self.own_optimizer)

    @property
    def code(self) -> str:
        """Lines that make the recommended head and optimizer."""
        optimizer = f"tfxclass.optimizers.{_rate_text(self.best.rate)}"
        if self.best.rate is None:
            optimizer = "advice.optimizer()  # as compiled"
        head = f"tfxclass.layers.{_call(self.best.head, self.config)}"
        return f"head = {head}\noptimizer = {optimizer}"

    def __str__(self):
        found = "Recommended" if self.trials[1:] else "Nothing was compared"
        lines = [
            f"{found} (held-out loss {self.best.loss:.4g}, "
            f"{self.start_loss:.4g} before training):",
            self.code, *self.notes, "",
            f"{'head':32} {'optimizer':15} ms a step   steps held-out loss",
        ]  # fmt: skip
        for t in self.trials:
            loss = "diverged" if math.isinf(t.loss) else f"{t.loss:.4g}"
            lines.append(
                f"{_call(t.head, self.config):32} {_rate_text(t.rate):15} "
                f"{t.step_ms:>9.3g} {t.steps:>7,} {loss:>13}"
            )
        return "\n".join(lines)


def advise(
    model: keras.Model,
    data: Any,
    batch_size: int = 256,
    seconds: float = 60.0,
    verbose: int = 1,
) -> Advice:
    """Recommends a head, an optimizer and a learning rate for a model.

    Use it before a long training. `advise` trains a copy of the model by a few
    recipes, for equally many seconds each, from the model's weights. Held-out
    examples judge them by their loss over all classes.

    The model's own head and optimizer come first, then each head with
    `HeadAdam(1e-3)`, and then the best head at other constant rates. Three
    recipes are trained again, for longer: the best one, and the best with
    another rate and with another head.

    Args:
        model: a built Sequential or functional model that ends in a
            `FullSoftmax`, `SampledSoftmax`, `SelectiveSoftmax` or `LSHSoftmax`.
            If it is compiled, its optimizer is tried, too.
        data: arrays `(x, y)` or `(x, y, sample_weight)` as for `model.fit`, or
            a `tf.data.Dataset` of such batches, the same ones in each pass. A
            tenth of the examples, and at most 512, is held out: of a dataset,
            the first batches.
        batch_size: int, number of examples in a batch of arrays. Defaults to
            256.
        seconds: float > 0, time limit. Recipes for which there is no time are
            left out, and the advice names them. One recipe is always tried.
            Defaults to 60.
        verbose: 0 or 1, whether the advice is printed. Defaults to 1.

    Returns:
        An `Advice`. `head()` and `optimizer()` make what is recommended.

    Raises:
        ValueError: if the model is of another kind, there are too few data,
            numbers are out of range, or the loss of every recipe is not finite.

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
    begin = time.monotonic()
    batch_size = check_positive_int("batch_size", batch_size)
    check_positive("seconds", seconds)
    strategy = type(tf.distribute.get_strategy()).__name__
    is_outside = not tf.distribute.has_strategy()
    wanted = "called outside of a strategy's scope"
    check_value("advise", strategy, is_outside, wanted)
    encoder, head = encoder_of(model)
    train, held_out = _split(data, batch_size)
    config = _shared_config(head)
    own_optimizer, notes = _copied_optimizer(model)
    copy = keras.models.clone_model(encoder)
    trials: list[Trial] = []
    missed: list[str] = []
    start_loss = preparation = 0.0

    def train_by(name, rate, limit):
        """Trains a copy for `limit` seconds, from the model's weights."""
        nonlocal start_loss, preparation
        start = time.monotonic()
        new = _new_head(name, config)
        trained = keras.Model(copy.input, new(copy.output))
        trained.compile(_new_optimizer(rate, own_optimizer), loss=new.loss)
        copy.set_weights(encoder.get_weights())
        new.kernel.assign(head.kernel)
        if new.bias is not None:
            new.bias.assign(head.bias)
        if not trials:
            start_loss = trained.evaluate(held_out, verbose=0)
        timer = _Timer(limit)
        options = {"steps_per_epoch": 2**31, "callbacks": [timer]}
        trained.fit(train, shuffle=False, verbose=0, **options)
        loss = math.inf
        if timer.is_finite:
            found = trained.evaluate(held_out, verbose=0)
            loss = found if math.isfinite(found) else loss
        preparation = time.monotonic() - start - timer.seconds
        step_ms = 1e3 * timer.seconds / max(timer.steps - _UNTIMED, 1)
        trials.append(Trial(name, rate, loss, timer.steps, step_ms))

    def race(recipes, limit, end):
        """Tries the recipes for which there is time, and at least one."""
        for name, rate in recipes:
            if trials and time.monotonic() + preparation + limit > end:
                optimizer = _rate_text(rate)
                missed.append(f"{_call(name, config)} with {optimizer}")
            else:
                train_by(name, rate, limit)

    share, by_loss = _SHARE * seconds, operator.attrgetter("loss")
    first = (type(head).__name__, None if own_optimizer else _RATES[0])
    heads = dict.fromkeys([first, *((name, _RATES[0]) for name in _HEADS)])
    race(heads, share, begin + _HEADS_UNTIL * seconds)
    best = min(trials, key=by_loss)
    rates = [(best.head, x) for x in _RATES if (best.head, x) not in heads]
    race(rates, share, begin + _RATES_UNTIL * seconds)
    ranked = sorted(trials, key=by_loss)
    finalists = _finalists(ranked)
    left = 0.9 * (begin + seconds - time.monotonic()) / len(finalists)
    left -= preparation
    if left > share:
        race(finalists, left, math.inf)
    final = trials[len(ranked) :]
    # A finalist without a rival has only had more time.
    best = min(final if len(final) > 1 else ranked, key=by_loss)
    if math.isinf(best.loss):
        raise ValueError(
            "Training `model` on `data` must give a finite loss. Received: "
            f"{best.loss} by each of {len(trials)} recipes. Fix: a lower "
            "learning rate, or look for NaN and infinity in `data`"
        )
    more = "more `seconds` tell more."
    if best.loss >= start_loss:
        notes.append(f"No recipe lowered the held-out loss: {more}")
    if missed:
        notes.append(f"There was no time for {', '.join(missed)}: {more}")
    found = tuple(trials), best, start_loss, config, own_optimizer
    advice = Advice(*found, tuple(notes))
    if verbose:
        print(advice)
    return advice


def _finalists(ranked):
    """The best recipe, and the best with another rate and another head."""
    best = ranked[0]
    others = [t for t in ranked if t.rate != best.rate][:1]
    others += [t for t in ranked if t.head != best.head][:1]
    return dict.fromkeys((t.head, t.rate) for t in [best, *others])


def _shared_config(head):
    """What the model's head hands to the others, a dict of arguments."""
    given, name = head.get_config(), type(head).__name__
    if name not in _OWN_HEADS or given["loss"] != "softmax":
        raise ValueError(
            "`model` must end in a FullSoftmax, SampledSoftmax, "
            'SelectiveSoftmax or LSHSoftmax with loss="softmax", which '
            f"`advise` compares. Received: a {name} with "
            f'loss="{given["loss"]}"'
        )
    shared = {name: given[name] for name in _KEPT}
    return {**shared, "num_sampled": given.get("num_sampled")}


def _copied_optimizer(model):
    """Configuration of the model's optimizer or None, and a list of notes."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return None, []
    try:
        # A MultiOptimizer names layers of this model.
        if isinstance(optimizer, MultiOptimizer):
            raise TypeError
        config = keras.optimizers.serialize(optimizer)
        keras.optimizers.deserialize(config)
    except (NotImplementedError, TypeError, ValueError):
        name = type(optimizer).__name__
        return None, [f"{name} was not tried: it cannot be copied."]
    # The first recipe may be the same.
    first = HeadAdam(_RATES[0], name=optimizer.name)
    is_first = config == keras.optimizers.serialize(first)
    return None if is_first else config, []


class _Timer(keras.callbacks.Callback):
    """Ends `fit` some seconds after its first steps, or at a loss of NaN."""

    def __init__(self, limit):
        super().__init__()
        self.limit, self.steps, self.seconds = limit, 0, 0.0
        self.is_finite = True

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        self.is_finite = math.isfinite(float(logs["loss"]))  # Waits for a GPU.
        now = time.monotonic()
        if self.steps == _UNTIMED:
            self._begin = now
        if self.steps >= _UNTIMED:
            self.seconds = now - self._begin
        is_over = self.steps > _UNTIMED and self.seconds >= self.limit
        self.model.stop_training = is_over or not self.is_finite


def _new_head(name, config):
    if name == "FullSoftmax":
        config = {k: v for k, v in config.items() if k != "num_sampled"}
    return getattr(layers, name).from_config(config)


def _new_optimizer(rate, own):
    if rate is None:
        return keras.optimizers.deserialize(own)
    return HeadAdam(rate)


def _call(name, config):
    """The head as one would type it."""
    arguments = f"{config['num_classes']:_}"
    if name != "FullSoftmax" and config["num_sampled"]:
        arguments += f", {config['num_sampled']:_}"
    return f"{name}({arguments})"


def _rate_text(rate):
    if rate is None:
        return "your optimizer"
    return f"HeadAdam({f'{rate:.0e}'.replace('e-0', 'e-')})"


def _split(data, batch_size):
    """Training batches without an end, and held-out batches."""
    if isinstance(data, tf.data.Dataset):
        number = Batches("data", data, batch_size).count
        data, held_out, rows = without_autotune(data), 0, 0
        # Otherwise rows that are held out in one pass are learned in another.
        starts = [next(iter(data), (0, 0))[1] for _ in range(2)]
        parts = [tf.nest.flatten(x, expand_composites=True) for x in starts]
        is_same = all(map(np.array_equal, *parts))
        is_same &= data.cardinality() != tf.data.INFINITE_CARDINALITY
        fix = "without repeat(), and with reshuffle_each_iteration=False"
        check_value("data", data, is_same, f"the same in each pass: {fix}")
        if number is None:
            number = sum(1 for _ in data.take(_HELD_OUT**2))
        most = max(number // _HELD_OUT, 1)
        for held_out, batch in enumerate(data.take(most), 1):
            rows += len(batch[1])
            if rows >= _MAX_HELD_OUT:
                break
        train = data.skip(held_out)
        has_more = any(True for _ in train.take(1))
        check_value("data", held_out, has_more, "at least two batches")
        return train.repeat(), data.take(held_out)
    if isinstance(data, keras.utils.PyDataset):
        raise ValueError(
            "`data` must be arrays (x, y), or a tf.data.Dataset of batches. "
            f"Received: a {type(data).__name__}, a keras.utils.PyDataset"
        )
    arrays = labelled_arrays("data", data)
    count = len(arrays[1])
    wanted = f"at least {_HELD_OUT} rows"
    check_value("data", count, count >= _HELD_OUT, wanted)
    order = np.random.default_rng(0).permutation(count)
    held_out = min(count // _HELD_OUT, _MAX_HELD_OUT)
    shuffled = keras.tree.map_structure(lambda x: np.asarray(x)[order], arrays)
    rows = without_autotune(tf.data.Dataset.from_tensor_slices(shuffled))
    train = rows.skip(held_out).batch(batch_size)
    return train.repeat(), rows.take(held_out).batch(batch_size)
