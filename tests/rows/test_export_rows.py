"""Class rows of exports as columns: the same answers as rows'."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support import reference
from tfxclass.rows import export_rows
from tfxclass.rows import stock_search
from tfxclass.rows.class_matrix import ClassRows

DIM = 24


def make_rows(n, dtype="float32", seed=0):
    rows = np.random.default_rng(seed).normal(size=(n, DIM))
    return tf.cast(rows, dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("n", "width"), [(100, 100), (100, 40), (1, 40)])
def test_rows_are_kept(n, width, dtype):
    rows = make_rows(n, dtype)
    found = export_rows.in_columns(rows, width)
    assert found.shape == rows.shape and found.columns.dtype == rows.dtype
    assert found.block <= max(width, 48)
    rows = tf.cast(rows, tf.float32)
    np.testing.assert_array_equal(found.floats(np.arange(n)), rows)
    ids = np.array([[n - 1, 0], [n // 2, n // 3]])
    np.testing.assert_array_equal(found.floats(ids), tf.gather(rows, ids))


@pytest.mark.parametrize("width", [100, 40])
@pytest.mark.parametrize("k", [3, 50, 100])
def test_search_is_that_of_the_rows(width, k):
    rows, queries = make_rows(100), make_rows(4, seed=1)
    bias = tf.Variable(make_rows(100, seed=2)[:, 0])
    stored = stock_search.stored(
        ClassRows(tf.Variable(rows), bias),
        lambda kernel: export_rows.in_columns(kernel, width),
    )
    logits = (queries @ tf.transpose(rows) + bias).numpy()
    np.testing.assert_allclose(
        stock_search.all_logits(queries, stored), logits, rtol=1e-5, atol=1e-5
    )
    ids, scores, logsumexp = stock_search.best(queries, stored, k)
    expected_ids, expected = reference.top_k(logits, k)
    np.testing.assert_array_equal(ids, expected_ids)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    total = tf.reduce_logsumexp(tf.cast(logits, tf.float64), 1, keepdims=True)
    np.testing.assert_allclose(logsumexp, total, rtol=1e-5)


def test_padding_is_left_out():
    kernel, queries = tf.Variable(make_rows(100)), make_rows(4, seed=1)
    bias = tf.Variable(make_rows(100, seed=2)[:, 0])
    rows = ClassRows(kernel, bias, first=7, size=90)
    stored = stock_search.stored(rows, export_rows.in_columns)
    found, expected = (
        stock_search.best(queries, x, 90) for x in (stored, rows)
    )
    np.testing.assert_array_equal(found.ids, expected.ids)
    assert found.ids.numpy().max() == 96


def variables_of(folder):
    names = tf.train.list_variables(f"{folder}/variables/variables")
    return [shape for name, shape in names if "OBJECT_GRAPH" not in name]


def test_tied_rows_are_saved_once(tmp_path):
    """As the embedding has them."""
    embedding = keras.layers.Embedding(50, DIM)
    model = keras.Sequential(
        [
            keras.Input((3,), dtype="int32"),
            embedding,
            keras.layers.GlobalAveragePooling1D(),
            tfxclass.layers.FullSoftmax(50, tied_to=embedding),
        ]
    )
    folder = tfxclass.export.saved_model(model, tmp_path, top_k=3, verify=False)
    assert variables_of(folder).count([50, DIM]) == 1
    assert not any(len(shape) == 3 for shape in variables_of(folder))


def test_an_export_has_them(tmp_path):
    head = tfxclass.layers.FullSoftmax(50)
    model = keras.Sequential([keras.Input((DIM,)), head])
    folder = tfxclass.export.saved_model(model, tmp_path, top_k=3, only=True)
    assert variables_of(folder) == [[1, DIM, 50]]
