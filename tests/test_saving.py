"""Saves that are whole or not there."""

import os
import subprocess
import sys
import time

import keras
import numpy as np
import pytest

import tfxclass
from tests.support import processes
from tests.support.contract import DIM
from tests.support.contract import make_model
from tfxclass import layers
from tfxclass.keras_internals import names_of_functions


def model_of(value, **options):
    model = make_model(layers.FullSoftmax(6), **options)
    model.optimizer.build(model.trainable_variables)
    for variable in model.trainable_variables:
        variable.assign(np.full(variable.shape, value))
    return model


def value_in(path):
    model = keras.models.load_model(path)
    return float(model.trainable_variables[0][0, 0])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "model.keras"


def only_file(path):
    return os.listdir(path.parent) == [path.name]


def test_saves_and_replaces(path):
    for value in (1.0, 2.0):
        tfxclass.save_model(model_of(value), path)
        assert value_in(path) == value and only_file(path)


def test_weights(tmp_path):
    path = tmp_path / "model.weights.h5"
    tfxclass.save_weights(model_of(3.0), path)
    model = model_of(0.0)
    model.load_weights(path)
    assert float(model.trainable_variables[0][0, 0]) == 3.0 and only_file(path)


@pytest.mark.parametrize("save", [tfxclass.save_model, tfxclass.save_weights])
def test_another_ending(save, tmp_path):
    with pytest.raises(ValueError, match="`path` must end in .*model.h5"):
        save(model_of(0.0), tmp_path / "model.h5")


def test_a_failing_save_keeps_the_old_file(path, monkeypatch):
    tfxclass.save_model(model_of(1.0), path)
    model = model_of(2.0)

    def full(name, **_):
        with open(name, "wb") as file:
            file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(model, "save", full)
    with pytest.raises(OSError, match="No space left"):
        tfxclass.save_model(model, path)
    assert value_in(path) == 1.0 and only_file(path)


@pytest.mark.slow
def test_a_full_disk_keeps_the_old_file(path):
    """A limit on the size of files stands for the end of the disk."""
    tfxclass.save_model(model_of(1.0), path)
    code = (
        "import resource, signal, sys\n"
        "from tests.test_saving import model_of\n"
        "import tfxclass\n"
        "model = model_of(2.0)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "tfxclass.save_model(model, sys.argv[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True
    )
    assert done.returncode == 1 and "File too large" in done.stderr
    assert value_in(path) == 1.0 and only_file(path)


def save_without_an_end(path):
    """What a process is stopped in: the file has yet to be renamed."""
    os.replace = lambda *_: time.sleep(600)
    tfxclass.save_model(model_of(2.0), path)


def test_a_killed_save_keeps_the_old_file(path):
    """It is stopped between the last byte and the renaming."""
    tfxclass.save_model(model_of(1.0), path)
    unfinished = path.with_name(".model.keras.unfinished.keras")
    deadline = time.monotonic() + 120
    with processes.call(save_without_an_end, path):
        while not unfinished.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
    assert unfinished.exists() and value_in(path) == 1.0
    tfxclass.save_model(model_of(3.0), path)
    assert value_in(path) == 3.0 and only_file(path)


@pytest.mark.parametrize("only_weights", [False, True])
def test_checkpoints(tmp_path, only_weights, monkeypatch):
    ending = ".weights.h5" if only_weights else ".keras"
    replaced = []
    replace = os.replace
    monkeypatch.setattr(
        os, "replace", lambda a, b: (replaced.append(b), replace(a, b))
    )
    model = make_model(layers.FullSoftmax(6), run_eagerly=True)
    checkpoint = tfxclass.callbacks.AtomicModelCheckpoint(
        tmp_path / ("{epoch}" + ending),
        save_weights_only=only_weights,
        monitor="loss",
        save_best_only=True,
    )
    x = np.ones((4, DIM), np.float32)
    model.fit(x, np.zeros(4, int), 4, 2, 0, callbacks=[checkpoint])
    files = [str(tmp_path / f"{epoch}{ending}") for epoch in (1, 2)]
    assert replaced == files
    assert sorted(os.listdir(tmp_path)) == [f"1{ending}", f"2{ending}"]
    other = model_of(0.0)
    if only_weights:
        other.load_weights(files[1])
    else:
        other = keras.models.load_model(files[1])
    np.testing.assert_array_equal(other.predict(x), model.predict(x))


def test_a_checkpoint_can_stop_the_training(tmp_path):
    class Stops(tfxclass.callbacks.AtomicModelCheckpoint):
        def on_epoch_end(self, epoch, logs=None):
            super().on_epoch_end(epoch, logs)
            self.model.stop_training = True

    model = model_of(1.0)
    x, y = np.ones((4, DIM)), np.arange(4)
    stops = Stops(str(tmp_path / "model.keras"))
    history = model.fit(x, y, epochs=3, verbose=0, callbacks=[stops])
    assert history.epoch == [0]


def test_checkpoints_of_another_ending(tmp_path):
    with pytest.raises(ValueError, match="`filepath` must end in .keras"):
        tfxclass.callbacks.AtomicModelCheckpoint(tmp_path / "model.h5")


@pytest.mark.parametrize("kind", ["top_k", "retain_probabilities"])
def test_models_that_answer_are_saved_with_their_head(kind, tmp_path):
    head = {
        "top_k": lambda: layers.SampledSoftmax(30, 20, "kmeans", use_bias=True),
        "retain_probabilities": lambda: layers.DropMax(30),
    }[kind]()
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4), head])
    answering = {
        "top_k": lambda: tfxclass.top_k(model, 3, threshold=0.01),
        "retain_probabilities": lambda: tfxclass.retain_probabilities(model),
    }[kind]()
    answering.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    x = np.random.default_rng(0).normal(size=(5, 6))
    pairs = zip(answering(x), loaded(x), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_array_equal(ours, theirs)


HEADS_IN_HDF5 = {
    "full": lambda: layers.FullSoftmax(20),
    "sampled": lambda: layers.SampledSoftmax(20, 20, sampler="auto"),
    "forest": lambda: layers.SelectiveSoftmax(20, 20),
    "tables": lambda: layers.LSHSoftmax(20, 20),
    "noise": lambda: layers.NoiseContrastive(20, 20),
    "dropmax": lambda: layers.DropMax(20),
    "cosine": lambda: layers.FullSoftmax(20, similarity="cosine"),
    "tree": lambda: layers.HierarchicalSoftmax(20, counts=np.arange(20) + 1),
    "options": lambda: layers.FullSoftmax(
        20, loss_options=tfxclass.losses.LossOptions(label_smoothing=0.1)
    ),
}


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5")
@pytest.mark.parametrize("name", HEADS_IN_HDF5)
def test_hdf5_files_can_be_loaded(name, tmp_path):
    """Keras' loader puts the function `keras.layers.dot` for "dot"."""
    head = HEADS_IN_HDF5[name]()
    model = make_model(head)
    path = str(tmp_path / "model.h5")
    model.save(path)
    loaded = keras.models.load_model(path, compile=False)
    assert loaded.layers[-1].get_config() == head.get_config()
    x = np.ones((3, DIM), np.float32)
    np.testing.assert_allclose(loaded(x), model(x), rtol=1e-6)


def _zeros(shape, dtype):
    return np.zeros(shape, dtype)


def test_functions_of_the_user_stay_in_a_configuration():
    """Of `custom_objects`, where a function is meant."""
    config = {"a": keras.layers.dot, "x_initializer": _zeros, "b": "dot"}
    found = names_of_functions(config)
    assert found == {**config, "a": "dot"}
