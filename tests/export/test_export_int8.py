"""Exports with class rows in int8 with a scale each."""

import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tfxclass.export import searches
from tfxclass.ops import bfloat16_rows
from tfxclass.rows import export_rows
from tfxclass.rows import stock_search
from tfxclass.rows.class_matrix import ClassRows

NUM_CLASSES = 3_000
DIM = 64


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(0)


def make_model(num_classes=NUM_CLASSES, **arguments):
    head = tfxclass.layers.FullSoftmax(num_classes, **arguments)
    layers = [keras.Input((5,), name="x"), keras.layers.Dense(DIM), head]
    model = keras.Sequential(layers)
    rng = np.random.default_rng(0)
    for weight in (head.kernel, head.bias):
        if weight is not None:
            weight.assign(rng.normal(size=weight.shape))
    return model


def random_rows(n=1_000, dim=DIM, seed=0):
    return np.random.default_rng(seed).normal(size=(n, dim)).astype("float32")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_are_rounded_to_a_254th_of_their_greatest_number(dtype):
    rows = tf.cast(random_rows() * 10.0 ** np.arange(-32, 32), dtype)
    rows = tf.concat([rows, tf.zeros([1, DIM], dtype)], axis=0)
    found = export_rows.quantize(rows, block=300)
    assert found.codes.dtype == tf.int8 and found.shape == rows.shape
    rows = bfloat16_rows.widen(rows).numpy().astype(float)
    most = np.abs(rows).max(axis=1, keepdims=True)
    error = np.abs(found.floats(tf.range(len(rows))).numpy() - rows)
    assert np.all(error <= most * (1 / 254 + 1e-6))
    assert np.abs(found.codes.numpy()).max() == 127


@pytest.mark.parametrize("start, size", [(0, 1_000), (128, 700), (960, 640)])
def test_products_of_blocks(start, size):
    rows, queries = export_rows.quantize(random_rows()), random_rows(3, seed=1)
    found = rows.read().products(queries, tf.constant(start, tf.int64), size)
    wide = rows.floats(tf.range(1_000)).numpy()
    expected = queries @ wide[start : start + size].T
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_search_in_blocks_is_that_of_the_rounded_rows(monkeypatch):
    monkeypatch.setattr(export_rows, "_PARTS", 2)
    monkeypatch.setattr(export_rows, "_PART_FLOATS", 64 * DIM)
    kernel, queries = random_rows(), random_rows(3, seed=1)
    bias = tf.Variable(random_rows(1_000, 1, 2)[:, 0])
    rows = stock_search.stored(ClassRows(kernel, bias), export_rows.quantize)
    assert rows.kernel.block == 128
    wide = ClassRows(rows.kernel.floats(tf.range(1_000)), bias)
    for k in (5, 129):
        found, expected = (
            stock_search.best(queries, x, k) for x in (rows, wide)
        )
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.logits, expected.logits, rtol=1e-4)
        np.testing.assert_allclose(
            found.logsumexp, expected.logsumexp, rtol=1e-5
        )


def report_of(folder):
    with open(os.path.join(folder, "assets.extra", "search.json")) as f:
        return json.load(f)


def size_of(folder):
    path = os.path.join(folder, "variables", "variables.data-00000-of-00001")
    return os.path.getsize(path)


def answers_of(folder, x):
    served = tf.saved_model.load(folder).signatures["serving_default"]
    return {key: value.numpy() for key, value in served(x=x).items()}


@pytest.mark.parametrize("with_lists", quick([False, True], [False]))
def test_proven_export(with_lists, tmp_path):
    """The proof compares each signature; here with the model itself."""
    model = make_model(use_bias=True)
    x = np.random.default_rng(1).normal(size=(64, 5)).astype("float32")
    search = tfxclass.export.InvertedLists(num_lists=60) if with_lists else None
    folder = tfxclass.export.saved_model(
        model,
        tmp_path,
        top_k=7,
        example_inputs=x,
        quantize="int8",
        full_scores=True,
        exclude=3,
        only=not with_lists,
        search=search,
    )
    rows = NUM_CLASSES * DIM
    # Scales, biases and, of lists, order and centres are beside the codes.
    beside = 60 * DIM * 4 + 8 * NUM_CLASSES if with_lists else 0
    size = size_of(folder) - beside
    assert rows < size < 1.2 * rows + 8 * NUM_CLASSES
    report = report_of(folder)
    ids, scores = tfxclass.top_k(model, 7)(x)
    if with_lists:
        scores = model.layers[-1].logits(model.layers[0](x)).numpy()
        scores = np.take_along_axis(scores, ids.numpy(), axis=1)
    answers = answers_of(folder, x)
    found = searches.measure((answers["ids"], answers["scores"]), (ids, scores))
    assert report["quantize"] == "int8" and report["top_k"] == 7
    assert report["recall"] == pytest.approx(found["recall"])
    assert report["recall"] >= 0.95
    error = report["score_error"]
    assert error == pytest.approx(found["score_error"], rel=0.01)
    assert 0 < error["mean"] < error["max"]


def test_without_examples_random_features_are_asked():
    head = make_model().layers[-1]
    report = searches.int8_search(head, None, DIM, 10, 0.9).measured
    assert report["measured_on"] == "random features"
    assert 0.9 < report["recall"] < 1


def test_low_recall_is_refused(tmp_path):
    model = make_model()
    kernel = model.layers[-1].kernel
    # Rows that only differ where they are rounded.
    kernel.assign(100.0 * np.eye(1, DIM) + 0.1 * random_rows(NUM_CLASSES))
    arguments = {"quantize": "int8", "top_k": 5, "verify": False}
    with pytest.raises(ValueError, match="min_recall=0.95. Received: 0.0"):
        tfxclass.export.saved_model(model, tmp_path, **arguments)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"quantize": "int4"}, "`quantize` must be None or .* 'int4'"),
        ({"min_recall": 2.0}, r"`min_recall` must be in \[0, 1\].*2.0"),
    ],
)
def test_bad_arguments(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        tfxclass.export.saved_model(make_model(), tmp_path, **arguments)
    assert os.listdir(tmp_path) == []
