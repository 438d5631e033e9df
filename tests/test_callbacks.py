"""What people see of a training: samplers' figures in the logs, callbacks."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tests.support.contract import BATCH
from tests.support.contract import CLASSES
from tests.support.contract import data
from tests.support.contract import make_model
from tests.support.lsh import lsh_sampler
from tfxclass import distribute
from tfxclass import samplers
from tfxclass.callbacks import ExactLast

INDEX = {"fill_rate"}
SAMPLERS = {
    "uniform": (lambda: "uniform", set()),
    "forest": (
        lambda: samplers.HashingForestSampler(
            32, num_trees=4, leaf_size=8, seed=1
        ),
        INDEX | {"recall"},
    ),
    "auto": (
        lambda: samplers.AutoSampler(32, seed=1),
        INDEX | {"recall", "k_eff", "v", "noise", "choice"},
    ),
    "lsh": (
        lambda: lsh_sampler(32, num_hashes=3, num_tables=4),
        INDEX | {"recall", "table_hit_rate"},
    ),
    "kmeans": (lambda: samplers.KMeansSampler(32, num_groups=4), INDEX),
}


OVERFLOW = {"overflow_steps", "overflow_labels"}


def head_with(kind, **options):
    sampler = SAMPLERS[kind][0]()
    if isinstance(sampler, str):
        options["num_sampled"] = 32
    return tfxclass.layers.SampledSoftmax(CLASSES, sampler=sampler, **options)


@pytest.mark.parametrize("name", quick(SAMPLERS, ("forest", "lsh")))
def test_a_sampler_measures(name):
    """Each kind of sampler tells what its page says, in its range."""
    head = head_with(name)
    x, y = data()
    head(x)
    head.compute_loss(x, y, training=True)
    figures = {name: float(value) for name, value in head.measured.items()}
    assert set(figures) == SAMPLERS[name][1] | OVERFLOW
    assert 0 <= figures.get("fill_rate", 0) <= 1


def test_places_are_those_that_neighbours_got():
    """Of 48 classes 16 are labels, at most 16 found ones, the rest drawn."""
    sampler = samplers.KMeansSampler(48, num_groups=40)
    head = tfxclass.layers.SampledSoftmax(CLASSES, sampler=sampler)
    x, _ = data()
    head(x)
    step = head.sample(tf.constant(x), head.targets(x, np.arange(BATCH)))
    certain = np.count_nonzero(step.log_expected_count.numpy() == 0)
    found = float(head.measured["fill_rate"])
    assert 0 < found < 1
    assert found == pytest.approx((certain - BATCH) / 16, rel=1e-6)


class Writer(keras.callbacks.Callback):
    """What MLflow's, Weights & Biases' and TensorBoard's callbacks do.

    They read `self.params`, `self.model`, its optimizer and its summary, and
    in `logs` expect numbers that `float` and JSON take.
    """

    def __init__(self):
        super().__init__()
        self.calls, self.epochs = [], []

    def _note(self, hook, logs):
        assert all(type(v) in (int, float) for v in (logs or {}).values())
        self.calls.append(hook)

    def on_train_begin(self, logs=None):
        self._note("train_begin", logs)
        assert self.params["epochs"] == 2 and self.params["steps"] == 4
        assert self.model.optimizer.get_config()["learning_rate"] > 0
        lines = []
        self.model.summary(print_fn=lambda line, **_: lines.append(line))
        assert lines

    def on_train_end(self, logs=None):
        self._note("train_end", logs)

    def on_epoch_begin(self, epoch, logs=None):
        self._note("epoch_begin", logs)

    def on_epoch_end(self, epoch, logs=None):
        self._note("epoch_end", logs)
        self.epochs.append((epoch, dict(logs)))

    def on_train_batch_begin(self, batch, logs=None):
        self._note("train_batch_begin", logs)

    def on_train_batch_end(self, batch, logs=None):
        self._note("train_batch_end", logs)

    def on_test_begin(self, logs=None):
        self._note("test_begin", logs)

    def on_test_end(self, logs=None):
        self._note("test_end", logs)

    def on_test_batch_begin(self, batch, logs=None):
        self._note("test_batch_begin", logs)

    def on_test_batch_end(self, batch, logs=None):
        self._note("test_batch_end", logs)


def trained_with(fit):
    keras.utils.set_random_seed(0)
    head = head_with("forest", seed=1)
    accuracy = tfxclass.metrics.TopKAccuracy(head, k=3, name="top3")
    model = make_model(head, metrics=[accuracy])
    x, y = data(rows=4 * BATCH)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    writer = Writer()
    history = fit(
        model,
        batches,
        epochs=2,
        validation_data=batches.take(2),
        callbacks=[tfxclass.callbacks.SamplerLog(), writer],
        verbose=0,
    )
    assert set(history.history) == set(writer.epochs[-1][1])
    return writer


def test_recording_callbacks_under_fit_of_distribute():
    """The same hooks in the same order, with the same numbers, as Keras'."""
    expected = trained_with(
        lambda model, *a, **k: model.fit(*a, shuffle=False, **k)
    )
    found = trained_with(distribute.fit)
    # The loop of `distribute` sees the end of the data by asking for more.
    of_keras, of_ours = (
        [call for call in writer.calls if not call.endswith("batch_begin")]
        for writer in (expected, found)
    )
    assert of_ours == of_keras
    assert [epoch for epoch, _ in found.epochs] == [0, 1]
    # Of the first epoch: at its end `distribute` draws a seed more.
    logs, others = found.epochs[0][1], expected.epochs[0][1]
    assert logs == pytest.approx(others, rel=1e-5)
    assert {"loss", "val_loss", "val_top3", "recall", "fill_rate"} <= set(logs)


def test_several_heads_are_told_apart():
    x = keras.Input([8])
    heads = [head_with("kmeans", name=name) for name in ("words", "tags")]
    model = keras.Model(x, [head(x) for head in heads])
    log = tfxclass.callbacks.SamplerLog()
    log.set_model(model)
    logs = {"loss": 1.0}
    log.on_epoch_end(0, logs)
    assert {"loss", "words/fill_rate", "tags/overflow_steps"} <= logs.keys()


def test_seconds_of_training():
    keras.utils.set_random_seed(0)
    head = tfxclass.layers.FullSoftmax(60)
    model, (x, y) = make_model(head), data(rows=64)
    seconds = tfxclass.callbacks.SecondsLog()
    history = model.fit(
        x, y, epochs=2, validation_split=0.5, verbose=0, callbacks=[seconds]
    )
    first, second = history.history["seconds"]
    assert 0 < first < second


def test_seconds_of_an_evaluation_alone():
    head = tfxclass.layers.FullSoftmax(60)
    x, y = data(rows=64)
    seconds = tfxclass.callbacks.SecondsLog()
    make_model(head).evaluate(x, y, verbose=0, callbacks=[seconds])


def fitted(make_head, epochs, **options):
    """Losses of epochs, and the weights at the end."""
    keras.utils.set_random_seed(3)
    model = make_model(make_head())
    x, y = data()
    history = model.fit(
        x, y, BATCH, epochs, shuffle=False, verbose=0, **options
    )
    return history.history["loss"], model.get_weights()


@pytest.fixture(scope="module")
def fitted_with_all_classes():
    return fitted(lambda: tfxclass.layers.FullSoftmax(CLASSES, seed=1), 3)


@pytest.mark.parametrize(
    "kind",
    [
        functools.partial(tfxclass.layers.SampledSoftmax, sampler="uniform"),
        tfxclass.layers.ShardedSoftmax,
    ],
    ids=["SampledSoftmax", "ShardedSoftmax"],
)
def test_the_last_epochs_have_all_classes(kind, fitted_with_all_classes):
    """Before, a sample; from then on the steps of the full softmax."""

    def head():
        return kind(CLASSES, num_sampled=32, seed=1)

    sampled, _ = fitted(head, 3)
    losses, _ = fitted(head, 3, callbacks=[ExactLast(1)])
    assert losses[:2] == sampled[:2] and losses[2] != sampled[2]
    exact, weights = fitted_with_all_classes
    losses, ours = fitted(head, 3, callbacks=[ExactLast(5)])
    np.testing.assert_allclose(losses, exact, rtol=1e-5)
    for one, other in zip(weights[:3], ours, strict=False):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_after_an_interruption_a_fit_samples_again():
    class Interrupt(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise KeyboardInterrupt

    head = tfxclass.layers.SampledSoftmax(CLASSES, 32, "uniform")
    with pytest.raises(KeyboardInterrupt):
        fitted(lambda: head, 1, callbacks=[ExactLast(1), Interrupt()])
    assert not head.is_sampled
    fitted(lambda: head, 2, callbacks=[ExactLast(1), IsSampledAtFirst(head)])
    assert head.is_sampled


class IsSampledAtFirst(keras.callbacks.Callback):
    def __init__(self, head):
        super().__init__()
        self.head = head

    def on_epoch_end(self, epoch, logs=None):
        assert self.head.is_sampled == (epoch == 0)


def test_only_sampled_heads_end_exactly():
    full = tfxclass.layers.FullSoftmax(CLASSES)
    with pytest.raises(ValueError, match="samples its classes.*no such head"):
        fitted(lambda: full, 1, callbacks=[ExactLast(1)])
    host = tfxclass.layers.SampledSoftmax(
        CLASSES, num_sampled=32, placement="host", name="far"
    )
    with pytest.raises(ValueError, match=r"\['far'\], which has none"):
        fitted(lambda: host, 1, callbacks=[ExactLast(1)])
    for epochs in (0, 1.5, "all"):
        with pytest.raises(ValueError, match="epochs"):
            ExactLast(epochs)
