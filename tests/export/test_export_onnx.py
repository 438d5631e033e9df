"""ONNX exports answer in ONNX Runtime as the model does."""

import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tfxclass.rows.class_matrix import ClassRows

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("tf2onnx")

NUM_CLASSES = 200
HEADS = {
    "dot": (tfxclass.layers.FullSoftmax, {"use_bias": True}),
    "logits": (tfxclass.layers.FullSoftmax, {"activation": None}),
    "cosine": (
        tfxclass.layers.SampledSoftmax,
        {"num_sampled": 9, "similarity": "cosine"},
    ),
    "projected": (tfxclass.layers.ProjectedSoftmax, {"projection_dim": 4}),
}


@pytest.fixture(autouse=True)
def seed():
    keras.utils.set_random_seed(0)


def make_model(name="dot", num_classes=NUM_CLASSES):
    layer, arguments = HEADS[name]
    head = layer(num_classes, **arguments)
    layers = [
        keras.Input((5,), name="x"),
        keras.layers.Dense(12, activation="silu"),
        keras.layers.LayerNormalization(),
    ]
    model = keras.Sequential([*layers, head])
    if getattr(head, "bias", None) is not None:
        bias = np.random.default_rng(0).normal(size=num_classes)
        bias[3:50] = -np.inf
        head.bias.assign(bias)
    return model


def ask(path, **inputs):
    session = onnxruntime.InferenceSession(path)
    return session.run(["ids", "scores"], inputs)


@pytest.mark.parametrize("name", HEADS)
def test_answers_equal_the_models(name, tmp_path):
    model = make_model(name)
    path = tfxclass.export.onnx(model, tmp_path / "m", top_k=7)
    assert sorted(os.listdir(tmp_path)) == ["m"]
    assert sorted(os.listdir(tmp_path / "m")) == ["classes.bin", "model.onnx"]
    for batch in (1, 9):
        x = np.random.default_rng(batch).normal(size=(batch, 5))
        x = x.astype("float32")
        ids, scores = ask(path, x=x)
        live_ids, live_scores = tfxclass.top_k(model, 7)(x)
        np.testing.assert_array_equal(ids, live_ids)
        np.testing.assert_allclose(scores, live_scores, rtol=2e-5, atol=1e-6)


def test_embeddings_several_inputs_and_labels(tmp_path):
    ids = keras.Input((4,), dtype="int64", name="words")
    x = keras.Input((3,), name="x")
    words = keras.layers.Embedding(30, 8)(ids)
    pooled = keras.layers.GlobalAveragePooling1D()(words)
    features = keras.layers.Concatenate()([pooled, x])
    model = keras.Model(
        [ids, x], tfxclass.layers.FullSoftmax(NUM_CLASSES)(features)
    )
    names = [f"name {i}" for i in range(NUM_CLASSES)]
    path = tfxclass.export.onnx(model, tmp_path / "a" / "m", labels=names)
    inputs = {
        "words": np.arange(8).reshape(2, 4),
        "x": np.ones((2, 3), "float32"),
    }
    found, _ = ask(path, **inputs)
    live, _ = tfxclass.top_k(model, 10)(list(inputs.values()))
    np.testing.assert_array_equal(found, live)
    with open(tmp_path / "a" / "m" / "labels.txt") as f:
        assert f.read().splitlines() == names


def make_encoded(encoder, dtype="float32"):
    shape = (None,) if dtype == "int32" else (5,)
    x = keras.Input(shape, dtype=dtype, name="x")
    return keras.Model(x, tfxclass.layers.FullSoftmax(NUM_CLASSES)(encoder(x)))


def assert_answers(path, model, x, rtol=2e-5):
    ids, scores = ask(path, x=x)
    live_ids, live_scores = tfxclass.top_k(model, 10)(x)
    np.testing.assert_array_equal(ids, live_ids)
    np.testing.assert_allclose(scores, live_scores, rtol=rtol, atol=1e-6)


def test_constants_and_ops_of_preprocessing_layers(tmp_path):
    """Constants of a layer that are no variables, and ops tf2onnx lacks."""
    x = np.random.default_rng(0).normal(size=(6, 5)).astype("float32")
    x[0] = [-1, -0.5, 0, 1, 2]  # On the boundaries.
    normalize = keras.layers.Normalization()
    normalize.adapt(3 * x + 1)
    buckets = keras.layers.Discretization([-1.0, 0.0, 1.0])
    vectors = keras.layers.Embedding(4, 3)

    def encode(inputs):
        of_buckets = keras.layers.Flatten()(vectors(buckets(inputs)))
        hidden = keras.layers.Dense(9, "gelu")(normalize(inputs))
        return keras.layers.Concatenate()([hidden, of_buckets])

    model = make_encoded(encode)
    path = tfxclass.export.onnx(model, tmp_path / "m", example_inputs=x)
    assert_answers(path, model, x)


@pytest.mark.parametrize("kind", [None, "exclude", "only"])
def test_rows_of_nan_have_no_answer(kind, tmp_path):
    vectors = keras.layers.Embedding(9, 12, mask_zero=True)
    pool = keras.layers.GlobalAveragePooling1D()
    model = make_encoded(lambda x: pool(vectors(x)), "int32")
    filters = {} if kind is None else {kind: True}
    # The made-up rows have one of padding.
    path = tfxclass.export.onnx(model, tmp_path / "m", **filters)
    given = {}
    if kind is not None:
        given = {f"{kind}_ids": np.array([[3, 5, -1]] * 2)}
    x = np.array([[0, 0], [1, 2]], "int32")
    ids, scores = ask(path, x=x, **given)
    assert np.all(ids[0] == -1) and np.all(scores[0] == 0)
    assert ids[1, 0] >= 0 and scores[1, 0] > 0


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_model_of_16_bits_is_written_in_float32(policy, tmp_path):
    import onnx

    layers = [keras.layers.Dense(16, "relu", dtype=policy) for _ in range(3)]
    model = make_encoded(keras.Sequential(layers))
    x = np.random.default_rng(0).normal(size=(6, 5)).astype("float32")
    path = tfxclass.export.onnx(model, tmp_path / "m", example_inputs=x)
    ids, scores = ask(path, x=x)
    kinds = {x.data_type for x in onnx.load(path).graph.initializer}
    narrow = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    assert not kinds & narrow
    _, live = tfxclass.top_k(model, 10)(x)
    np.testing.assert_allclose(scores, live, rtol=0.05)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_wrong_rows_are_refused(policy, tmp_path, monkeypatch):
    model = make_encoded(keras.layers.Dense(16, "relu", dtype=policy))
    head = model.layers[-1]
    rng = np.random.default_rng(0)
    rows = rng.normal(size=head.kernel.shape).astype("float32")
    head.kernel.assign(rows)
    wrong = ClassRows(tf.constant(np.roll(rows, 1, axis=0)), is_stock=True)
    monkeypatch.setattr(head, "export_weights", lambda: [wrong])
    with pytest.raises(RuntimeError, match="of the export differ"):
        tfxclass.export.onnx(model, tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_text_is_refused_with_the_way_round(tmp_path):
    vectorize = keras.layers.TextVectorization(
        output_sequence_length=4, vocabulary=["a", "b"]
    )
    text = keras.Input((), dtype="string", name="text")
    words = keras.layers.Embedding(5, 8)(vectorize(text))
    features = keras.layers.GlobalAveragePooling1D()(words)
    head = tfxclass.layers.FullSoftmax(NUM_CLASSES)
    with pytest.raises(ValueError, match="(?s)StringLower.*Begin the model"):
        tfxclass.export.onnx(keras.Model(text, head(features)), tmp_path / "m")
    assert os.listdir(tmp_path) == []


class Fourier(keras.layers.Layer):
    """Uses an op that tf2onnx does not convert."""

    def call(self, x):
        return keras.ops.erfinv(keras.ops.tanh(x))

    def compute_output_shape(self, shape):
        return shape


def test_op_that_is_not_converted(tmp_path):
    head = tfxclass.layers.FullSoftmax(NUM_CLASSES)
    model = keras.Sequential([keras.Input((5,), name="x"), Fourier(), head])
    with pytest.raises(ValueError, match="tf2onnx does not convert.*Erfinv"):
        tfxclass.export.onnx(model, tmp_path / "m")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"top_k": 0}, "`top_k` must be a positive integer"),
        ({"labels": ["a"]}, "1 names with num_classes=200"),
        ({"example_inputs": {"z": 1}}, r"inputs \['x'\]"),
    ],
)
def test_bad_arguments(arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        tfxclass.export.onnx(make_model(), tmp_path / "m", **arguments)
    assert os.listdir(tmp_path) == []


def test_other_heads_and_paths(tmp_path):
    head = tfxclass.layers.AdaptiveSoftmax(NUM_CLASSES, cutoffs=[20])
    model = keras.Sequential([keras.Input((5,), name="x"), head])
    with pytest.raises(ValueError, match="Received: AdaptiveSoftmax"):
        tfxclass.export.onnx(model, tmp_path / "m")
    model = keras.Sequential([keras.Input((5,), name="ids"), Fourier()])
    model.add(tfxclass.layers.FullSoftmax(NUM_CLASSES))
    with pytest.raises(ValueError, match=r"name of an output.*\['ids'\]"):
        tfxclass.export.onnx(model, tmp_path / "m")
    (tmp_path / "there").mkdir()
    with pytest.raises(ValueError, match="must not exist yet.*another path"):
        tfxclass.export.onnx(make_model(), tmp_path / "there")


def test_other_answers_are_refused(tmp_path, monkeypatch):
    model = make_model()
    head = model.layers[-1]
    wrong = head.kernel.value + 1.0
    monkeypatch.setattr(
        head, "export_weights", lambda: [ClassRows(wrong, is_stock=True)]
    )
    with pytest.raises(RuntimeError, match="`scores` of the export differ"):
        tfxclass.export.onnx(model, tmp_path / "m")
    assert os.listdir(tmp_path) == []


def test_without_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(
        ImportError, match="pip install tf2onnx onnx onnxruntime"
    ):
        tfxclass.export.onnx(make_model(), tmp_path / "m")


def test_onnx_runtimes_own_tool_quantizes_an_export(tmp_path):
    """As serving/README.md recommends it."""
    from onnxruntime import quantization

    model = make_model("logits")
    path = tfxclass.export.onnx(model, tmp_path / "m", top_k=7)
    small = tmp_path / "small.onnx"
    quantization.quantize_dynamic(
        path,
        small,
        op_types_to_quantize=["Gemm"],
        per_channel=True,
        use_external_data_format=True,
    )
    x = np.random.default_rng(1).normal(size=(64, 5)).astype("float32")
    found, expected = ask(small, x=x)[0], ask(path, x=x)[0]
    shared = [len(set(a) & set(b)) / 7 for a, b in zip(found, expected)]
    assert np.mean(shared) > 0.8


@pytest.mark.slow
def test_more_than_two_gigabytes(tmp_path):
    head = tfxclass.layers.FullSoftmax(4_300_000, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((128,), name="x"), head])
    ids = np.array([17, 1_000_003, 4_299_999])
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3, 128)).astype("float32")
    head.kernel.value.scatter_nd_update(ids[:, np.newaxis], rows)
    path = tfxclass.export.onnx(model, tmp_path / "m", example_inputs=rows)
    size = os.path.getsize(tmp_path / "m" / "classes.bin")
    assert size == 4 * 128 * 4_300_000 > 2**31
    assert os.path.getsize(path) < 10_000
    found, _ = ask(path, x=rows)
    assert found[:, 0].tolist() == ids.tolist()
