"""What `fit` says of labels that it cannot take, and of what costs too much."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.contract import make_model
from tfxclass import layers
from tfxclass import samplers
from tfxclass.losses import fit_checks

CLASSES, DIM, ROWS = 20, 8, 16
OPTIONS = {"batch_size": 8, "verbose": 0}


def data():
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, DIM)).astype(np.float32)
    return x, random.integers(0, CLASSES, ROWS)


def batches(x, y):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(8)


def make(**options):
    head = layers.SampledSoftmax(CLASSES, num_sampled=18, seed=1)
    return make_model(head, **options)


def through_py_function(x, y):
    return x, tf.py_function(lambda labels: labels, [y], tf.int64)


def loss_of(dataset):
    """Of a `fit` in graph mode, always from the same weights."""
    keras.utils.set_random_seed(0)
    model = make_model(layers.FullSoftmax(CLASSES))
    return model.fit(dataset, verbose=0, shuffle=False).history["loss"]


def fit_error(*arguments, **options):
    """The error of a `fit` in graph mode."""
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)) as error:
        make().fit(*arguments, shuffle=False, **options)
    return error


def assert_text_comes_first(error, text):
    """Before it: no calls, two lines of TensorFlow's and the node's name."""
    lines = str(error.value).splitlines()
    (place,) = [i for i, line in enumerate(lines) if text in line]
    assert place <= 4 and len(lines) <= 6


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (np.eye(CLASSES, dtype=int)[data()[1]], "one-hot labels become ids"),
        (data()[1] + CLASSES, f"num_classes={CLASSES}"),
        (np.full(ROWS, -2), "-1 for padding"),
        (data()[1] + 0.5, "not whole"),
    ],
    ids=["one_hot", "too_great", "negative", "floats"],
)
def test_values_are_told_before_any_trace(labels, text):
    error = fit_error(batches(data()[0], labels), verbose=0)
    assert_text_comes_first(error, text)


CALLS = {
    "fit": lambda m, x, y, **k: m.fit(x, y, **OPTIONS, **k),
    "evaluate": lambda m, x, y, **k: m.evaluate(x, y, **OPTIONS, **k),
    "validation": lambda m, x, y, **k: m.fit(
        x, data()[1], validation_data=(x, y), **OPTIONS, **k
    ),
    "train_on_batch": lambda m, x, y, **k: m.train_on_batch(x, y, **k),
    "test_on_batch": lambda m, x, y, **k: m.test_on_batch(x, y, **k),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (
            np.arange(ROWS) + CLASSES - ROWS + 1,
            f"`y` has labels from 5 to {CLASSES}, but the head has {CLASSES}",
        ),
        (np.eye(CLASSES, dtype=int)[:ROWS], "`y` must be class ids"),
        (np.full(ROWS, 0.5), "`y` must be integer class ids"),
    ],
    ids=["too_great", "one_hot", "floats"],
)
def test_arrays_are_checked_before_the_graph(call, labels, text):
    with pytest.raises(ValueError) as error:
        CALLS[call](make(), data()[0], labels)
    assert str(error.value).startswith(text)
    assert "teacher" not in str(error.value)


def test_labels_that_a_step_or_a_loss_changes_are_not_checked():
    x, y = data()
    model = make()
    loss = model.loss
    model.compile("sgd", loss=lambda labels, found: loss(labels // 2, found))
    model.fit(x, 2 * y, **OPTIONS)

    class Halves(keras.Model):
        def train_step(self, data):
            x, y = data
            return super().train_step((x, y // 2))

    inputs = keras.Input([DIM])
    head = layers.FullSoftmax(CLASSES)
    model = Halves(inputs, head(inputs))
    model.compile("sgd", loss=head.loss)
    model.fit(x, 2 * y, **OPTIONS)


@pytest.mark.parametrize("call", [x for x in CALLS if x != "validation"])
def test_weights_of_labels_are_refused(call):
    x, y = data()
    labels = np.stack([y, y], 1)
    with pytest.raises(ValueError) as error:
        CALLS[call](make(), x, labels, sample_weight=np.ones((ROWS, 2), "f4"))
    text = "`sample_weight` must have shape [batch]"
    assert str(error.value).startswith(text)
    for weight in (np.ones(ROWS), np.ones((ROWS, 1))):
        CALLS[call](make(), x, labels, sample_weight=weight)


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
    error = fit_error(x, labels, **OPTIONS)
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


def test_names_as_labels():
    x, y = data()
    names = np.array([f"person {i}" for i in y], object)
    error = fit_error(x, names, **OPTIONS)
    assert "np.unique(y, return_inverse=True)" in str(error.value)
    assert "keras.layers.StringLookup" in str(error.value)


def test_one_hot_labels_of_unknown_shape():
    x, y = data()
    labels = np.eye(CLASSES, dtype=np.int64)[y]
    dataset = batches(x, labels).map(through_py_function)
    error = fit_error(dataset, verbose=0)
    assert_text_comes_first(error, "one-hot labels become ids")


def test_labels_of_too_many_dimensions_of_unknown_shape():
    x, _ = data()
    labels = np.zeros([ROWS, 2, 2], np.int64)
    dataset = batches(x, labels).map(through_py_function)
    error = fit_error(dataset, verbose=0)
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
    error = fit_error(batches(x, labels), verbose=0)
    assert "tf.sparse.to_dense" in str(error.value)


def test_ragged_labels():
    x, y = data()
    labels = tf.RaggedTensor.from_row_lengths(
        np.concatenate([y, y[:8]]), [2] * 8 + [1] * 8
    )
    padded = labels.to_tensor(-1).numpy()
    np.testing.assert_allclose(
        loss_of(batches(x, labels)), loss_of(batches(x, padded)), rtol=1e-5
    )


def test_labels_of_a_py_function():
    x, y = data()
    dataset = batches(x, y).map(through_py_function)
    np.testing.assert_allclose(
        loss_of(dataset), loss_of(batches(x, y)), rtol=1e-5
    )


class TestAnotherLength:
    def test_of_arrays(self):
        x, y = data()
        error = fit_error(x, y[:9], **OPTIONS)
        assert "'y' sizes: 9" in str(error.value)

    def test_of_a_known_batch(self):
        x, y = data()
        dataset = tf.data.Dataset.from_tensors((x, y[:9]))
        error = fit_error(dataset, verbose=0)
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
        error = fit_error(dataset, verbose=0)
        assert_text_comes_first(error, "must have the shape of the features")


class TestClassWeightOfFit:
    WEIGHTS = {0: 2.0}

    @pytest.mark.parametrize("of", ["arrays", "dataset"])
    def test_rows_of_labels_are_refused(self, of):
        x, y = data()
        labels = np.stack([y, np.full_like(y, -1)], axis=1)
        arguments = (x, labels) if of == "arrays" else (batches(x, labels),)
        error = fit_error(*arguments, verbose=0, class_weight=self.WEIGHTS)
        assert "`sample_weight`" in str(error.value)
        assert "LossOptions(class_weight=...)" in str(error.value)
        assert "labels of shape (None, 2)" in str(error.value)

    def test_one_label_a_row_and_sample_weights_are_not(self):
        x, y = data()
        options = {"class_weight": self.WEIGHTS, **OPTIONS}
        make().fit(x, y, **options)
        make().fit(x, y[:, np.newaxis], **options)
        labels = np.stack([y, np.full_like(y, -1)], axis=1)
        make().fit(x, labels, sample_weight=np.ones(ROWS), **OPTIONS)

    def test_train_on_batch_is_checked(self):
        x, y = data()
        rows, model = np.stack([y, y[::-1]], axis=1), make()
        weights = dict.fromkeys(range(CLASSES), 2.0)
        with pytest.raises(ValueError, match="`class_weight` of `fit`"):
            model.train_on_batch(x, rows, class_weight=weights)
        model.train_on_batch(x, rows, sample_weight=np.ones(ROWS))
        model.train_on_batch(x, y, class_weight=weights)

    def test_validation_data_have_no_class_weights(self):
        x, y = data()
        rows = np.stack([y, y[::-1]], axis=1)
        held_out = (x, rows, np.ones(ROWS))
        options = {"class_weight": self.WEIGHTS, **OPTIONS}
        make().fit(x, y, validation_data=held_out, **options)


class TestMetricsOfTheFullOutput:
    """They cost a sampled head all of its classes: one warning a head."""

    @pytest.mark.parametrize("named", ["accuracy", "object"])
    def test_a_sampled_head_warns_once(self, named):
        metric = named
        if named == "object":
            metric = keras.metrics.SparseCategoricalAccuracy(name="right")
        model = make(metrics=[metric])
        x, y = data()
        with pytest.warns(UserWarning, match="TopKAccuracy") as caught:
            model.fit(x, y, **OPTIONS)
        (warning,) = caught
        shown = "right" if named == "object" else "accuracy"
        assert f"['{shown}']" in str(warning.message)
        model.fit(x, y, **OPTIONS)  # warnings are errors in tests

    def test_our_own_metrics_and_full_heads_do_not(self):
        x, y = data()
        head = layers.SampledSoftmax(CLASSES, num_sampled=18)
        metrics = [tfxclass.metrics.TopKAccuracy(head)]
        make_model(head, metrics=metrics).fit(x, y, **OPTIONS)
        full = make_model(layers.FullSoftmax(CLASSES), metrics=["accuracy"])
        full.fit(x, y, **OPTIONS)

    def test_a_metric_of_another_output_does_not(self):
        x, y = data()
        inputs = keras.Input((DIM,))
        head = layers.SampledSoftmax(CLASSES, num_sampled=18, name="words")
        outputs = [keras.layers.Dense(1, name="size")(inputs), head(inputs)]
        model = keras.Model(inputs, outputs)
        model.compile(
            "sgd",
            loss={"size": "mse", "words": head.loss},
            metrics={"size": ["mae"]},
        )
        model.fit(x, {"size": x[:, :1], "words": y}, **OPTIONS)


def fit_with(optimizer, head):
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(optimizer, loss=head.loss)
    model.fit(*data(), **OPTIONS)


def test_dense_optimizer_of_many_classes_is_told_once(monkeypatch):
    monkeypatch.setattr(fit_checks, "_LARGE_MATRIX", CLASSES * DIM)
    head = layers.SampledSoftmax(CLASSES, num_sampled=18, seed=1)
    with pytest.warns(UserWarning, match="Adam updates all 20 .*HeadAdam"):
        fit_with("adam", head)
    # Warnings are errors here.
    fit_with("adam", head)


def test_labels_that_are_padding_only_are_reported():
    model = keras.Sequential([keras.Input([DIM]), layers.FullSoftmax(CLASSES)])
    model.compile("sgd", loss=model.layers[-1].loss)
    x, y = data()
    with pytest.warns(UserWarning, match="All labels of `fit` are -1"):
        model.fit(x, np.full_like(y, -1), **OPTIONS)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: keras.optimizers.SGD(0.1),
        lambda: tfxclass.optimizers.LazyAdam(),
        lambda: keras.optimizers.LossScaleOptimizer(
            tfxclass.optimizers.LazyAdam()
        ),
    ],
    ids=["sgd", "lazy", "scaled"],
)
def test_optimizers_of_touched_rows_are_not_warned_of(monkeypatch, optimizer):
    monkeypatch.setattr(fit_checks, "_LARGE_MATRIX", 1)
    fit_with(optimizer(), layers.SampledSoftmax(CLASSES, num_sampled=18))


def test_dense_optimizers_of_few_classes_and_full_heads_are_fine(monkeypatch):
    fit_with("adam", layers.SampledSoftmax(CLASSES, num_sampled=18))
    monkeypatch.setattr(fit_checks, "_LARGE_MATRIX", 1)
    fit_with("adam", layers.FullSoftmax(CLASSES))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize(
    "sampler",
    [
        samplers.HashingForestSampler(18),
        samplers.LSHSampler(18),
        samplers.KMeansSampler(18, num_groups=4),
        "auto",
    ],
    ids=lambda s: s if isinstance(s, str) else type(s).__name__,
)
def test_a_row_that_is_not_finite_does_not_end_a_fit(sampler, bad):
    x, y = data()
    options = {"num_sampled": 18}
    if not isinstance(sampler, str):
        sampler, options = type(sampler).from_config(sampler.get_config()), {}
    head = layers.SampledSoftmax(CLASSES, sampler=sampler, **options)
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(tfxclass.optimizers.LazySGD(0.0), loss=head.loss)
    odd = np.array(x)
    odd[1] = bad
    model.fit(odd, y, **OPTIONS)
