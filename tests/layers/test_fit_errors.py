"""What `fit` says of labels and weights that it cannot take."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tests.support.contract import make_model
from tfxclass import layers
from tfxclass import samplers

CLASSES, DIM, ROWS = 20, 8, 16
OPTIONS = {"batch_size": 8, "verbose": 0}


def data():
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, DIM)).astype(np.float32)
    return x, random.integers(0, CLASSES, ROWS)


def batches(x, y):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(8)


def make():
    """Labels are checked before any sampler is asked; this one is quick."""
    head = layers.SampledSoftmax(CLASSES, 18, "uniform", seed=1)
    return make_model(head)


@pytest.fixture(scope="module")
def model():
    """One for errors of values: labels of a type need one graph.

    Errors that depend on the shapes of labels need a model of their own: a
    second shape makes Keras trace a graph without shapes.
    """
    return make()


def through_py_function(x, y):
    return x, tf.py_function(lambda labels: labels, [y], tf.int64)


def loss_of(dataset):
    """Of a `fit` in graph mode, always from the same weights."""
    keras.utils.set_random_seed(0)
    model = make_model(layers.FullSoftmax(CLASSES))
    return model.fit(dataset, verbose=0, shuffle=False).history["loss"]


def loss_of_steps(x, labels):
    """As `loss_of` batches of eight rows, one op after the other."""
    keras.utils.set_random_seed(0)
    model = make_model(layers.FullSoftmax(CLASSES))
    losses = []
    for rows in (slice(0, 8), slice(8, 16)):
        with tf.GradientTape() as tape:
            output = model(x[rows], training=True)
            loss = model.layers[-1].loss(labels[rows], output)
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(loss, variables), variables)
        losses.append(loss)
    return np.mean(losses)


def fit_error(model, *arguments, **options):
    """The error of a `fit` in graph mode."""
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)) as error:
        model.fit(*arguments, shuffle=False, **options)
    return error


def assert_text_comes_first(error, text):
    """Before it: no calls, two lines of TensorFlow's and the node's name."""
    lines = str(error.value).splitlines()
    (place,) = [i for i, line in enumerate(lines) if text in line]
    assert place <= 4 and len(lines) <= 6


@pytest.mark.parametrize(
    ("labels", "texts"),
    [
        (
            data()[1] + CLASSES,
            [f"num_classes={CLASSES}", f"ids from 0 to {CLASSES - 1}"],
        ),
        (np.full(ROWS, -2), ["-1 for padding", "-2"]),
        (data()[1].astype("f") + 0.5, ["not whole", "dtype=float32", ".5"]),
    ],
    ids=["too_great", "negative", "floats"],
)
def test_values_are_told_before_any_trace(model, labels, texts):
    error = fit_error(model, batches(data()[0], labels), verbose=0)
    assert_text_comes_first(error, texts[0])
    for text in texts[1:]:
        assert text in str(error.value)


def test_one_hot_labels_are_told_before_any_trace():
    x, y = data()
    labels = np.eye(CLASSES, dtype=int)[y]
    error = fit_error(make(), batches(x, labels), verbose=0)
    assert_text_comes_first(error, "one-hot labels become ids")


CALLS = {
    "fit": lambda m, x, y, **k: m.fit(x, y, **OPTIONS, **k),
    "evaluate": lambda m, x, y, **k: m.evaluate(x, y, **OPTIONS, **k),
    "train_on_batch": lambda m, x, y, **k: m.train_on_batch(x, y, **k),
    "test_on_batch": lambda m, x, y, **k: m.test_on_batch(x, y, **k),
}


@pytest.mark.filterwarnings("ignore:.*trains with sample weights")
@pytest.mark.parametrize(
    "case",
    quick(
        list(itertools.product(CALLS, [(ROWS,), (ROWS, 1)])),
        [
            ("fit", (ROWS,)),
            ("evaluate", (ROWS,)),
            ("train_on_batch", (ROWS, 1)),
            ("test_on_batch", (ROWS, 1)),
        ],
    ),
    ids=str,
)
def test_weights_of_labels_are_refused(case):
    call, shape = case
    model, (x, y) = make(), data()
    labels = np.stack([y, y], 1)
    with pytest.raises(ValueError) as error:
        CALLS[call](model, x, labels, sample_weight=np.ones((ROWS, 2), "f4"))
    text = "`sample_weight` must have shape [batch]"
    assert str(error.value).startswith(text)
    CALLS[call](model, x, labels, sample_weight=np.ones(shape))


def test_weights_of_labels_in_a_dataset_are_refused():
    x, y = data()
    labels = np.stack([y, y], 1)
    # As wide as the batch: broadcasting would say nothing.
    for batch in (8, 2):
        dataset = tf.data.Dataset.from_tensor_slices(
            (x, labels, np.ones((ROWS, 2), "f4"))
        ).batch(batch)
        with pytest.raises(ValueError, match="`sample_weight` must have shape"):
            make().fit(dataset, shuffle=False, verbose=0)


def test_one_hot_labels_of_more_classes_than_the_head_has():
    x, y = data()
    labels = np.eye(CLASSES + 1, dtype=int)[y + 1]
    error = fit_error(make(), x, labels, **OPTIONS)
    assert_text_comes_first(error, "one-hot labels become ids")
    assert f"num_classes={CLASSES}" in str(error.value)


@pytest.mark.parametrize("shape", [(ROWS, 12), (ROWS, CLASSES)])
@pytest.mark.parametrize("is_traced", [False, True])
def test_rows_that_repeat_a_label_are_not_one_hot(shape, is_traced):
    x, _ = data()
    head = layers.FullSoftmax(CLASSES)
    head.build((None, DIM))
    labels = np.arange(ROWS) % 2
    expected = head.compute_loss(x, labels)
    run = tf.function(head.compute_loss) if is_traced else head.compute_loss
    found = run(x, np.broadcast_to(labels[:, np.newaxis], shape))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_ragged_names_as_labels():
    names = tf.ragged.constant([["a", "b"], ["c"]])
    head = layers.FullSoftmax(CLASSES)
    head.build((None, DIM))
    with pytest.raises(ValueError, match="Received: strings"):
        head.compute_loss(data()[0][:2], names)


def test_names_as_labels(model):
    x, y = data()
    names = np.array([f"person {i}" for i in y], object)
    error = fit_error(model, x, names, **OPTIONS)
    assert "np.unique(y, return_inverse=True)" in str(error.value)
    assert "keras.layers.StringLookup" in str(error.value)


def test_one_hot_labels_of_unknown_shape():
    x, y = data()
    labels = np.eye(CLASSES, dtype=np.int64)[y]
    dataset = batches(x, labels).map(through_py_function)
    error = fit_error(make(), dataset, verbose=0)
    assert_text_comes_first(error, "one-hot labels become ids")


def test_labels_of_too_many_dimensions_of_unknown_shape():
    x, _ = data()
    labels = np.zeros([ROWS, 2, 2], np.int64)
    dataset = batches(x, labels).map(through_py_function)
    error = fit_error(make(), dataset, verbose=0)
    assert_text_comes_first(error, "`labels` must have the shape")


def test_one_hot_labels_under_a_mask():
    x = np.ones([4, 3, DIM], np.float32)
    x[:, 2] = 0
    labels = np.eye(CLASSES, dtype=np.int64)[np.full([4, 3], 7)]
    head = layers.FullSoftmax(CLASSES)
    model = keras.Sequential([keras.layers.Masking(), head])
    model.compile("sgd", loss=head.loss)
    with pytest.raises(tf.errors.InvalidArgumentError, match="one-hot"):
        model.fit(x, labels, verbose=0)


def test_sparse_labels():
    x, y = data()
    labels = tf.sparse.from_dense(np.eye(CLASSES, dtype=np.int64)[y])
    error = fit_error(make(), batches(x, labels), verbose=0)
    assert "tf.sparse.to_dense" in str(error.value)


def test_ragged_labels():
    x, y = data()
    labels = tf.RaggedTensor.from_row_lengths(
        np.concatenate([y, y[:8]]), [2] * 8 + [1] * 8
    )
    padded = labels.to_tensor(-1).numpy()
    np.testing.assert_allclose(
        loss_of(batches(x, labels)), loss_of_steps(x, padded), rtol=1e-5
    )


def test_labels_of_a_py_function():
    x, y = data()
    dataset = batches(x, y).map(through_py_function)
    np.testing.assert_allclose(loss_of(dataset), loss_of_steps(x, y), rtol=1e-5)


class TestAnotherLength:
    def test_of_arrays(self, model):
        x, y = data()
        error = fit_error(model, x, y[:9], **OPTIONS)
        assert "'y' sizes: 9" in str(error.value)

    def test_of_a_known_batch(self):
        x, y = data()
        dataset = tf.data.Dataset.from_tensors((x, y[:9]))
        error = fit_error(make(), dataset, verbose=0)
        text = str(error.value)
        assert "shape of the features" in text
        assert f"labels of shape (9,) with features of shape ({ROWS},)" in text

    def test_of_an_unknown_batch(self):
        x, y = data()
        dataset = tf.data.Dataset.from_generator(
            lambda: iter([(x, y[:9])]),
            output_signature=(
                tf.TensorSpec([None, DIM]),
                tf.TensorSpec([None], tf.int64),
            ),
        )
        error = fit_error(make(), dataset, verbose=0)
        assert_text_comes_first(error, "must have the shape of the features")


def test_sample_weights_of_several_labels_warn_once():
    x, y = data()
    rows, model = np.stack([y, y[::-1]], axis=1), make()
    weights = dict.fromkeys(range(CLASSES), 2.0)
    with pytest.warns(UserWarning, match="`class_weight` of `fit`") as caught:
        model.fit(x, rows, class_weight=weights, **OPTIONS)
    assert len(caught) == 1
    # Warnings are errors in tests.
    model.train_on_batch(x, rows, sample_weight=np.ones(ROWS))
    model = make()
    model.evaluate(x, rows, sample_weight=np.ones(ROWS), **OPTIONS)
    for labels in (y, y[:, np.newaxis]):
        model.fit(x, labels, class_weight=weights, **OPTIONS)
    head = layers.SampledSoftmax(CLASSES, 18, "uniform")
    model = keras.Sequential([keras.Input([2, DIM]), head])
    model.compile("sgd", loss=head.loss)
    sequences = np.repeat(x[:, np.newaxis], 2, axis=1)
    model.fit(sequences, rows, sample_weight=np.ones(rows.shape), **OPTIONS)


@pytest.mark.parametrize(
    "sampler",
    [
        samplers.HashingForestSampler(18),
        samplers.LSHSampler(18),
        samplers.KMeansSampler(18, num_groups=4),
        samplers.AutoSampler(18),
    ],
    ids=lambda s: type(s).__name__,
)
def test_a_row_that_is_not_finite_does_not_end_a_fit(sampler):
    x, y = data()
    head = layers.SampledSoftmax(CLASSES, sampler=sampler)
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(tfxclass.optimizers.LazySGD(0.0), loss=head.loss)
    start = head.kernel.numpy()
    for bad in (3e38, np.inf, np.nan):
        odd = np.array(x)
        odd[1] = bad
        # It makes class vectors NaN, even at a rate of 0.
        head.kernel.assign(start)
        model.fit(odd, y, **OPTIONS)
