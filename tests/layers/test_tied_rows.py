"""Class rows that are those of an embedding."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import check_refused
from tests.support.cases import quick
from tfxclass import layers

WORDS, DIM, BATCH = 30, 6, 8

HEADS = {
    "full": layers.FullSoftmax,
    "sampled": lambda *a, **k: layers.SampledSoftmax(*a, WORDS, seed=1, **k),
    "forest": lambda *a, **k: layers.SelectiveSoftmax(*a, WORDS, seed=1, **k),
    "lsh": lambda *a, **k: layers.LSHSoftmax(*a, WORDS, seed=1, **k),
    "nce": lambda *a, **k: layers.NoiseContrastive(*a, WORDS, seed=1, **k),
    "sparsemax": layers.Sparsemax,
    # The features' width is another than that of the rows.
    "projected": lambda *a, **k: layers.ProjectedSoftmax(*a, DIM, **k),
    "dropmax": layers.DropMax,
}


def make_model(kind="full", optimizer=None, to_variable=False, **options):
    keras.utils.set_random_seed(0)
    embedding = keras.layers.Embedding(WORDS, DIM, name="words")
    embedding.build()
    tied = embedding.embeddings if to_variable else embedding
    model = keras.Sequential(
        [
            keras.Input([3], dtype="int64", name="x"),
            embedding,
            keras.layers.GlobalAveragePooling1D(),
            *([keras.layers.Dense(DIM + 2)] if kind == "projected" else []),
            HEADS[kind](WORDS, tied_to=tied, **options),
        ]
    )
    head = model.layers[-1]
    optimizer = optimizer or tfxclass.optimizers.LazyAdam(0.05)
    model.compile(optimizer, loss=head.loss)
    return model


def data():
    random = np.random.default_rng(0)
    # Words of the input are among the labels, some of them twice.
    x = random.integers(0, 9, [BATCH, 3])
    return x, random.integers(0, 12, BATCH)


def step_of_both_uses(rows, x, y, rate):
    """NumPy oracle: a step down the gradient of the mean loss."""
    features = rows[x].mean(axis=1)
    logits = features @ rows.T
    errors = np.exp(logits - logits.max(axis=1, keepdims=True))
    errors /= errors.sum(axis=1, keepdims=True)
    errors[np.arange(len(y)), y] -= 1
    errors /= len(y)
    gradient = errors.T @ features
    of_words = np.repeat((errors @ rows)[:, np.newaxis] / 3, 3, axis=1)
    np.add.at(gradient, x, of_words)
    return rows - rate * gradient


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [
        ("full", keras.optimizers.SGD),
        ("full", tfxclass.optimizers.LazySGD),
        ("sampled", tfxclass.optimizers.LazySGD),
    ],
)
def test_gradients_of_both_uses_are_summed(kind, optimizer):
    model = make_model(kind, optimizer(0.5))
    x, y = data()
    rows = model.layers[0].embeddings.numpy()
    model.fit(x, y, batch_size=BATCH, verbose=0)
    np.testing.assert_allclose(
        model.layers[0].embeddings,
        step_of_both_uses(rows, x, y, 0.5),
        rtol=1e-4,
        atol=1e-6,
    )


@pytest.mark.parametrize("kind", quick(HEADS, ["forest"]))
def test_a_head_trains_and_is_saved_once(kind, tmp_path):
    model = make_model(kind, to_variable=kind == "forest")
    x, y = data()
    losses = model.fit(x, y, BATCH, epochs=12, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    head = model.layers[-1]
    # DropMax has more weights of this shape.
    counts = [
        sum(tuple(weight.shape) == (WORDS, DIM) for weight in weights)
        for weights in (model.weights, head.weights)
    ]
    assert counts[0] == 1 + counts[1]
    assert not any(weight is head.kernel for weight in head.weights)
    path = str(tmp_path / "model.keras")
    model.save(path)
    loaded = keras.saving.load_model(path)
    assert loaded.layers[-1].kernel is loaded.layers[0].embeddings
    np.testing.assert_array_equal(loaded(x), model(x))
    again = [m.fit(x, y, BATCH, verbose=0).history for m in (model, loaded)]
    np.testing.assert_allclose(again[0]["loss"], again[1]["loss"], rtol=1e-6)


def test_mixed_precision_reads_rows_as_they_are():
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = make_model()
        x, y = data()
        model.fit(x, y, BATCH, verbose=0)
        head = model.layers[-1]
        assert head.kernel.dtype == "float32"
        features = model.layers[1](model.layers[0](x))
        expected = tf.cast(features, tf.float32) @ tf.transpose(head.kernel)
        found = head.logits(features)
    finally:
        keras.config.set_dtype_policy(before)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_an_export_has_the_rows_once(tmp_path):
    model = make_model()
    x, _ = data()
    folder = tfxclass.export.saved_model(
        model, tmp_path, top_k=3, verify=False, example_inputs=x
    )
    saved = tf.train.list_variables(f"{folder}/variables/variables")
    assert [shape for _, shape in saved].count([WORDS, DIM]) == 1
    answers = tf.saved_model.load(folder).signatures["serving_default"](
        x=tf.constant(x)
    )
    ids, _ = tfxclass.top_k(model, 3)(x)
    np.testing.assert_array_equal(answers["ids"], ids)


def tied(**options):
    embedding = keras.layers.Embedding(WORDS, DIM)
    return layers.SampledSoftmax(WORDS, 20, tied_to=embedding, **options)


def built(embedding, dim=DIM):
    layers.FullSoftmax(WORDS, tied_to=embedding).build((None, dim))


BAD = {
    "no layer": (lambda: layers.FullSoftmax(3, tied_to=3), ["`tied_to`", "3"]),
    "half": (lambda: tied(kernel_dtype="bfloat16"), ["float32", "bfloat16"]),
    "host": (lambda: tied(placement="host"), ["placement", "host"]),
    "shards": (
        lambda: layers.ShardedSoftmax(9, tied_to="a/b"),
        ["ShardedSoftmax", "a/b"],
    ),
    "unbuilt": (
        lambda: built(keras.layers.Embedding(WORDS, DIM)),
        ["built before", "embedding.build()"],
    ),
    "name": (lambda: built("words/embeddings"), ["tied_to=layer"]),
    "shape": (
        lambda: built(keras.Variable(np.zeros([WORDS, DIM], "float32")), 5),
        [f"[{WORDS}, 5]", f"[{WORDS}, {DIM}]"],
    ),
    "more classes": (
        lambda: tfxclass.add_classes(make_model(), 2),
        ["tied_to", "stay as many"],
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refused(case):
    check_refused(*BAD[case])


def test_a_name_that_is_not_there():
    model = make_model()
    config = model.get_config()
    config["layers"][1]["config"]["name"] = "others"
    with pytest.raises(ValueError, match="'words/embeddings', of which 0"):
        keras.Sequential.from_config(config)
