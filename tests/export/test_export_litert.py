"""LiteRT runs `serving_default` with its own ops, and answers as the model."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tfxclass.rows import export_rows
from tfxclass.rows import stock_search

NUM_CLASSES = 300
HEADS = {
    "dot": (tfxclass.layers.FullSoftmax, {"use_bias": True}),
    "logits": (tfxclass.layers.FullSoftmax, {"activation": None}),
    "sigmoid": (tfxclass.layers.FullSoftmax, {"loss": "sigmoid"}),
    "cosine": (tfxclass.layers.FullSoftmax, {"similarity": "cosine"}),
    "projected": (tfxclass.layers.ProjectedSoftmax, {"projection_dim": 4}),
    "adaptive": (tfxclass.layers.AdaptiveSoftmax, {"cutoffs": [20, 50]}),
    "dropmax": (tfxclass.layers.DropMax, {}),
}


def make_model(name):
    keras.utils.set_random_seed(0)
    layer, arguments = HEADS[name]
    layers = [keras.Input((5,), name="x"), keras.layers.Dense(12)]
    return keras.Sequential([*layers, layer(NUM_CLASSES, **arguments)])


def runner_of(folder):
    with warnings.catch_warnings():
        # `tf.lite` moves to ai_edge_litert.
        warnings.simplefilter("ignore")
        converter = tf.lite.TFLiteConverter.from_saved_model(
            folder, signature_keys=["serving_default"]
        )
        # By default no op of TensorFlow's own.
        interpreter = tf.lite.Interpreter(model_content=converter.convert())
        return interpreter.get_signature_runner("serving_default")


def assert_answers(folder, model, batch):
    x = np.random.default_rng(1).normal(size=(batch, 5)).astype("float32")
    x[0] = np.nan
    ids, scores = tfxclass.top_k(model, 7)(x)
    found = runner_of(folder)(x=x)
    np.testing.assert_array_equal(found["ids"], ids)
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", quick(HEADS, ["dot", "cosine", "sigmoid"]))
def test_answers_equal_the_models(name, tmp_path):
    model = make_model(name)
    folder = tfxclass.export.saved_model(model, tmp_path, top_k=7, verify=False)
    assert_answers(folder, model, 6)


def test_blocks_of_classes(tmp_path, monkeypatch):
    monkeypatch.setattr(stock_search, "ONE_BLOCK_CLASSES", 100)
    monkeypatch.setattr(export_rows, "_WIDTH", 96)
    model = make_model("dot")
    folder = tfxclass.export.saved_model(model, tmp_path, top_k=7, verify=False)
    assert_answers(folder, model, 6)


@pytest.mark.parametrize("quantize", quick([None, "int8"], [None]))
@pytest.mark.parametrize("name", quick(["dot", "sigmoid"], ["dot"]))
def test_inverted_lists(name, quantize, tmp_path):
    """Approximate answers are those of the export in TensorFlow."""
    model = make_model(name)
    search = tfxclass.export.InvertedLists(10, 3, 0.01, portable=True)
    folder = tfxclass.export.saved_model(
        model, tmp_path, 7, verify=False, search=search, quantize=quantize
    )
    x = np.random.default_rng(1).normal(size=(6, 5)).astype("float32")
    served = tf.saved_model.load(folder).signatures["serving_default"]
    found, expected = runner_of(folder)(x=x), served(x=tf.constant(x))
    np.testing.assert_array_equal(found["ids"], expected["ids"])
    np.testing.assert_allclose(
        found["scores"], expected["scores"], rtol=1e-4, atol=1e-6
    )


def test_names_are_left_out(tmp_path):
    """LiteRT cannot look them up."""
    model = make_model("dot")
    model.layers[-1].class_names = [f"class {i}" for i in range(NUM_CLASSES)]
    folder = tfxclass.export.saved_model(
        model, tmp_path, 7, labels=False, verify=False
    )
    found = runner_of(folder)(x=np.ones([1, 5], "float32"))
    assert sorted(found) == ["ids", "scores"]
