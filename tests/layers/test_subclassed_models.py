"""Subclassed models: all that reads what a head reads takes them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick

CLASSES, DIM, ROWS = 30, 6, 40


def make_head():
    return tfxclass.layers.SampledSoftmax(CLASSES, 20, "uniform", name="head")


@keras.saving.register_keras_serializable("tests")
class Tower(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.head = make_head()
        self.encoder = keras.layers.Dense(8)

    def call(self, x):
        return self.head(self.encoder(x))


class Outer(keras.Model):
    def __init__(self):
        super().__init__()
        self.inner = Tower()

    def call(self, x):
        return self.inner(x["a"])


class OfIds(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = make_head()
        self.embed = keras.layers.Embedding(9, 8)

    def call(self, x):
        return self.head(tf.reduce_mean(self.embed(x), axis=1))


def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, DIM)).astype("float32")
    return x, rng.integers(0, CLASSES, ROWS)


def fitted(model, x, y):
    model(x)
    head = tfxclass.inference.graph.find_head(model)
    model.compile(tfxclass.optimizers.LazyAdam(1e-2), loss=head.loss)
    model.fit(x, y, verbose=0)
    return model


def assert_best(model, x):
    scores = model(x).numpy()
    ids, _ = tfxclass.top_k(model, 3).predict(x, verbose=0)
    np.testing.assert_array_equal(ids, np.argsort(-scores, 1)[:, :3])


# The outer model has a tower in it. For ids, see `test_types_of_inputs`.
@pytest.mark.parametrize("kind", quick(["tower", "outer", "ids"], ["outer"]))
def test_top_k_growth_and_calibration(kind):
    x, y = data()
    make = {"tower": Tower, "outer": Outer, "ids": OfIds}[kind]
    if kind == "outer":
        x = {"a": x}
    if kind == "ids":
        x = np.arange(ROWS * 2).reshape(ROWS, 2) % 9
    model = fitted(make(), x, y)
    assert_best(model, x)
    tfxclass.calibrate(model, (x, y))
    grown = tfxclass.add_classes(model, 2, (x, np.arange(ROWS) % 32))
    assert grown(x).shape == (ROWS, CLASSES + 2)
    assert len(grown.trainable_variables) == len(model.trainable_variables)
    grown.fit(x, y, verbose=0)
    assert_best(grown, x)
    left = tfxclass.remove_classes(grown, [3])
    assert 3 not in tfxclass.top_k(left, 3).predict(x, verbose=0)[0]


def test_exports(tmp_path):
    x, y = data()
    model = fitted(Tower(), x, y)
    folder = tfxclass.export.saved_model(model, tmp_path / "served", 3)
    # The class matrix is saved once.
    loaded = tf.saved_model.load(folder)
    variables = loaded.signatures["serving_default"].variables
    sizes = [v.shape.num_elements() for v in variables]
    assert sizes.count(CLASSES * 8) == 1
    tfxclass.export.onnx(model, tmp_path / "onnx", 3)


def test_types_of_inputs():
    x = np.arange(ROWS * 2).reshape(ROWS, 2) % 9
    model = OfIds()
    model(x)
    assert tfxclass.top_k(model, 3).input.dtype == "int64"
    tfxclass.calibrate(model, (x, data()[1]))
    model.compile(tfxclass.optimizers.LazyAdam(), loss=model.head.loss)
    grown = tfxclass.add_classes(model, 2, (x, np.arange(ROWS) % 32))
    assert grown(x).shape == (ROWS, CLASSES + 2)
    assert tfxclass.top_k(grown, 3).input.dtype == "int64"


# Keras warns of each subclassed model that it builds by calling it.
@pytest.mark.filterwarnings("ignore:.build")
def test_a_grown_model_is_saved(tmp_path):
    x, y = data()
    y[0] = CLASSES
    grown = tfxclass.add_classes(fitted(Tower(), x[1:], y[1:]), 1, (x, y))
    grown.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(loaded(x), grown(x))


def test_an_unbuilt_model_is_refused():
    with pytest.raises(ValueError, match="Call it on a batch first"):
        tfxclass.top_k(Tower(), 3)
