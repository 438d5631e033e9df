"""Files that earlier versions saved are loaded and go on as they would have."""

import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support import saved_files
from tfxclass_text import Tagger

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "saved"
# Of float32 sums in another order, on another processor, over a few steps.
TOLERANCE = {"rtol": 2e-4, "atol": 2e-5}


def saved(name):
    with np.load(FOLDER / f"{name}.npz") as arrays:
        return dict(arrays)


def test_each_model_has_a_file():
    files = {path.stem for path in FOLDER.glob("*.keras")}
    assert files == set(saved_files.MODELS)


@pytest.mark.parametrize("name", saved_files.MODELS)
def test_a_saved_model_goes_on(name):
    model = keras.models.load_model(FOLDER / f"{name}.keras")
    found, expected = saved_files.answers(model), saved(name)
    assert set(found) == set(expected)
    for key, values in expected.items():
        np.testing.assert_allclose(found[key], values, **TOLERANCE, err_msg=key)


def test_a_checkpoint_is_restored():
    model = saved_files.MODELS["uniform"]()
    path = FOLDER / "uniform_checkpoint" / "of"
    status = tf.train.Checkpoint(model=model).read(str(path))
    status.expect_partial()
    x, _ = saved_files.batch(model)
    np.testing.assert_allclose(
        model.predict(x, verbose=0),
        saved("uniform_checkpoint")["outputs"],
        **TOLERANCE,
    )


def test_an_export_answers():
    model = keras.models.load_model(FOLDER / "uniform.keras")
    x, _ = saved_files.batch(model)
    (version,) = (FOLDER / "export").iterdir()
    served = tf.saved_model.load(str(version)).signatures["serving_default"]
    outputs = model.predict(x, verbose=0)
    ids = served(x=tf.constant(x))["ids"].numpy()
    np.testing.assert_array_equal(ids, np.argsort(-outputs, axis=1)[:, :5])


def test_a_tagger_answers():
    texts, tags = saved_files.texts()
    found = Tagger.load(FOLDER / "tagger").predict(texts, k=1)
    best = [answer[0][0] for answer in found]
    assert np.mean([a == b for a, b in zip(best, tags)]) > 0.95
