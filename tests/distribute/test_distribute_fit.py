"""`tfxclass.distribute.fit`, with processes of their own on the loopback."""

import json
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.processes import free_ports
from tests.support.processes import run_all
from tfxclass import distribute
from tfxclass.distribute.checkpoint import Checkpoint
from tfxclass.distribute.fit import as_datasets
from tfxclass.distribute.synchronous import Batches


def run_workers(folder, *options, count=2, each=None):
    """Exit codes and outputs of workers; `each` is options of the ranks."""
    folder.mkdir(exist_ok=True)
    ports = ",".join(free_ports(count))
    each = each or [[]] * count
    commands = [
        [
            "tests.support.multi_worker",
            str(rank),
            ports,
            str(folder),
            *options,
            *own,
        ]
        for rank, own in enumerate(each)
    ]
    return run_all(commands, folder)


def results(folder, rank=0):
    with np.load(folder / f"result-{rank}.npz") as values:
        return dict(values)


def check_done(codes, outputs):
    assert codes == [0] * len(codes), "\n".join(o[-3000:] for o in outputs)


def test_two_workers_equal_one_device(tmp_path):
    check_done(*run_workers(tmp_path / "two", "--arrays"))
    check_done(*run_workers(tmp_path / "one", "--arrays", count=1))
    one, two = results(tmp_path / "one"), results(tmp_path / "two")
    other = results(tmp_path / "two", rank=1)
    assert one.keys() == two.keys() and len(one["val_loss"]) == 3
    for name, value in one.items():
        # Sums in another order, through fifteen steps of Adam.
        np.testing.assert_allclose(
            two[name], value, rtol=1e-3, atol=1e-4, err_msg=name
        )
        np.testing.assert_array_equal(other[name], two[name])


@pytest.mark.slow
def test_killed_worker_and_restart_change_nothing(tmp_path):
    """Also the order of the data, masks of dropout and index come back."""
    dropout = ["--dropout", "0.2"]
    check_done(*run_workers(tmp_path / "whole", *dropout))
    killed = tmp_path / "killed"
    codes, outputs = run_workers(killed, *dropout, each=[[], ["--kill", "8"]])
    assert codes[1] == -signal.SIGKILL and codes[0] > 0
    assert "RuntimeError: A worker was lost" in outputs[0]
    assert not (killed / "result-0.npz").exists()
    check_done(*run_workers(killed, *dropout))
    expected, found = results(tmp_path / "whole"), results(killed)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        # A metric's sums are shared out over the replicas again.
        tolerance = 0 if name.startswith("arr_") else 1e-6
        np.testing.assert_allclose(
            found[name], value, rtol=tolerance, err_msg=name
        )


def test_worker_with_another_class_count_is_told_so(tmp_path):
    codes, outputs = run_workers(tmp_path, each=[[], ["--classes", "61"]])
    assert min(codes) > 0
    for output, classes in zip(outputs, (60, 61)):
        assert "All workers have to make the same head" in output
        assert f"num_classes={classes} here" in output


@pytest.fixture
def model():
    head = tfxclass.layers.FullSoftmax(5)
    model = keras.Sequential([head])
    model.compile("sgd", loss=head.loss)
    return model


def dataset():
    x = np.arange(40, dtype=np.float32).reshape(10, 4) / 40
    y = np.arange(10) % 5
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(4)


def averaging():
    """Keras ends its `fit` with the averages in the weights."""
    return keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)


class Vector(keras.metrics.MeanMetricWrapper):
    """A metric whose result has several numbers."""

    def __init__(self):
        super().__init__(lambda y, prediction: prediction[:, 0], "vector")

    def result(self):
        return tf.stack([super().result(), 2.0])


@pytest.mark.parametrize(
    "kind, options",
    [
        ("plain", {}),
        ("averaged", {}),
        # Eight steps, three to a pass: epochs begin within passes.
        ("continued", {"steps_per_epoch": 2, "epochs": 4}),
    ],
)
def test_fit_equals_keras_fit(model, kind, options):
    """The averaged weights come with a metric of several numbers."""
    other = keras.models.clone_model(model)
    other.build([None, 4])
    model.build([None, 4])
    model.set_weights(other.get_weights())
    for one in (model, other):
        optimizer, metrics = "sgd", []
        if kind == "averaged":
            optimizer, metrics = averaging(), [Vector()]
        one.compile(optimizer, loss=one.layers[-1].loss, metrics=metrics)
    options = {"epochs": 3, "validation_data": dataset(), **options}
    options["verbose"] = 0
    # Keras' own does not begin the data anew.
    data = dataset().repeat() if kind == "continued" else dataset()
    expected = other.fit(data, shuffle=False, **options)
    found = distribute.fit(model, dataset(), **options)
    assert found.epoch == expected.epoch
    assert found.history.keys() == expected.history.keys()
    for name, values in expected.history.items():
        np.testing.assert_allclose(found.history[name], values, rtol=1e-6)
    for ours, theirs in zip(model.get_weights(), other.get_weights()):
        np.testing.assert_array_equal(ours, theirs)


def test_arrays_as_keras_takes_them(model):
    model.build([None, 4])
    weights = model.get_weights()
    options = {"epochs": 2, "verbose": 0, "batch_size": 4, "shuffle": False}

    def history(data):
        model.set_weights(weights)
        found = distribute.fit(model, data, validation_data=data, **options)
        return found.history

    expected = history(dataset())
    x, y = map(np.concatenate, zip(*dataset().as_numpy_iterator()))
    for name, values in history((x, y)).items():
        np.testing.assert_allclose(expected[name], values, rtol=1e-6)


def test_arrays_have_an_order_of_their_own_in_each_epoch():
    arrays = (np.arange(10), np.arange(10))
    data = as_datasets("dataset", arrays, 4, True)
    passes = [np.concatenate([x for x, _ in data]) for _ in range(2)]
    assert all(sorted(x) == list(range(10)) for x in passes)
    assert list(passes[0]) != list(passes[1])
    again = as_datasets("dataset", arrays, 4, True)
    np.testing.assert_array_equal(
        np.concatenate([x for x, _ in again]), passes[0]
    )


def test_no_seed_is_drawn_where_the_data_end():
    """A draw that no step uses would come or not, and be in a state or not."""
    dropout = keras.layers.Dropout(0.5)
    head = tfxclass.layers.FullSoftmax(5)
    model = keras.Sequential([keras.Input([4]), dropout, head])
    model.compile("sgd", loss=head.loss)
    of_unknown_length = dataset().filter(lambda x, y: True)
    distribute.fit(model, of_unknown_length, epochs=2, verbose=0)
    assert int(dropout.seed_generator.state[1]) == 6
    assert int(model.optimizer.iterations) == 6


def test_callbacks_progress_and_stop(model, capsys):
    calls = []

    class Record(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            calls.append((batch, sorted(logs)))

        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = epoch == 1

    history = distribute.fit(
        model,
        lambda epoch: dataset().skip(epoch),
        epochs=5,
        steps_per_epoch=2,
        callbacks=[Record()],
        verbose=1,
        log_interval=2,
    )
    assert history.epoch == [0, 1]
    assert calls == [(0, []), (1, ["loss"])] * 2
    assert "Epoch 2/5" in capsys.readouterr().out


def test_restart_reports_the_first_start_too(model, tmp_path):
    folder = str(tmp_path / "states")
    distribute.fit(model, dataset(), epochs=2, checkpoint=folder, verbose=0)
    expected = model.get_weights()
    head = tfxclass.layers.FullSoftmax(5)
    again = keras.Sequential([head])
    again.compile("sgd", loss=head.loss)
    options = {"checkpoint": folder, "verbose": 0}
    history = distribute.fit(again, dataset(), epochs=2, **options)
    assert history.epoch == [0, 1] and len(history.history["loss"]) == 2
    for ours, theirs in zip(again.get_weights(), expected):
        np.testing.assert_array_equal(ours, theirs)
    history = distribute.fit(again, dataset(), epochs=3, **options)
    assert history.epoch == [0, 1, 2]
    names = sorted(path.name for path in (tmp_path / "states").iterdir())
    assert names == ["step-000000006", "step-000000009"]


def test_stopped_in_an_epoch_goes_on_in_it(model, tmp_path):
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1

    other = keras.models.clone_model(model)
    model.build([None, 4])
    other.build([None, 4])
    other.set_weights(model.get_weights())
    other.compile("sgd", loss=other.layers[-1].loss)
    options = {"validation_data": dataset(), "epochs": 2, "verbose": 0}
    whole = distribute.fit(other, dataset(), **options)
    options["checkpoint"] = str(tmp_path)
    distribute.fit(model, dataset(), callbacks=[Stop()], **options)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000002"]
    history = distribute.fit(model, dataset(), **options)
    assert history.epoch == [0, 1] and history.history == whole.history
    for ours, theirs in zip(model.get_weights(), other.get_weights()):
        np.testing.assert_array_equal(ours, theirs)


def test_workers_that_do_not_write_read_what_is_saved(
    model, tmp_path, monkeypatch
):
    """Values of all workers are read by all of them, in the same order."""
    model.build([None, 4])
    reads, files = [], tmp_path / "chief"

    class Observed(keras.layers.Layer):
        def save_own_variables(self, store):
            reads.append(self.name)
            store["0"] = np.zeros(2)

    for name in "ba":
        setattr(model, name, Observed(name=name))
    Checkpoint(str(files), model).save(1, {})
    Checkpoint(str(tmp_path / "other"), model, writes=False).save(1, {})
    assert reads[:2] == reads[2:] and sorted(set(reads)) == ["a", "b"]
    assert list(tmp_path.iterdir()) == [files]


def test_restart_within_a_pass_goes_on_in_it(model, tmp_path):
    """Also where an epoch has become shorter than what it had taken."""
    options = {"steps_per_epoch": 2, "verbose": 0}
    model.build([None, 4])
    weights = model.get_weights()
    distribute.fit(model, dataset(), epochs=4, **options)
    expected = model.get_weights()

    def fit(**more):
        more = {"checkpoint": str(tmp_path), **options, **more}
        return distribute.fit(model, dataset(), **more)

    model.set_weights(weights)
    fit(epochs=2)
    fit(epochs=4)
    for ours, theirs in zip(model.get_weights(), expected):
        np.testing.assert_array_equal(ours, theirs)

    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 2

    fit(epochs=5, steps_per_epoch=9, callbacks=[Stop()])
    assert fit(epochs=6).epoch == list(range(6))


def test_state_that_a_power_cut_left_short(model, tmp_path):
    """The one before is taken."""
    folder = str(tmp_path)
    distribute.fit(model, dataset(), epochs=2, checkpoint=folder, verbose=0)
    weights = model.get_weights()
    last = sorted(tmp_path.iterdir())[-1]
    for name in ("model.weights.h5", "others.npz", "position.json"):
        kept = (last / name).read_bytes()
        (last / name).write_bytes(kept[: len(kept) // 2])
        with pytest.warns(UserWarning, match="cannot be read"):
            position = Checkpoint(folder, model).restore()
        assert position["epoch"] == 1
        (last / name).write_bytes(kept)
    assert Checkpoint(folder, model).restore()["epoch"] == 2
    for ours, theirs in zip(model.get_weights(), weights):
        np.testing.assert_array_equal(ours, theirs)
    for path in tmp_path.iterdir():
        (path / "position.json").write_bytes(b"")
    with pytest.warns(UserWarning), pytest.raises(OSError, match="begin anew"):
        Checkpoint(folder, model).restore()


def test_state_of_another_model_is_refused(model, tmp_path):
    folder = str(tmp_path)
    distribute.fit(model, dataset(), checkpoint=folder, verbose=0)
    head = tfxclass.layers.FullSoftmax(7)
    other = keras.Sequential([head])
    other.compile("sgd", loss=head.loss)
    with pytest.raises(ValueError, match="is not of this model"):
        distribute.fit(other, dataset(), epochs=2, checkpoint=folder)


def test_unfinished_state_is_not_read(model, tmp_path):
    (tmp_path / "step-000000009.unfinished").mkdir()
    history = distribute.fit(
        model, dataset(), checkpoint=str(tmp_path), verbose=0
    )
    assert history.epoch == [0]


def test_each_pass_has_its_own_order_whoever_starts():
    """A restarted job winds the passes on."""
    strategy = tf.distribute.get_strategy()

    def orders(epochs):
        data = tf.data.Dataset.range(8).shuffle(8, seed=1).batch(8)
        batches = Batches(strategy, data)
        return [next(batches.epoch(e)).numpy().tolist() for e in epochs]

    whole = orders([0, 1, 2])
    assert orders([2]) == whole[2:] and whole[0] != whole[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs"),
        ({"steps_per_epoch": 0}, "steps_per_epoch"),
        ({"validation_steps": -1}, "validation_steps"),
        ({"log_interval": 0}, "log_interval"),
        (
            {"dataset": np.zeros(3)},
            "`dataset` must be arrays .* Received: .*ndarray",
        ),
        ({"validation_data": [1]}, "`validation_data` must be .*1 arrays"),
        ({"dataset": (1, 2)}, "`dataset` must be .* a single value, array"),
        ({"batch_size": 0}, "batch_size"),
        ({"checkpoint_interval": 3}, "`checkpoint_interval` needs"),
        ({"checkpoint_interval": 0, "checkpoint": "x"}, "checkpoint_interval"),
    ],
)
def test_invalid_arguments(model, options, message):
    with pytest.raises(ValueError, match=message):
        distribute.fit(model, **{"dataset": dataset(), **options})


def test_uncompiled_model_and_other_strategy_are_refused(model):
    uncompiled = keras.Sequential([tfxclass.layers.FullSoftmax(5)])
    with pytest.raises(ValueError, match="must be compiled"):
        distribute.fit(uncompiled, dataset())
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        with pytest.raises(ValueError, match="within one `strategy.scope"):
            distribute.fit(model, dataset())


def test_model_that_does_not_know_the_cluster_is_refused(model, monkeypatch):
    workers = {"cluster": {"worker": ["localhost:1", "localhost:2"]}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(workers))
    with pytest.raises(ValueError, match="TF_CONFIG names 2 workers"):
        distribute.fit(model, dataset())
    # A script that unsets a variable may leave it empty.
    monkeypatch.setenv("TF_CONFIG", "")
    distribute.fit(model, dataset(), epochs=1)
