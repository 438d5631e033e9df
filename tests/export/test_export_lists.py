"""Inverted lists that know probabilities, and those of an earlier export."""

import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tfxclass.export import InvertedLists
from tfxclass.export import accuracy

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


HEADS = {
    "dot": {"use_bias": True},
    "cosine": {"similarity": tfxclass.layers.Cosine(scale=3.0)},
    "tempered": {"use_bias": True, "answer_temperature": 2.0},
}


@pytest.mark.parametrize("kind", HEADS)
def test_log_sum_of_what_is_read_and_the_rest(kind):
    model = make_model(0.3, **HEADS[kind])
    head, x = model.layers[-1], queries(model)
    lists = InvertedLists(40, 2, 0.1, probabilities=True)
    search = lists.build(head, 5, x)
    logits = head.answer_scale * head.logits(x)
    exact = tf.reduce_logsumexp(tf.cast(logits, tf.float64), axis=1).numpy()
    ids, _, seen = search.read(head.queries(x), 5)
    ids = ids.numpy()
    # Most of the mass is not read.
    assert np.mean(exact - seen.total) > 0.4
    errors = np.abs(search.sums.total(seen)[:, 0] - exact)[1::2]
    assert errors.mean() < 0.05
    report = search.measured
    assert report["log_sum_error"]["mean"] == pytest.approx(
        errors.mean(), rel=1e-3
    )
    assert report["log_sum_error"]["max"] == pytest.approx(
        errors.max(), rel=1e-3
    )
    scores = search.top_k(x, 5)[1].numpy()
    true = np.take_along_axis(np.array(head.activate(head.logits(x))), ids, 1)
    np.testing.assert_allclose(scores, true, rtol=0.25)
    found = accuracy.measure((ids, scores), head.top_k(x, 5))
    assert report["score_error"] == pytest.approx(
        found["score_error"], rel=1e-3
    )


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_all_lists_are_exact(activation):
    loss = {"loss": "sigmoid"} if activation == "sigmoid" else {}
    model = make_model(use_bias=True, activation=activation, **loss)
    head, x = model.layers[-1], queries(model)
    # Those of one vs. rest need no sum, whatever is read.
    probes = 20 if activation == "softmax" else 5
    search = InvertedLists(20, probes, 0.01, probabilities=True).build(
        head, 3, x
    )
    assert (search.sums is None) == (activation == "sigmoid")
    ids, scores = search.top_k(x, 3)
    all_scores = np.array(head.activate(head.logits(x)))
    true = np.take_along_axis(all_scores, ids.numpy(), axis=1)
    np.testing.assert_allclose(scores, true, rtol=1e-4)


@pytest.mark.parametrize("quantize", quick(["int8", None], []))
def test_an_export_has_thresholds(quantize, tmp_path):
    """The proof compares its answers; here, how near they are to exact."""
    model = make_model(strength=2.0)
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
        search=InvertedLists(40, probabilities=True),
    )
    served = tf.saved_model.load(folder).signatures["serving_default"]
    found = {key: value.numpy() for key, value in served(x=x).items()}
    ids, scores = (v.numpy() for v in tfxclass.top_k(model, 4)(x))
    is_clear = np.abs(scores / threshold - 1) > 0.2
    is_above = (found["ids"] >= 0)[is_clear]
    assert np.mean(is_above == (scores >= threshold)[is_clear]) > 0.97
    report = report_of(folder)
    assert report["log_sum_error"]["mean"] < 0.05
    assert 0 < report["score_error"]["mean"] < 0.02
    assert ("quantize" in report) == (quantize is not None)


def test_refused(tmp_path):
    model = make_model(activation=None)
    with pytest.raises(ValueError, match="`probabilities` needs a head .*None"):
        InvertedLists(probabilities=True).build(model.layers[-1], 5)
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
