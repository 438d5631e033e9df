"""Scores and thresholds of exports with inverted lists."""

import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tfxclass.export import InvertedLists

NUM_CLASSES, DIM, CLUSTERS = 2_000, 12, 40


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(0)


def make_model(strength=0.5, answer_temperature=1.0, **arguments):
    """Rows in clusters, whose softmax is the flatter, the weaker they are."""
    head = tfxclass.layers.FullSoftmax(NUM_CLASSES, **arguments)
    head.answer_temperature = answer_temperature
    dense = keras.layers.Dense(DIM, use_bias=False)
    model = keras.Sequential([keras.Input((DIM,), name="x"), dense, head])
    dense.kernel.assign(np.eye(DIM))
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLUSTERS, DIM))
    rows = centres[rng.integers(CLUSTERS, size=NUM_CLASSES)]
    rows += 0.3 * rng.normal(size=rows.shape)
    head.kernel.assign(strength * rows)
    if head.bias is not None:
        bias = rng.normal(size=NUM_CLASSES)
        bias[:5] = -np.inf
        head.bias.assign(bias)
    return model


def queries(model, n=64, seed=1):
    """Near to class rows."""
    rng = np.random.default_rng(seed)
    rows = model.layers[-1].kernel.numpy()
    rows = rows[rng.integers(NUM_CLASSES, size=n)]
    near = rows / np.abs(rows).mean() + 0.3 * rng.normal(size=rows.shape)
    return near.astype("float32")


def report_of(folder):
    with open(os.path.join(folder, "assets.extra", "search.json")) as f:
        return json.load(f)


def test_a_softmax_has_logits_and_a_sigmoid_probabilities():
    """Exact ones, whatever is read."""
    for loss in ("softmax", "sigmoid"):
        model = make_model(use_bias=True, loss=loss, answer_temperature=2.0)
        head, x = model.layers[-1], queries(model)
        search = InvertedLists(20, 5, 0.01).build(head, 3, x)
        ids, scores = search.top_k(x, 3)
        expected = head.logits(x)
        if loss == "sigmoid":
            expected = head.activate(expected)
        expected = np.take_along_axis(np.array(expected), ids.numpy(), axis=1)
        np.testing.assert_allclose(scores, expected, rtol=1e-4)


@pytest.mark.parametrize("quantize", quick(["int8", None], []))
def test_an_export_with_a_sigmoid_has_thresholds(quantize, tmp_path):
    """The proof compares its answers; here, how near they are to exact."""
    model = make_model(strength=2.0, loss="sigmoid")
    x = queries(model)
    threshold = float(np.median(tfxclass.top_k(model, 4)(x)[1]))
    folder = tfxclass.export.saved_model(
        model,
        tmp_path,
        top_k=4,
        threshold=threshold,
        example_inputs=x,
        quantize=quantize,
        exclude=2,
        search=InvertedLists(40),
    )
    served = tf.saved_model.load(folder).signatures["serving_default"]
    found = {key: value.numpy() for key, value in served(x=x).items()}
    ids, scores = (v.numpy() for v in tfxclass.top_k(model, 4)(x))
    is_clear = np.abs(scores / threshold - 1) > 0.02
    is_above = (found["ids"] >= 0)[is_clear]
    assert np.mean(is_above == (scores >= threshold)[is_clear]) > 0.97
    report = report_of(folder)
    assert ("quantize" in report) == (quantize is not None)
    if quantize is not None:
        assert 0 < report["score_error"]["mean"] < 0.02


def test_a_threshold_of_logits_is_refused(tmp_path):
    with pytest.raises(ValueError, match="threshold=0.5 with a search. Fix"):
        tfxclass.export.saved_model(
            make_model(), tmp_path, search=InvertedLists(), threshold=0.5
        )


def test_portable_lists_read_the_same():
    model = make_model(use_bias=True)
    x = queries(model)
    found = [
        InvertedLists(40, 3, 0.1, portable=portable)
        .build(model.layers[-1], 5, x)
        .top_k(x, 5)
        for portable in (False, True)
    ]
    for plain, portable in zip(*found):
        np.testing.assert_array_equal(plain, portable)
