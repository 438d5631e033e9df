"""Class rows as files: a search by inner product finds the model's best."""

import json
import os

import keras
import numpy as np
import pytest

import tfxclass
from tests.support.cases import check_refused
from tfxclass.export import vector_files

NUM_CLASSES, DIM = 150, 6
HEADS = {
    "dot": (tfxclass.layers.FullSoftmax, {}),
    "bias": (tfxclass.layers.FullSoftmax, {"use_bias": True}),
    "cosine": (
        tfxclass.layers.SampledSoftmax,
        {"num_sampled": 9, "similarity": "cosine", "removed": [3, 149]},
    ),
    "half": (tfxclass.layers.FullSoftmax, {"kernel_dtype": "bfloat16"}),
    "projected": (tfxclass.layers.ProjectedSoftmax, {"projection_dim": 4}),
}


def make_model(name):
    keras.utils.set_random_seed(0)
    layer, arguments = HEADS[name]
    head = layer(NUM_CLASSES, activation=None, **arguments)
    layers = [keras.Input((5,), name="x"), keras.layers.Dense(DIM), head]
    model = keras.Sequential(layers)
    if getattr(head, "bias", None) is not None and name == "bias":
        bias = np.random.default_rng(0).normal(size=NUM_CLASSES)
        bias[40:60] = -np.inf
        head.bias.assign(bias)
    return model


def read(folder):
    rows = np.load(os.path.join(folder, "rows.npy"), mmap_mode="r")
    with open(os.path.join(folder, "vectors.json")) as f:
        return rows, np.load(os.path.join(folder, "ids.npy")), json.load(f)


@pytest.mark.parametrize("name", HEADS)
def test_inner_products_are_the_logits(name, tmp_path, monkeypatch):
    monkeypatch.setattr(vector_files, "_BLOCK", 64)
    model = make_model(name)
    folder = tfxclass.export.vectors(model, tmp_path / "v")
    assert os.listdir(tmp_path) == ["v"]
    assert sorted(os.listdir(folder)) == ["ids.npy", "rows.npy", "vectors.json"]
    rows, ids, report = read(folder)
    assert rows.dtype == np.float32 and ids.dtype == np.int64
    left = {"bias": NUM_CLASSES - 20, "cosine": NUM_CLASSES - 2}
    assert len(rows) == len(ids) == left.get(name, NUM_CLASSES)
    has_bias = report["bias_column"] is not None
    assert (report["classes"], report["columns"]) == rows.shape
    assert has_bias == (name == "bias")
    assert not has_bias or report["bias_column"] == rows.shape[1] - 1
    x = np.random.default_rng(1).normal(size=(7, 5)).astype("float32")
    logits = tfxclass.export.vector_queries(model, x) @ rows.T
    places = np.argsort(-logits, axis=1)[:, :9]
    best, scores = tfxclass.top_k(model, 9)(x)
    np.testing.assert_array_equal(ids[places], best)
    np.testing.assert_allclose(
        np.take_along_axis(logits, places, axis=1), scores, rtol=1e-4, atol=1e-5
    )


def test_names_go_with_the_rows(tmp_path):
    names = [f"name {i}" for i in range(NUM_CLASSES)]
    folder = tfxclass.export.vectors(
        make_model("cosine"), tmp_path / "a" / "v", labels=names
    )
    with open(os.path.join(folder, "labels.txt")) as f:
        found = f.read().splitlines()
    assert found == [names[i] for i in read(folder)[1]]
    assert "name 3" not in found


@pytest.mark.parametrize(
    "arguments, parts",
    [
        ({"path": "there"}, ["`path` must not exist yet", "there"]),
        ({"labels": ["a"]}, ["1 names with num_classes=150"]),
        ({"labels": ["a\n"] * NUM_CLASSES}, ["one line each"]),
    ],
)
def test_bad_arguments(arguments, parts, tmp_path):
    (tmp_path / "there").mkdir()
    path = tmp_path / arguments.pop("path", "v")
    model = make_model("dot")
    check_refused(
        lambda: tfxclass.export.vectors(model, path, **arguments), parts
    )
    assert os.listdir(tmp_path) == ["there"]


def test_other_heads_are_refused(tmp_path):
    head = tfxclass.layers.AdaptiveSoftmax(NUM_CLASSES, cutoffs=[20])
    model = keras.Sequential([keras.Input((5,), name="x"), head])
    parts = ["one class vector for each class", "Received: AdaptiveSoftmax"]
    check_refused(lambda: tfxclass.export.vectors(model, tmp_path / "v"), parts)
    check_refused(
        lambda: tfxclass.export.vector_queries(model, np.ones((1, 5))), parts
    )
    assert os.listdir(tmp_path) == []
