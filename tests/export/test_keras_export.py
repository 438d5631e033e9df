"""Keras' own `export` of a head, and the names of inputs of our exports."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import tfxclass
from tfxclass.export import checks

CLASSES = 50


def dense_model(head=None, **options):
    """A model whose input has a name only if one is given."""
    head = head or tfxclass.layers.FullSoftmax(CLASSES)
    return keras.Sequential([keras.Input([3], **options), head])


def test_keras_exports_all_scores(tmp_path):
    model = dense_model()
    model.export(tmp_path, verbose=False)
    saved = saved_model_pb2.SavedModel.FromString(
        (tmp_path / "saved_model.pb").read_bytes()
    )
    ops = checks.ops_of(saved.meta_graphs[0])
    assert not [op for op in ops if op.startswith("Tfxclass")]
    x = np.ones([2, 3], "float32")
    loaded = tf.saved_model.load(tmp_path)
    found = loaded.serve(x)
    np.testing.assert_allclose(found, model(x), rtol=1e-6)


def test_keras_cannot_export_answers(tmp_path):
    """It would write compiled ops, which nobody can load."""
    best = tfxclass.top_k(dense_model(), k=3)
    with pytest.raises(ValueError, match="Fix: .*tfxclass.export.saved_model"):
        best.export(tmp_path)
    best.save(tmp_path / "best.keras")
    with pytest.raises(ValueError, match="Fix: .*tfxclass.export.saved_model"):
        keras.models.load_model(tmp_path / "best.keras").export(tmp_path)


def inputs_of(folder):
    signature = tf.saved_model.load(folder).signatures["serving_default"]
    return sorted(signature.structured_input_signature[1])


def text_model():
    inputs = keras.Input([1], dtype="string")
    hashed = keras.layers.Hashing(8, output_mode="multi_hot")(inputs)
    return keras.Model(inputs, tfxclass.layers.FullSoftmax(9)(hashed))


def pair_model():
    a, b = keras.Input([3]), keras.Input([2])
    features = keras.layers.Concatenate()([a, b])
    return keras.Model([a, b], tfxclass.layers.FullSoftmax(9)(features))


@pytest.mark.parametrize(
    "make, names",
    [
        (dense_model, ["features"]),
        (lambda: dense_model(name="x"), ["x"]),
        (text_model, ["text"]),
        (pair_model, ["features_1", "features_2"]),
    ],
)
def test_inputs_have_names_for_people(make, names, tmp_path):
    model = make()
    before = [x.name for x in model.inputs]
    folder = tfxclass.export.saved_model(model, tmp_path, top_k=3, exclude=True)
    assert inputs_of(folder) == names
    assert [x.name for x in model.inputs] == before


def test_names_of_a_loaded_model(tmp_path):
    path = tmp_path / "model.keras"
    model = keras.Sequential([tfxclass.layers.FullSoftmax(CLASSES)])
    model(np.ones([2, 3], "float32"))
    model.save(path)
    loaded = keras.saving.load_model(path)
    folder = tfxclass.export.saved_model(loaded, tmp_path / "served", top_k=3)
    assert inputs_of(folder) == ["features"]


def test_names_in_onnx(tmp_path):
    pytest.importorskip("tf2onnx")
    import onnx

    path = tfxclass.export.onnx(dense_model(), tmp_path / "onnx", top_k=3)
    graph = onnx.load(path, load_external_data=False).graph
    assert [x.name for x in graph.input] == ["features"]
