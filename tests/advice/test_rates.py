"""Learning rates that `advise` tries, and the time that it takes."""

import math
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.advice.clocks import SlowMachine
from tests.advice.clocks import tick
from tests.advice.test_advice import BATCH
from tests.advice.test_advice import CLASSES
from tests.advice.test_advice import DIM
from tests.advice.test_advice import advice_of
from tests.advice.test_advice import data
from tests.advice.test_advice import model_with
from tests.support.cases import quick
from tfxclass import layers
from tfxclass import optimizers
from tfxclass.advice import head_times
from tfxclass.advice.batches import split
from tfxclass.advice.rates import plan
from tfxclass.advice.rates import rates_around
from tfxclass.advice.report import RateTrial
from tfxclass.advice.report import rate_text
from tfxclass.advice.runner import Runner
from tfxclass.advice.runner import at_rate
from tfxclass.advice.runner import rate_of


@pytest.fixture
def ticking(monkeypatch):
    """Nothing depends on the machine's speed: 60 s are 600 looks.

    No head but the first one is timed, which the other file tests.
    """
    tick(monkeypatch, 0.1)
    monkeypatch.setattr(head_times, "_MEASURED", 0.0)


def learnable(rows=200):
    """Classes that a linear model tells apart."""
    random = np.random.default_rng(0)
    centers = random.normal(size=(CLASSES, DIM))
    y = random.integers(0, CLASSES, rows)
    x = centers[y] + 0.1 * random.normal(size=(rows, DIM))
    return x.astype(np.float32), y


def advise(model, given, seconds=60, **options):
    options = {"batch_size": BATCH, "verbose": 0, **options}
    return tfxclass.advise(model, given, seconds=seconds, **options)


def made(optimizer=None, **options):
    keras.utils.set_random_seed(0)
    head = layers.SampledSoftmax(CLASSES, 60, **options)
    return model_with(head, optimizer)


def tried(advice, optimizer):
    return {t.rate: t for t in advice.rates if t.optimizer == optimizer}


def test_a_model_without_an_optimizer_tries_the_default(ticking):
    advice = advise(made(), learnable())
    assert {t.optimizer for t in advice.rates} == {"HeadAdam"}
    assert {3e-4, 1e-3, 3e-3, 1e-2} <= set(tried(advice, "HeadAdam"))
    optimizer = advice.optimizer()
    assert type(optimizer) is optimizers.HeadAdam
    np.testing.assert_allclose(optimizer.learning_rate, advice.learning_rate)
    assert advice.best in advice.rates and not advice.best.diverged
    assert advice.held_out_rows == 20


def test_the_best_of_two_optimizers_is_named(ticking):
    model = made(optimizers.LazyAdam(1e-3, epsilon=1e-6))
    advice = advise(model, learnable())
    assert {t.optimizer for t in advice.rates} == {"LazyAdam", "HeadAdam"}
    best = min(
        (t for t in advice.rates if t.steps == advice.best.steps),
        key=lambda t: t.loss,
    )
    assert best == advice.best
    assert advice.optimizer_name == best.optimizer
    assert advice.learning_rate == best.rate
    text = str(advice)
    assert f"with {best.optimizer}({rate_text(best.rate)})." in text
    (other,) = {"LazyAdam", "HeadAdam"} - {best.optimizer}
    assert f"{best.optimizer} has a lower loss than {other} at" in text


def test_the_same_number_of_steps_for_each(ticking):
    advice = advise(made(), learnable())
    steps = sorted({t.steps for t in advice.rates})
    assert len(steps) == 2 and steps[1] >= 1.5 * steps[0]
    assert sum(t.steps == steps[1] for t in advice.rates) == 2


def test_a_rate_that_diverges_is_named(ticking):
    """SGD from a large rate: those above it have a loss that is NaN."""
    x, y = learnable()
    model = made(keras.optimizers.SGD(30.0), use_bias=True)
    advice = advise(model, (100 * x, y))
    found = tried(advice, "SGD")
    assert any(t.diverged for t in found.values())
    assert not advice.best.diverged
    text = str(advice)
    if advice.optimizer_name == "SGD":
        assert "diverged" in text.split("head  ")[0]
    else:
        assert "diverged" in text


def test_features_that_are_not_finite(ticking):
    x, y = learnable()
    with pytest.raises(ValueError, match="Fix: a lower learning rate"):
        advise(made(), (np.full_like(x, np.nan), y))


def test_a_rate_that_diverges_at_once_is_replaced(ticking, monkeypatch):
    step = Runner.step

    def diverging(runner, x, y):
        loss = step(runner, x, y)
        rate = float(runner.model.optimizer.learning_rate)
        return math.nan if rate > 4e-3 else loss

    monkeypatch.setattr(Runner, "step", diverging)
    advice = advise(made(optimizers.HeadAdam(1e-2)), learnable())
    text = str(advice)
    assert "Training at your learning rate 1e-2 diverged." in text
    assert tried(advice, "HeadAdam")[1e-2].diverged
    assert "Learning rate 3e-3: 1e-2 diverged" in text or (
        advice.learning_rate < 3e-3 and ": 1e-2 diverged" in text
    )


def test_weights_at_the_start_are_those_of_the_model(ticking):
    """At a rate near zero, each trial has the loss of the model as it is."""
    x, y = learnable()
    model = made(keras.optimizers.SGD(1e-12))
    expected = np.concatenate(
        [
            model.layers[-1].compute_loss(model.layers[0](a), b, False)
            for a, b in split((x, y), BATCH).held_out
        ]
    )
    found = tried(advise(model, (x, y)), "SGD")
    assert found
    for trial in found.values():
        np.testing.assert_allclose(trial.loss, expected.mean(), rtol=1e-4)


@pytest.mark.parametrize(
    "times",
    quick(
        [(0.01, 60), (3, 10), (0.002, 2), (0.5, 60), (5, 60), (1, 20)],
        [(0.01, 60), (3, 10), (0.002, 2)],
    ),
)
@pytest.mark.parametrize("optimizer", [None, "own"])
def test_it_keeps_to_its_time(monkeypatch, times, optimizer):
    """However slow a step is; making each model takes part of it, too."""
    step, seconds = times
    own = optimizers.LazyAdam(1e-3) if optimizer else None
    model = made(own)
    machine = SlowMachine(monkeypatch, step, made=0.05 * seconds)
    advice = advise(model, learnable(), seconds)
    assert machine.now <= 1.2 * seconds
    text = str(advice)
    if not advice.rates:
        assert "was not compared with others" in text
        assert advice.learning_rate == 1e-3
    assert advice.choices and advice.trained_steps >= 1
    type(advice.optimizer()).from_config(advice.optimizer().get_config())


def test_a_slow_check_leaves_out_rows_or_rates(monkeypatch):
    machine = SlowMachine(monkeypatch, 0.01, made=1.0, check=2.0)
    advise(made(), learnable(2000), 60)
    assert machine.now <= 72


def test_two_seconds_of_this_machine():
    """The bound is generous: the machine may do other things."""
    advise(made(), learnable(), 2)
    begin = time.monotonic()
    advice = advise(made(), learnable(), 2)
    assert time.monotonic() - begin < 8
    assert advice.choices


class TestData:
    def test_fewer_rows_than_a_batch(self, ticking):
        x, y = data(5)
        advice = advise(made(), (x, y))
        assert advice.batch == 5 and advice.held_out_rows == 0
        assert "too few rows" in str(advice) and "training rows" in str(advice)

    def test_many_labels(self, ticking):
        x, y = learnable()
        several = np.stack([y, (y + 7) % CLASSES, np.full_like(y, -1)], axis=1)
        several[:3] = -1
        advice = advise(made(), (x, several))
        assert advice.best is not None and math.isfinite(advice.best.loss)

    def test_a_dataset(self, ticking):
        given = tf.data.Dataset.from_tensor_slices(learnable()).batch(10)
        advice = advise(made(), given)
        assert advice.batch == 10 and advice.held_out_rows == 20
        assert advice.best is not None

    def test_a_dataset_of_one_batch(self, ticking):
        given = tf.data.Dataset.from_tensors(learnable(30))
        advice = advise(made(), given)
        assert advice.batch == 30 and advice.held_out_rows == 0

    def test_sequences_and_structures(self, ticking):
        x, y = learnable()
        inputs = {
            "a": keras.Input([5, DIM], name="a"),
            "b": keras.Input([5, DIM], name="b"),
        }
        hidden = keras.layers.Dense(DIM)(inputs["a"] + inputs["b"])
        head = layers.SampledSoftmax(CLASSES, 100)
        model = keras.Model(inputs, head(hidden))
        sequences = x.reshape([40, 5, DIM])
        given = {"a": sequences, "b": 0.1 * sequences}
        advice = advise(model, (given, y.reshape([40, 5])))
        assert advice.best is not None and advice.held_out_rows == 4

    def test_held_out_rows_are_in_no_batch(self):
        rows = np.arange(100)
        found = split((rows, rows), 16)
        held_out = np.concatenate([y for _, y in found.held_out])
        assert len(held_out) == found.rows == 10
        batches = found.batches()
        seen = np.concatenate([next(batches)[1] for _ in range(50)])
        assert set(seen) == set(rows) - set(held_out)
        again = found.batches()
        np.testing.assert_array_equal(next(again)[1], seen[:16])

    def test_first_batches_of_a_dataset_are_held_out(self):
        rows = np.arange(100)
        dataset = tf.data.Dataset.from_tensor_slices((rows, rows)).batch(5)
        found = split(dataset, 99)
        held_out = np.concatenate([y for _, y in found.held_out])
        np.testing.assert_array_equal(held_out, np.arange(10))
        batches = found.batches()
        seen = np.concatenate([next(batches)[1] for _ in range(40)])
        assert set(seen) == set(range(10, 100))

    def test_at_most_512_rows_are_held_out(self):
        rows = np.arange(20_000)
        assert split((rows, rows), 300).rows == 512
        dataset = tf.data.Dataset.from_tensor_slices((rows, rows)).batch(1000)
        found = split(dataset, 99)
        assert sum(len(y) for _, y in found.held_out) == found.rows == 512


class TestOptimizers:
    def test_a_schedule_is_tried_as_constants(self, ticking):
        schedule = keras.optimizers.schedules.CosineDecay(3e-3, 100)
        advice = advise(made(keras.optimizers.Adam(schedule)), learnable())
        assert 3e-3 in tried(advice, "Adam")
        assert "without the schedule" in str(advice)
        assert isinstance(float(advice.optimizer().learning_rate), float)

    def test_multi_optimizer(self, ticking):
        model = made()
        optimizer = optimizers.MultiOptimizer(
            [
                (keras.optimizers.SGD(0.1), model.layers[0]),
                (optimizers.LazyAdam(1e-2), model.layers[1]),
            ]
        )
        model.compile(optimizer, loss=model.layers[1].loss)
        advice = advise(model, learnable())
        assert set(tried(advice, "MultiOptimizer")) >= {0.1}

    def test_one_that_cannot_be_copied(self, ticking):
        class Mine(keras.optimizers.SGD):
            def get_config(self):
                raise NotImplementedError

        advice = advise(made(Mine(0.1)), learnable())
        assert {t.optimizer for t in advice.rates} == {"HeadAdam"}
        text = str(advice)
        assert "HeadAdam was tried in place of the model's Mine" in text

    def test_at_rate_keeps_the_rest(self):
        given = keras.optimizers.AdamW(1e-3, weight_decay=0.1, clipnorm=2.0)
        wrapped = keras.optimizers.LossScaleOptimizer(given)
        for each in (given, wrapped):
            other = at_rate(keras.optimizers.serialize(each), 0.5)
            assert rate_of(other) == 0.5
        other = other.inner_optimizer
        assert (other.weight_decay, other.clipnorm) == (0.1, 2.0)

    def test_rates_around(self):
        standard = [1e-3, 3e-3, 3e-4, 1e-2]
        assert rates_around(0.0) == standard
        assert rates_around(math.nan) == standard
        assert rates_around(1e-3) == standard
        assert rates_around(2e-3) == [2e-3, *standard]
        np.testing.assert_allclose(rates_around(0.1), [0.1, 0.3, 0.03, 1.0])
        np.testing.assert_allclose(rates_around(2e-5), [2e-5, 6e-5, 6e-6, 2e-4])


def test_plans_fit_and_degrade():
    for step in (1e-3, 1e-2, 0.1, 1.0, 10.0):
        for count in (2, 4, 8):
            number, steps = plan(count, step, 0.1, 30.0, math.inf)
            finalists = 2 if number > 2 else 0
            spent = number * (steps * step + 0.1)
            spent += finalists * (3 * steps * step + 0.1)
            assert spent <= 30.0
            assert (number, steps) == (0, 0) or (number > 1 and steps >= 10)
    assert plan(8, 1e-3, 0.1, 30.0, math.inf).number == 8
    assert plan(8, 0.03, 0.1, 30.0, math.inf).number == 4
    assert plan(8, 1.0, 0.1, 30.0, math.inf).number == 2
    assert plan(8, 1e-3, 0.1, 30.0, 60).steps == 20


class TestSentences:
    def of(self, *trials, noise=2.3, **step_ms):
        trials = tuple(RateTrial(*t) for t in trials)
        step_ms = step_ms or {"uniform": 100.0, "auto": 136.0, "forest": 172.0}
        best = min((t for t in trials if not t.diverged), key=lambda t: t.loss)
        return str(advice_of(noise, trials, best, **step_ms))

    def test_as_in_the_docs(self):
        text = self.of(
            ("HeadAdam", 1e-3, 7.05, False, 100),
            ("HeadAdam", 3e-3, 6.91, False, 100),
            ("HeadAdam", 1e-2, math.nan, True, 100),
            ("LazyAdam", 1e-3, 8.0, False, 100),
        )
        assert text.splitlines()[:5] == [
            "Recommended: SampledSoftmax(300, 40) with HeadAdam(3e-3).",
            "Uniform sampling is too noisy here (2.3; below 0.5 is fine).",
            "Learning rate 3e-3: 1e-2 diverged, and 1e-3 has a higher loss on "
            "6 held-out rows (7.05 instead of 6.91).",
            "HeadAdam has a lower loss than LazyAdam at its best rate of "
            "those tried, 1e-3 (6.91 instead of 8 after 100 steps).",
            "Next best: SelectiveSoftmax(300, 40) (172 ms a step instead of "
            "136).",
        ]

    def test_little_noise(self):
        text = self.of(("LazyAdam", 0.1, 7.0, False, 9), noise=0.04)
        assert "precise enough here (0.04; below 0.5 is fine)." in text
        assert "with LazyAdam(0.1)." in text and "Learning rate" not in text

    def test_another_optimizer_diverged(self):
        text = self.of(
            ("HeadAdam", 1e-3, 7.0, False, 9),
            ("SGD", 1.0, math.nan, True, 9),
        )
        assert "HeadAdam learns, and SGD diverged." in text

    def test_rates_as_one_types_them(self):
        rates = [3e-4, 1e-3, 2.5e-3, 1e-2, 0.1, 1.0, 0.0, 30.0]
        assert list(map(rate_text, rates)) == [
            "3e-4", "1e-3", "2.5e-3", "1e-2", "0.1", "1", "0", "30"
        ]  # fmt: skip


def test_labels_that_cannot_be_learned(ticking):
    """Held-out rows of other classes: no rate lowers their loss."""
    x, y = data(200)
    advice = advise(made(optimizers.LazyAdam(1e-3)), (x, y))
    text = str(advice)
    if advice.best is None:
        assert advice.learning_rate == 1e-3
        assert advice.optimizer_name == "LazyAdam"
        assert "No learning rate lowered" in text or "diverged at" in text
    else:
        assert advice.best.loss < math.log(CLASSES) + 0.5


def test_every_rate_diverges(ticking, monkeypatch):
    monkeypatch.setattr(Runner, "held_out_loss", lambda self, _: math.nan)
    advice = advise(made(), learnable())
    assert advice.best is None and advice.learning_rate == 1e-3
    assert all(trial.diverged for trial in advice.rates)
    assert "Training diverged at every rate" in str(advice)
    assert type(advice.optimizer()) is optimizers.HeadAdam
