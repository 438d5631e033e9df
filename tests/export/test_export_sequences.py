"""Exports of models whose features are [batch, time, dim]."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tfxclass import layers

CLASSES, DIM, K = 50, 6, 3
WORDS = np.array([[1, 2, 3, 0], [4, 5, 6, 7]])
HEADS = {
    "full": lambda: layers.FullSoftmax(CLASSES, use_bias=True),
    "adaptive": lambda: layers.AdaptiveSoftmax(CLASSES, [10, 20]),
    "hierarchical": lambda: layers.HierarchicalSoftmax(CLASSES, "balanced"),
}


def make_model(head):
    keras.utils.set_random_seed(1)
    words = keras.Input([None], dtype="int64", name="words")
    embedding = keras.layers.Embedding(9, DIM, mask_zero=True)
    return keras.Model(words, head(embedding(words)))


@pytest.mark.parametrize("name", HEADS)
def test_saved_model(name, tmp_path):
    model = make_model(HEADS[name]())
    names = [f"w{i}" for i in range(CLASSES)]
    folder = tfxclass.export.saved_model(
        model, tmp_path, top_k=K, labels=names, full_scores=True
    )
    served = tf.saved_model.load(folder).signatures
    given = {"words": tf.constant(WORDS)}
    answers = served["serving_default"](**given)
    ids, scores = tfxclass.top_k(model, K).predict(WORDS, verbose=0)
    assert ids.shape == (2, 4, K)
    np.testing.assert_array_equal(answers["ids"], ids)
    np.testing.assert_allclose(answers["scores"], scores, rtol=2e-5)
    np.testing.assert_array_equal(
        answers["labels"], np.array(names, "S3").astype(object)[ids]
    )
    assert served["full_scores"](**given)["scores"].shape == (2, 4, CLASSES)
    assert served["embed"](**given)["features"].shape == (2, 4, DIM)


def test_inverted_lists(tmp_path):
    model = make_model(HEADS["full"]())
    search = tfxclass.export.InvertedLists(num_lists=5, num_probes=5)
    folder = tfxclass.export.saved_model(
        model, tmp_path, top_k=K, search=search
    )
    served = tf.saved_model.load(folder).signatures["serving_default"]
    ids, _ = tfxclass.top_k(model, K).predict(WORDS, verbose=0)
    np.testing.assert_array_equal(served(words=WORDS)["ids"], ids)


@pytest.mark.parametrize("activation", ["softmax", None])
def test_onnx(activation, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    head = layers.FullSoftmax(CLASSES, activation=activation)
    model = make_model(head)
    path = tfxclass.export.onnx(model, tmp_path / "m", top_k=K)
    session = onnxruntime.InferenceSession(
        path, providers=["CPUExecutionProvider"]
    )
    ids, scores = session.run(["ids", "scores"], {"words": WORDS})
    expected = tfxclass.top_k(model, K).predict(WORDS, verbose=0)
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_allclose(scores, expected[1], rtol=2e-5, atol=1e-6)
