"""tfxclass.advise: what it tries, and what it recommends."""

import dataclasses
import importlib
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tfxclass import layers
from tfxclass import optimizers
from tfxclass.advice import Trial

advise_lib = importlib.import_module("tfxclass.advice.advise")

CLASSES, DIM, BATCH = 300, 8, 16


def data(rows=200, seed=0):
    """Classes that a linear model tells apart."""
    random = np.random.default_rng(seed)
    centers = random.normal(size=(CLASSES, DIM))
    y = random.integers(0, CLASSES, rows)
    x = centers[y] + 0.1 * random.normal(size=(rows, DIM))
    return x.astype(np.float32), y


def model_with(head, optimizer=None):
    keras.utils.set_random_seed(0)
    encoder = keras.layers.Dense(DIM, activation="tanh")
    model = keras.Sequential([keras.Input([DIM]), encoder, head])
    if optimizer is not None:
        model.compile(optimizer, loss=head.loss)
    return model


def advise(model, given, seconds=1e-6, **options):
    """By default there is time for one recipe, that of the model."""
    options = {"batch_size": BATCH, "verbose": 0, **options}
    return tfxclass.advise(model, given, seconds=seconds, **options)


@pytest.fixture
def five_steps(monkeypatch):
    """Each recipe is trained for five steps, whatever the machine's speed."""
    now = [0.0]

    def clock():
        now[0] += 1e-3
        return now[0]

    timer = advise_lib._Timer
    own_time = types.SimpleNamespace(monotonic=clock)
    monkeypatch.setattr(advise_lib, "time", own_time)
    monkeypatch.setattr(advise_lib, "_Timer", lambda seconds: timer(3e-3))
    return now


def test_all_heads_and_rates_are_tried(five_steps, monkeypatch):
    monkeypatch.setattr(advise_lib, "_RATES", (1e-3, 3e-3))
    head = layers.SampledSoftmax(CLASSES, 40)
    model = model_with(head, optimizers.LazyAdam(1e-2))
    before = model.get_weights()
    advice = advise(model, data(), seconds=60)
    tried = [(t.head, t.rate) for t in advice.trials]
    sampled, full = "SampledSoftmax", "FullSoftmax"
    assert {*tried[:3]} == {(sampled, None), (sampled, 1e-3), (full, 1e-3)}
    first = sorted(advice.trials[:3], key=lambda trial: trial.loss)[0]
    assert tried[3] == (first.head, 3e-3)
    # The best of all, with another rate, and with another head.
    best, *others = sorted(advice.trials[:4], key=lambda trial: trial.loss)
    finalists = [
        best,
        next(t for t in others if t.rate != best.rate),
        next(t for t in others if t.head != best.head),
    ]
    expected = dict.fromkeys((t.head, t.rate) for t in finalists)
    assert tried[4:] == [*expected]
    assert advice.best == min(advice.trials[4:], key=lambda t: t.loss)
    assert not advice.notes
    # The model itself is as it was.
    for now, then in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert int(model.optimizer.iterations.value) == 0


def test_each_recipe_begins_at_the_models_weights(five_steps):
    """At a rate near zero, the loss stays as it was over all rows held out."""
    x, y = data()
    head = layers.FullSoftmax(CLASSES, use_bias=True)
    model = model_with(head, keras.optimizers.SGD(1e-12))
    head.kernel.assign(np.random.default_rng(2).normal(size=(CLASSES, DIM)))
    head.bias.assign(np.random.default_rng(3).normal(size=CLASSES))
    advice = advise(model, (x, y))
    rows = np.random.default_rng(0).permutation(len(y))[:20]
    expected = model.evaluate(x[rows], y[rows], verbose=0)
    np.testing.assert_allclose(advice.start_loss, expected, rtol=1e-5)
    own = next(t for t in advice.trials if t.rate is None)
    np.testing.assert_allclose(own.loss, expected, rtol=1e-5)


def test_what_is_recommended_can_be_made_and_pasted():
    config = layers.SampledSoftmax(
        CLASSES, 40, similarity=layers.Cosine(scale=9.0)
    ).get_config()
    config = {name: config[name] for name in advise_lib._KEPT}
    config["num_sampled"] = 40
    own = keras.optimizers.serialize(keras.optimizers.SGD(0.5))

    def advice(head, rate, loss=1.0):
        best = Trial(head, rate, loss, 10, 2.5)
        return tfxclass.Advice((best,), best, 3.0, config, own)

    for name in advise_lib._OWN_HEADS:
        kind = getattr(layers, name)
        head = advice(name, 3e-3).head()
        assert type(head) is kind and head.cosine == layers.Cosine(scale=9.0)
        head = eval(advice(name, 3e-3).code.splitlines()[0][len("head = ") :])
        assert type(head) is kind and head.num_classes == CLASSES
    found = advice("SampledSoftmax", 3e-3)
    assert "layers.SampledSoftmax(300, 40)" in found.code
    assert "optimizer = tfxclass.optimizers.HeadAdam(3e-3)" in found.code
    assert type(found.optimizer()) is optimizers.HeadAdam
    np.testing.assert_allclose(found.optimizer().learning_rate, 3e-3)
    found = advice("FullSoftmax", None)
    assert type(found.optimizer()) is keras.optimizers.SGD
    assert found.optimizer().learning_rate == 0.5
    text = str(found)
    assert "Nothing was compared (held-out loss 1, 3 before training)" in text
    several = dataclasses.replace(found, trials=2 * found.trials)
    assert "Recommended (held-out loss 1, 3 before training):" in str(several)
    assert "your optimizer" in text and "advice.optimizer()" in text
    assert "diverged" in str(advice("FullSoftmax", 1e-2, np.inf))


def test_what_there_was_no_time_for_is_named(five_steps):
    advice = advise(model_with(layers.FullSoftmax(CLASSES)), data())
    assert len(advice.trials) == 1
    (note,) = advice.notes
    assert "SampledSoftmax(300) with HeadAdam(1e-3)" in note
    assert "more `seconds`" in note


def test_two_seconds_are_few_and_enough():
    head = layers.SampledSoftmax(CLASSES, 60)
    advice = advise(model_with(head), data(), 2)
    assert advice.trials and advice.best.steps > 2


def test_a_recipe_that_diverges_is_never_recommended(five_steps, monkeypatch):
    x, y = data()
    model = model_with(layers.FullSoftmax(CLASSES), keras.optimizers.SGD(0.1))
    with pytest.raises(ValueError, match="finite loss.*Fix"):
        advise(model, (np.full_like(x, np.nan), y))

    monkeypatch.setattr(advise_lib, "_RATES", (1e-3,))
    monkeypatch.setattr(advise_lib, "_HEADS", ("FullSoftmax",))
    diverging = keras.optimizers.SGD(1e38)
    model = model_with(layers.FullSoftmax(CLASSES), diverging)
    advice = advise(model, (x, y), seconds=60)
    assert np.isfinite(advice.best.loss) and "diverged" in str(advice)


def test_losses_that_do_not_fall_are_told(five_steps, monkeypatch):
    monkeypatch.setattr(advise_lib, "_RATES", (0.0,))
    advice = advise(model_with(layers.FullSoftmax(CLASSES)), data())
    assert "No recipe lowered the held-out loss" in str(advice)


class TestData:
    def test_rows_held_out_are_in_no_batch(self):
        rows = np.arange(100)
        train, held_out = advise_lib._split((rows, rows), 16)
        # An iterator of a tuned pipeline may take a minute to end.
        assert train.options().autotune.enabled is False
        held_out = np.concatenate([y for _, y in held_out])
        assert len(held_out) == 10
        seen = np.concatenate([y for _, y in train.take(50)])
        assert {*seen} == {*rows} - {*held_out}

    def test_first_batches_of_a_dataset_are_held_out(self):
        rows = np.arange(100)
        dataset = tf.data.Dataset.from_tensor_slices((rows, rows)).batch(5)
        for given in (dataset, dataset.filter(lambda x, y: True)):
            train, held_out = advise_lib._split(given, 99)
            held_out = np.concatenate([y for _, y in held_out])
            np.testing.assert_array_equal(held_out, rows[: len(held_out)])
            seen = np.concatenate([y for _, y in train.take(40)])
            assert {*seen} == {*rows} - {*held_out}

    def test_at_most_512_rows_are_held_out(self):
        rows = np.arange(20_000)
        _, held_out = advise_lib._split((rows, rows), 300)
        assert sum(len(y) for _, y in held_out) == 512

    def test_many_labels_and_a_dataset(self, five_steps):
        x, y = data()
        several = np.stack([y, (y + 7) % CLASSES, np.full_like(y, -1)], axis=1)
        several[:3] = -1
        given = tf.data.Dataset.from_tensor_slices((x, several)).batch(10)
        model = model_with(layers.SampledSoftmax(CLASSES, 60))
        assert np.isfinite(advise(model, given).best.loss)

    def test_sequences_and_structures(self, five_steps):
        x, y = data()
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
        assert np.isfinite(advice.best.loss)


class Uncopied(keras.optimizers.SGD):
    def get_config(self):
        raise NotImplementedError


class TestOptimizers:
    def test_one_that_cannot_be_copied_is_named(self, five_steps):
        head = layers.SampledSoftmax(CLASSES, 60)
        model = model_with(head)
        multi = optimizers.MultiOptimizer(
            [
                (keras.optimizers.SGD(0.1), model.layers[0]),
                (optimizers.LazyAdam(1e-2), head),
            ]
        )
        model.compile(multi, loss=head.loss)
        advice = advise(model, data())
        assert "MultiOptimizer was not tried" in str(advice)
        assert all(trial.rate for trial in advice.trials)

    @pytest.mark.parametrize(
        "make, is_copied, notes",
        [
            (keras.optimizers.SGD, True, []),
            (Uncopied, False, ["Uncopied was not tried: it cannot be copied."]),
            # It is tried anyway, and not twice.
            (optimizers.HeadAdam, False, []),
        ],
    )
    def test_what_is_copied(self, make, is_copied, notes):
        model = model_with(layers.FullSoftmax(CLASSES), make())
        config, found = advise_lib._copied_optimizer(model)
        assert (config is not None, found) == (is_copied, notes)


X, Y = data(20)


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return X, Y


BAD = {
    "no head": (
        lambda: tfxclass.advise(keras.Sequential([keras.Input([3])]), (X, Y)),
        "exactly one head",
    ),
    "another head": (
        lambda: tfxclass.advise(
            model_with(layers.HierarchicalSoftmax(CLASSES, "balanced")), (X, Y)
        ),
        "Received: a HierarchicalSoftmax",
    ),
    "not built": (
        lambda: tfxclass.advise(
            keras.Sequential([layers.FullSoftmax(CLASSES)]), (X, Y)
        ),
        "must be built",
    ),
    "seconds": (
        lambda: tfxclass.advise(None, (X, Y), seconds=0),
        "`seconds` must be finite and > 0. Received: 0",
    ),
    "batch_size": (
        lambda: tfxclass.advise(None, (X, Y), batch_size=0),
        "`batch_size` must be a positive integer. Received: 0",
    ),
    "loss": (
        lambda: tfxclass.advise(
            model_with(layers.FullSoftmax(9, loss="sigmoid")), (X, Y % 9)
        ),
        'loss="sigmoid"',
    ),
    "labels of str": (
        lambda: tfxclass.advise(
            model_with(layers.FullSoftmax(9)), (X, Y.astype(str))
        ),
        "`labels` must be integer class ids",
    ),
    "one array": (lambda: advise_lib._split(X, 4), "`data` must be"),
    "a PyDataset": (
        lambda: advise_lib._split(Rows(), 4),
        r"arrays \(x, y\), or a tf.data.Dataset.*Received: a Rows",
    ),
    "unequal": (lambda: advise_lib._split((X, Y[:3]), 4), "3, 20 rows"),
    "few rows": (
        lambda: advise_lib._split((X[:9], Y[:9]), 4),
        "at least 10 rows. Received: 9",
    ),
    "a dataset of one batch": (
        lambda: advise_lib._split(tf.data.Dataset.from_tensors((X, Y)), 4),
        "at least two batches",
    ),
    "a dataset without labels": (
        lambda: advise_lib._split(tf.data.Dataset.from_tensors([X, X]), 4),
        "`data` must be data with labels.*Received: elements",
    ),
    "a dataset that reshuffles": (
        lambda: advise_lib._split(
            tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(20).batch(5), 4
        ),
        r"`data` must be the same in each pass: without repeat\(\).*_iteration",
    ),
    "a dataset that repeats": (
        lambda: advise_lib._split(
            tf.data.Dataset.from_tensors((X, Y)).repeat(), 4
        ),
        r"`data` must be the same in each pass: without repeat\(\).*_iteration",
    ),
    "a dataset of rows": (
        lambda: advise_lib._split(
            tf.data.Dataset.from_tensor_slices((X, Y)), 4
        ),
        "`data` must be data with labels.*Received: elements",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call()


def test_a_tenth_of_a_dataset_of_unknown_length():
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).batch(1)
    train, held_out = advise_lib._split(rows.filter(lambda x, y: True), 4)
    assert len(list(held_out)) == 2
    np.testing.assert_array_equal(next(iter(train))[0], X[2:3])


def test_a_dataset_with_weights_is_split():
    rows = tf.data.Dataset.from_tensor_slices((X, Y, np.ones(len(Y))))
    train, held_out = advise_lib._split(rows.batch(5), 4)
    assert [len(batch[2]) for batch in held_out] == [5]
    assert len(next(iter(train))[2]) == 5


def test_not_within_a_strategy():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        with pytest.raises(ValueError, match="outside of a strategy"):
            tfxclass.advise(model_with(layers.FullSoftmax(CLASSES)), (X, Y))
