"""A trained `Dense` model gets a head, and the way back; set vectors."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tests.support.growth_contract import small_data
from tfxclass import layers

DIM, CLASSES = 8, 60
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(autouse=True)
def fresh_keras():
    keras.utils.set_random_seed(0)


def dense_model(*last, dim=DIM, units=CLASSES):
    """A model that ends in `last`, or in `Dense`, all of it random."""
    last = last or [keras.layers.Dense(units, activation="softmax")]
    model = keras.Sequential(
        [
            keras.Input([DIM], name="x"),
            keras.layers.Dense(dim, activation="tanh"),
            *last,
        ]
    )
    for variable in model.trainable_variables:
        variable.assign(np.random.normal(size=variable.shape))
    return model


def answers(model, x):
    return model(x).numpy()


def dense(activation=None, **options):
    return keras.layers.Dense(CLASSES, activation=activation, **options)


ENDS = {
    "softmax": [lambda: [dense("softmax")], {}],
    "layer": [lambda: [dense(), keras.layers.Softmax()], {}],
    "activation": [lambda: [dense(), keras.layers.Activation("softmax")], {}],
    "no_bias": [lambda: [dense("softmax", use_bias=False)], {}],
    "sigmoid": [lambda: [dense("sigmoid")], {"loss": "sigmoid"}],
    "logits": [lambda: [dense()], {"activation": None}],
}


@pytest.mark.parametrize("name", ENDS)
def test_answers_stay(name):
    make, options = ENDS[name]
    model = dense_model(*make())
    x, _ = small_data()
    before = answers(model, x)
    head = layers.SampledSoftmax(CLASSES, 30, use_bias=True, **options)
    other = tfxclass.replace_head(model, head)
    np.testing.assert_allclose(answers(other, x), before, **TOLERANCE)
    np.testing.assert_array_equal(answers(model, x), before)


def test_a_head_that_replaced_dense_learns():
    x, y = small_data()
    head = layers.SampledSoftmax(CLASSES, 30, use_bias=True)
    other = tfxclass.replace_head(dense_model(), head)
    other.compile(tfxclass.optimizers.LazyAdam(0.01), loss=head.loss)
    before = other.evaluate(x, y, verbose=0)
    other.fit(x, y, epochs=5, verbose=0)
    assert other.evaluate(x, y, verbose=0) < before


def test_a_functional_model_and_a_square_kernel():
    """Two inputs, sequences, and as many classes as features."""
    a, b = keras.Input([4, DIM], name="a"), keras.Input([4, DIM], name="b")
    features = keras.layers.Add()([a, b])
    outputs = keras.layers.Dense(DIM, activation="softmax")(features)
    model = keras.Model({"a": a, "b": b}, outputs)
    head = layers.FullSoftmax(DIM, use_bias=True)
    other = tfxclass.replace_head(model, head)
    x = {k: np.random.normal(size=(3, 4, DIM)) for k in "ab"}
    np.testing.assert_allclose(
        answers(other, x), answers(model, x), rtol=1e-4, atol=1e-6
    )


def test_a_loaded_model(tmp_path):
    """One that was compiled, trained and saved by Keras alone."""
    model = dense_model()
    model.compile("adam", "sparse_categorical_crossentropy")
    x, y = small_data()
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "dense.keras")
    model = keras.models.load_model(tmp_path / "dense.keras")
    head = layers.SampledSoftmax(CLASSES, use_bias=True)
    other = tfxclass.replace_head(model, head)
    np.testing.assert_allclose(
        answers(other, x), answers(model, x), **TOLERANCE
    )


@pytest.mark.parametrize(
    "model, head, message",
    [
        (dense_model, lambda: layers.FullSoftmax(CLASSES), "use_bias=True"),
        (
            dense_model,
            lambda: layers.FullSoftmax(9),
            "for Dense",
        ),
        (
            dense_model,
            lambda: layers.FullSoftmax(CLASSES, loss="sigmoid"),
            'Fix: make the head with loss="softmax"',
        ),
        (
            dense_model,
            lambda: layers.FullSoftmax(CLASSES, similarity="cosine"),
            'similarity="dot"',
        ),
        (
            dense_model,
            lambda: layers.AdaptiveSoftmax(CLASSES, [20]),
            "one class vector",
        ),
        (
            dense_model,
            lambda: layers.ProjectedSoftmax(CLASSES, 4),
            "as wide as",
        ),
        (dense_model, lambda: dense(), "head of tfxclass.layers"),
        (
            lambda: dense_model(dense("relu")),
            lambda: layers.FullSoftmax(CLASSES),
            "softmax, sigmoid or none. Received: relu",
        ),
        (
            lambda: dense_model(keras.layers.Dropout(0.5)),
            lambda: layers.FullSoftmax(CLASSES),
            "must end in keras.layers.Dense.*Received: a Dropout",
        ),
        (
            lambda: keras.Sequential([dense()]),
            lambda: layers.FullSoftmax(CLASSES),
            "Fix: begin it with a keras.Input",
        ),
    ],
)
def test_what_cannot_be_replaced(model, head, message):
    with pytest.raises(ValueError, match=message):
        tfxclass.replace_head(model(), head())


def two_towers():
    encoder = keras.Sequential([keras.Input([3]), keras.layers.Dense(DIM)])
    titles = np.random.normal(size=(CLASSES, 3)).astype("float32")
    return layers.TwoTowerSoftmax(CLASSES, layers.ClassTower(encoder, titles))


HEADS = {
    "dot": lambda: layers.SampledSoftmax(CLASSES, use_bias=True),
    "cosine": lambda: layers.FullSoftmax(CLASSES, similarity="cosine"),
    "sigmoid": lambda: layers.FullSoftmax(CLASSES, loss="sigmoid"),
    "logits": lambda: layers.FullSoftmax(CLASSES, activation=None),
    "bfloat16": lambda: layers.FullSoftmax(CLASSES, kernel_dtype="bfloat16"),
    "projected": lambda: layers.ProjectedSoftmax(CLASSES, 4),
    "two_towers": two_towers,
}


@pytest.mark.parametrize("name", quick(HEADS, ["dot", "cosine", "two_towers"]))
def test_to_dense(name):
    model = dense_model(HEADS[name]())
    plain = tfxclass.to_dense(model)
    x, _ = small_data()
    np.testing.assert_allclose(
        answers(plain, x), answers(model, x), **TOLERANCE
    )


def test_removed_classes_and_temperature_stay():
    model = tfxclass.remove_classes(dense_model(HEADS["dot"]()), [3, 5])
    model.layers[-1].answer_temperature = 2.0
    x, _ = small_data()
    found = answers(tfxclass.to_dense(model), x)
    np.testing.assert_allclose(found, answers(model, x), **TOLERANCE)
    assert not np.any(found[:, [3, 5]])


_LOAD = """
import sys, keras, numpy as np
model = keras.models.load_model(sys.argv[1])
np.save(sys.argv[3], model(np.load(sys.argv[2])).numpy())
assert "tfxclass" not in sys.modules
"""


def test_a_dense_model_needs_no_tfxclass(tmp_path):
    model = dense_model(HEADS["dot"]())
    path, given, found = (
        str(tmp_path / name) for name in ("plain.keras", "x.npy", "y.npy")
    )
    tfxclass.to_dense(model).save(path)
    x, _ = small_data()
    np.save(given, x)
    command = [sys.executable, "-c", _LOAD, path, given, found]
    subprocess.run(command, check=True, cwd=tmp_path)
    np.testing.assert_allclose(np.load(found), answers(model, x), **TOLERANCE)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: layers.AdaptiveSoftmax(CLASSES, [20]), "export.saved_model"),
        (lambda: dense(), "exactly one head"),
    ],
)
def test_what_is_no_dense(make, message):
    with pytest.raises(ValueError, match=message):
        tfxclass.to_dense(dense_model(make()))


def vectors_of(count=CLASSES, dim=DIM):
    return np.random.normal(size=(count, dim)).astype(np.float32)


def test_vectors_in_both_orientations():
    model = dense_model(HEADS["dot"]())
    head, vectors, bias = model.layers[-1], vectors_of(), vectors_of()[:, 0]
    assert tfxclass.set_class_vectors(model, vectors, bias) is model
    np.testing.assert_array_equal(head.kernel, vectors)
    np.testing.assert_array_equal(head.bias, bias)
    tfxclass.set_class_vectors(model, -vectors.T)
    np.testing.assert_array_equal(head.kernel, -vectors)


def test_a_square_matrix_is_not_guessed():
    model = dense_model(layers.FullSoftmax(DIM))
    square = vectors_of(DIM)
    with pytest.raises(ValueError, match="class_axis=0 for torch"):
        tfxclass.set_class_vectors(model, square)
    for axis, expected in enumerate([square, square.T]):
        tfxclass.set_class_vectors(model, square, class_axis=axis)
        np.testing.assert_array_equal(model.layers[-1].kernel, expected)


def test_vectors_of_some_classes():
    model = dense_model(HEADS["dot"]())
    head = model.layers[-1]
    expected, bias, ids = head.kernel.numpy(), head.bias.numpy(), [7, 2]
    expected[ids], bias[ids] = vectors_of(2), [1, 2]
    tfxclass.set_class_vectors(model, expected[ids], [1, 2], ids)
    np.testing.assert_array_equal(head.kernel, expected)
    np.testing.assert_array_equal(head.bias, bias)


class Parameter:
    """What is used of a tensor of PyTorch."""

    def __init__(self, values):
        self.values = values

    def detach(self):
        return self

    cpu = float = detach

    def numpy(self):
        return self.values


def test_a_tensor_of_torch():
    model = dense_model(HEADS["dot"]())
    vectors = vectors_of()
    tfxclass.set_class_vectors(model, Parameter(vectors))
    np.testing.assert_array_equal(model.layers[-1].kernel, vectors)


@pytest.mark.parametrize(
    "head, vectors, options, message",
    [
        ("dot", vectors_of(9), {}, r"shape \(60, 8\) or \(8, 60\)"),
        ("dot", vectors_of().T, {"class_axis": 0}, r"shape \(60, 8\): 60"),
        ("dot", vectors_of() * np.nan, {}, "must be finite"),
        ("dot", [["a"]], {}, "array of numbers"),
        ("dot", vectors_of(2), {"ids": [1, 1]}, "distinct classes"),
        ("dot", vectors_of(2), {"ids": [1, 60]}, "distinct classes"),
        ("dot", vectors_of(1), {"ids": [0.5]}, "integer class ids"),
        ("dot", vectors_of(), {"bias": [1]}, "one number for each of 60"),
        ("cosine", vectors_of(), {"bias": np.ones(60)}, "use_bias=True"),
    ],
)
def test_vectors_that_are_refused(head, vectors, options, message):
    model = dense_model(HEADS[head]())
    with pytest.raises(ValueError, match=message):
        tfxclass.set_class_vectors(model, vectors, **options)


def test_heads_without_vectors_of_their_own():
    model = dense_model(layers.AdaptiveSoftmax(CLASSES, [20]))
    with pytest.raises(ValueError, match="Received: AdaptiveSoftmax"):
        tfxclass.set_class_vectors(model, vectors_of())
    words = keras.layers.Embedding(CLASSES, DIM)
    tied = layers.SampledSoftmax(CLASSES, tied_to=words)
    model = keras.Sequential(
        [
            keras.Input([3]),
            words,
            keras.layers.GlobalAveragePooling1D(),
            tied,
        ]
    )
    with pytest.raises(ValueError, match="`tied_to` has the class vectors"):
        tfxclass.set_class_vectors(model, vectors_of())


def test_model_and_head_of_different_scopes(tmp_path):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    model, path = dense_model(), tmp_path / "dense.keras"
    model.save(path)
    data = small_data()
    head = layers.SampledSoftmax(CLASSES, use_bias=True)
    with strategy.scope(), pytest.raises(ValueError, match="`with strategy"):
        tfxclass.replace_head(model, head)

    replaced = tfxclass.replace_head(model, head)
    with strategy.scope():
        replaced.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    with pytest.raises(ValueError, match="but made elsewhere"):
        replaced.fit(*data, verbose=0)

    with strategy.scope():
        loaded = keras.models.load_model(path)
        head = layers.SampledSoftmax(CLASSES, use_bias=True)
        loaded = tfxclass.replace_head(loaded, head)
        loaded.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    np.testing.assert_allclose(
        answers(loaded, data[0]), answers(model, data[0]), **TOLERANCE
    )
    loaded.fit(*data, verbose=0)
