"""What every head promises, as tests that a head's own file inherits."""

import functools
import gc
import json
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support import reference
from tests.support.growth_contract import GrowthContract
from tfxclass import metrics
from tfxclass.export import searches
from tfxclass.export.searches import ModelSearch
from tfxclass.rows import export_rows
from tfxclass.rows import stock_search

CLASSES, DIM, BATCH = 60, 8, 16
# float32 logits and sums over some dozen classes.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}
# What ops raise for values.
INVALID = tf.errors.InvalidArgumentError


def data(seed=0, rows=BATCH, labels_wide=None, classes=CLASSES):
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, DIM)).astype(np.float32)
    shape = rows if labels_wide is None else (rows, labels_wide)
    y = random.integers(0 if labels_wide is None else -1, classes, shape)
    return x, y


def make_model(head, learning_rate=0.01, use_bias=True, **options):
    """For equal runs without a bias: GPUs sum its gradient in any order."""
    encoder = keras.layers.Dense(DIM, use_bias=use_bias)
    model = keras.Sequential([keras.Input([DIM], name="x"), encoder, head])
    optimizer = tfxclass.optimizers.LazyAdam(learning_rate)
    model.compile(optimizer=optimizer, loss=head.loss, **options)
    return model


def fit_again(model, times, *data):
    """`fit` with the same batch so many times: an epoch costs more than a
    step."""
    repeated = keras.tree.map_structure(
        lambda x: np.concatenate([x] * times), data
    )
    model.fit(*repeated, batch_size=BATCH, shuffle=False, verbose=0)


def randomize(head, seed=9):
    """Weights of size 1, so that no two classes are near each other."""
    random = np.random.default_rng(seed)
    for variable in head.trainable_variables:
        variable.assign(random.normal(size=variable.shape))


def built(head):
    head.build((None, DIM))
    randomize(head)
    return head


def check_nothing_is_left(make_head):
    """Of a model that was trained, and deleted."""

    def used():
        model = make_model(make_head())
        x, y = data()
        model.fit(x, y, batch_size=BATCH, verbose=0)
        model.evaluate(x, y, verbose=0)
        kernel = model.layers[-1].trainable_variables[0].value
        # The memory of the matrix goes with the last of its handles.
        held = (model.layers[-1], kernel, kernel.handle)
        return [weakref.ref(x) for x in held]

    references = used()
    keras.utils.clear_session(free_memory=True)
    gc.collect()
    assert [reference() for reference in references] == [None] * 3


# Long, and of code that heads share: `slow_tests` of all heads but a few.
LONG = (
    "test_classes_are_added",
    "test_removed_classes_are_no_answers",
    "test_mixed_precision",
    "test_same_seed_same_run",
    "test_metrics_in_fit_and_evaluate",
    "test_masked_positions_weigh_nothing",
    "test_labels_of_either_rank_on_one_compiled_model",
    "test_training_lowers_the_exact_loss",
    "test_endpoint_with_labels",
    "test_labels_without_a_known_shape",
)
# Of heads that store and answer as another head does whose tests are quick.
STORED = (
    "test_fit_then_evaluate_equals_numpy",
    "test_saved_model_goes_on_bit_for_bit",
    "test_export_equals_model",
)


BAD_LABELS = [
    (np.full(BATCH, 0.5, "float32"), INVALID, "not whole numbers"),
    (np.zeros((BATCH, 1, 1), int), ValueError, "[batch, p]"),
    (np.eye(CLASSES, dtype=int)[:BATCH], INVALID, "argmax"),
    (np.full(BATCH, CLASSES), INVALID, f"num_classes={CLASSES}"),
    (np.full(BATCH, -2), INVALID, "-2"),
]


class HeadContract(GrowthContract):
    """A subclass gives `make_head`, and the head's arithmetic in NumPy."""

    learning_rate = 0.05
    is_random = False
    # Whether the probabilities of a row sum up to 1.
    is_distribution = True

    def make_head(self, num_classes=CLASSES, **changes):
        raise NotImplementedError

    def logits(self, head, features):
        """float64 `[batch, num_classes]`."""
        return reference.head_logits(features, head.kernel.numpy())

    def probabilities(self, logits):
        return reference.softmax(logits)

    def losses(self, logits, labels):
        """Those of an evaluation, float64 `[batch]`."""
        return reference.cross_entropy(logits, labels)

    def exact_losses(self, head, features, labels):
        """As `losses`, from the features."""
        return self.losses(self.logits(head, features), labels)

    @pytest.fixture(autouse=True)
    def fresh_keras(self):
        keras.utils.set_random_seed(3)
        yield
        keras.config.set_dtype_policy("float32")

    def evaluated(self, model, x, y):
        """What `evaluate` should give, in NumPy."""
        features = model.layers[0](x).numpy()
        return self.losses(self.logits(model.layers[-1], features), y).mean()

    def test_config_round_trip_through_json(self):
        head = self.make_head(activation=None)
        text = json.dumps(keras.saving.serialize_keras_object(head))
        again = keras.saving.deserialize_keras_object(json.loads(text))
        assert type(again) is type(head)
        assert again.get_config() == head.get_config()
        again.build((None, DIM))
        assert again(np.zeros((2, DIM), np.float32)).shape == (2, CLASSES)

    def test_build_and_symbolic_call(self):
        head = self.make_head()
        output = head(keras.KerasTensor([None, DIM]))
        assert output.shape == (None, CLASSES) and output.dtype == "float32"
        assert all(v.dtype == "float32" for v in head.trainable_variables)

    @pytest.mark.parametrize("with_activation", [True, False])
    def test_output_is_all_classes(self, with_activation):
        changes = {} if with_activation else {"activation": None}
        head = built(self.make_head(**changes))
        x, _ = data()
        expected = self.logits(head, x)
        if with_activation:
            expected = self.probabilities(expected)
            if self.is_distribution:
                np.testing.assert_allclose(expected.sum(axis=1), 1.0)
        np.testing.assert_allclose(head(x), expected, **TOLERANCE)

    @pytest.mark.parametrize(
        "labels_wide", [pytest.param(None, marks=pytest.mark.slow), 2]
    )
    def test_fit_then_evaluate_equals_numpy(self, labels_wide):
        # Once as a graph.
        model = make_model(self.make_head(), run_eagerly=labels_wide == 2)
        x, y = data(labels_wide=labels_wide)
        history = model.fit(x, y, batch_size=BATCH, epochs=3, verbose=0)
        assert np.all(np.isfinite(history.history["loss"]))
        result = model.evaluate(x, y, batch_size=5, verbose=0)
        expected = self.evaluated(model, x, y)
        np.testing.assert_allclose(result, expected, rtol=2e-5)

    def test_training_lowers_the_exact_loss(self):
        model = make_model(self.make_head(), self.learning_rate)
        x, y = data()
        before = model.evaluate(x, y, verbose=0)
        fit_again(model, 40, x, y)
        assert model.evaluate(x, y, verbose=0) < 0.5 * before

    @pytest.mark.slow
    def test_endpoint_with_labels(self):
        features = keras.Input([DIM])
        labels = keras.Input([], dtype="int64")
        head = self.make_head()
        model = keras.Model([features, labels], head(features, labels=labels))
        model.compile(tfxclass.optimizers.LazyAdam(0.01), run_eagerly=True)
        x, y = data()
        model.fit([x, y], batch_size=BATCH, epochs=2, verbose=0)
        result = model.evaluate([x, y], batch_size=BATCH, verbose=0)
        expected = self.losses(self.logits(head, x), y).mean()
        np.testing.assert_allclose(result, expected, rtol=2e-5)

    def test_mixed_precision(self):
        keras.config.set_dtype_policy("mixed_bfloat16")
        model = make_model(self.make_head(), run_eagerly=True)
        x, y = data()
        model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
        head = model.layers[-1]
        assert all(v.dtype == "float32" for v in head.trainable_variables)
        assert model(x).dtype == np.float32
        # The encoder's own product is in 8 bits, once more in its copy here.
        np.testing.assert_allclose(
            model.evaluate(x, y, verbose=0),
            self.evaluated(model, x, y),
            rtol=2e-2,
        )
        assert head.compute_loss(tf.cast(x, tf.float16), y).dtype == tf.float32

    def test_saved_model_goes_on_bit_for_bit(self, tmp_path):
        x, y = data(rows=2 * BATCH)
        fit = functools.partial(
            keras.Model.fit,
            x=x,
            y=y,
            batch_size=BATCH,
            verbose=0,
            shuffle=False,
        )
        model = make_model(self.make_head(), use_bias=False, run_eagerly=True)
        fit(model)
        path = str(tmp_path / "model.keras")
        model.save(path)
        loaded = keras.saving.load_model(path)
        np.testing.assert_array_equal(model(x), loaded(x))
        histories = [fit(m).history["loss"] for m in (model, loaded)]
        assert histories[0] == histories[1]
        for ours, theirs in zip(model.variables, loaded.variables):
            np.testing.assert_array_equal(ours.numpy(), theirs.numpy())

    def test_same_seed_same_run(self):
        def run(seed):
            keras.utils.set_random_seed(5)
            model = make_model(
                self.make_head(seed=seed), use_bias=False, run_eagerly=True
            )
            x, y = data(rows=2 * BATCH)
            model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False)
            return np.concatenate([w.ravel() for w in model.get_weights()])

        first, again, other = run(1), run(1), run(2)
        np.testing.assert_array_equal(first, again)
        assert np.array_equal(first, other) == (not self.is_random)

    @pytest.mark.parametrize(
        ("k", "with_activation"), [(1, False), (7, True), (CLASSES, True)]
    )
    def test_top_k_is_the_argsort_of_the_output(self, with_activation, k):
        changes = {} if with_activation else {"activation": None}
        head = built(self.make_head(**changes))
        x, _ = data()
        logits = self.logits(head, x)
        output = self.probabilities(logits) if with_activation else logits
        expected, _ = reference.top_k(logits, k)
        export = functools.partial(
            head.top_k, k=k, weights=head.export_weights()
        )
        if k == 7:  # one graph is enough
            export = tf.function(export)
        for ids, scores in (head.top_k(x, k), export(x)):
            assert ids.dtype == tf.int64 and ids.shape == (BATCH, k)
            np.testing.assert_array_equal(ids, expected)
            np.testing.assert_allclose(
                scores, np.take_along_axis(output, expected, 1), **TOLERANCE
            )

    def test_metrics_in_fit_and_evaluate(self):
        head = self.make_head()
        names = [metrics.TopKAccuracy(head, 3), metrics.PrecisionAtK(head, 2)]
        names.append(metrics.CumulativeProbability(head, 5))
        model = make_model(head, metrics=names, run_eagerly=True)
        x, y = data()
        model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0)
        result = model.evaluate(x, y, verbose=0, return_dict=True)
        logits = self.logits(head, model.layers[0](x).numpy())
        best, _ = reference.top_k(logits, 3)
        hits = best == y[:, None]
        np.testing.assert_allclose(
            result["accuracy_at_3"], hits.any(axis=1).mean(), rtol=1e-6
        )
        np.testing.assert_allclose(
            result["precision_at_2"], hits[:, :2].mean(), rtol=1e-6
        )
        falling = -np.sort(-self.probabilities(logits), axis=1)
        np.testing.assert_allclose(
            result["cumulative_probability_5"],
            falling[:, :5].sum(axis=1).mean(),
            rtol=1e-5,
        )

    def test_export_equals_model(self, tmp_path):
        """Proven through TensorFlow's C API, without tfxclass."""
        model = make_model(self.make_head())
        randomize(model.layers[-1])
        folder = tfxclass.export.saved_model(model, tmp_path, top_k=7)
        x, _ = data()
        served = tf.saved_model.load(folder).signatures["serving_default"]
        answers = served(x=tf.constant(x))
        ids, scores = tfxclass.top_k(model, 7)(x)
        np.testing.assert_array_equal(answers["ids"], ids)
        np.testing.assert_allclose(answers["scores"], scores, **TOLERANCE)

    def test_int8_rows_answer_as_rounded_ones(self):
        """Class rows in int8, as an export has them; trees have none."""
        head = built(self.make_head())
        if not head.has_class_rows:
            with pytest.raises(ValueError, match=type(head).__name__):
                searches.check_quantize("int8", 0.9, head)
            return
        x, _ = data()
        store = export_rows.quantize
        weights = stock_search.stored(head.export_weights(), store)
        ids, scores = head.top_k(x, 7, weights=weights)
        output = head.all_scores(tf.constant(x, tf.float32), weights).numpy()
        _, best = reference.top_k(output, 7)
        np.testing.assert_allclose(scores, best, **TOLERANCE)
        found = np.take_along_axis(output, ids.numpy(), axis=1)
        np.testing.assert_allclose(found, best, **TOLERANCE)
        search = ModelSearch(head, head.export_weights())
        exact = search.scores(x).numpy()
        # A row's numbers move by a 254th of the greatest; what sparsemax
        # leaves is a difference of logits.
        atol = 0.02 if head.activation == "sparsemax" else 1e-3
        np.testing.assert_allclose(output, exact, rtol=0.1, atol=atol)
        assert not np.array_equal(output, exact)

    def test_bad_labels(self):
        model = make_model(self.make_head(), run_eagerly=True)
        x, _ = data()
        for labels, error_type, part in BAD_LABELS:
            with pytest.raises(error_type) as error:
                model.train_on_batch(x, labels)
            assert part in str(error.value)

    @pytest.mark.parametrize("training", [True, False])
    def test_rows_without_labels_have_no_loss(self, training):
        head = built(self.make_head())
        x, y = data(labels_wide=2)
        y[3:6] = -1
        losses = head.compute_loss(x, y, training=training).numpy()
        assert np.all(losses[3:6] == 0) and np.all(losses[:3] != 0)
        y[:] = -1
        losses = head.compute_loss(x, y, training=training).numpy()
        assert np.all(losses == 0)

    @pytest.mark.parametrize("training", [True, False])
    def test_order_and_repeats_of_labels_do_not_matter(self, training):
        head = built(self.make_head())
        x, _ = data()
        labels = np.array([[3, 40, -1, 40, 3]] * BATCH)
        turned = np.array([[40, 3, 3, -1, -1]] * BATCH)
        first = head.compute_loss(x, labels, training=training)
        second = head.compute_loss(x, turned, training=training)
        if not (training and self.is_random):
            np.testing.assert_allclose(first, second, **TOLERANCE)
        assert np.all(np.isfinite(second))

    def test_one_class(self):
        head = built(self.make_head(num_classes=1))
        x, _ = data()
        y = np.zeros(BATCH, int)
        logits = self.logits(head, x)
        expected = self.probabilities(logits)
        np.testing.assert_allclose(head(x), expected, **TOLERANCE)
        np.testing.assert_allclose(
            head.compute_loss(x, y), self.losses(logits, y), **TOLERANCE
        )
        assert np.all(np.isfinite(head.compute_loss(x, y, training=True)))
        ids, scores = head.top_k(x, 1)
        assert np.all(ids.numpy() == 0)
        np.testing.assert_allclose(scores, expected, **TOLERANCE)

    def test_nan_features_show_in_their_own_rows_alone(self):
        head = built(self.make_head())
        x, y = data()
        clean = head.compute_loss(x, y).numpy()
        x[2] = np.nan
        losses = head.compute_loss(x, y).numpy()
        assert np.isnan(losses[2])
        keep = np.arange(BATCH) != 2
        np.testing.assert_allclose(losses[keep], clean[keep], rtol=1e-6)
        training = head.compute_loss(x, y, training=True).numpy()
        assert np.isnan(training[2]) and np.all(np.isfinite(training[keep]))
        ids, _ = head.top_k(x, 4)
        assert np.all(ids.numpy()[2] == -1)
        assert np.all(ids.numpy()[keep] >= 0)

    def test_empty_batch(self):
        head = built(self.make_head())
        x, y = data(rows=0)
        for training in (True, False):
            losses = head.compute_loss(x, y, training=training)
            assert losses.shape == (0,)
        ids, _ = head.top_k(x, 3)
        assert ids.shape == (0, 3)

    def test_classes_must_be_a_positive_integer(self):
        for bad in (0, 2.5, True, -1):
            with pytest.raises(ValueError, match="`num_classes` must be"):
                self.make_head(num_classes=bad)

    def test_activation_is_checked(self):
        with pytest.raises(ValueError, match="`activation` must be one of"):
            self.make_head(activation="relu")

    def test_features_must_have_rows(self):
        with pytest.raises(ValueError, match=r"\[batch, dim\]"):
            self.make_head()(np.zeros(4, np.float32))

    def test_two_passes_before_the_loss(self):
        """A loss is of the pass that made its `y_pred`, and of no other."""
        head = built(self.make_head())
        (x, y), (other, _) = data(), data(seed=1)
        first, second = head(x), head(other)
        for output, given in ((first, x), (second, other)):
            expected = self.exact_losses(head, given, y).mean()
            np.testing.assert_allclose(
                head.loss(y, output), expected, rtol=2e-5
            )

    def test_only_the_output_itself_has_a_loss(self):
        head, other = (built(self.make_head(name=name)) for name in "ab")
        x, y = data()
        output = head(x)
        for wrong in (
            tf.identity(output),
            keras.layers.Activation("linear")(output + 0.0),
            other(x),
            tf.zeros_like(output),
            np.zeros(output.shape, np.float32),
        ):
            for read in (head.loss, metrics.TopKAccuracy(head, 2)):
                with pytest.raises(ValueError, match="the head 'a'"):
                    read(y, wrong)

    @pytest.mark.slow
    def test_a_deleted_model_leaves_nothing(self):
        check_nothing_is_left(self.make_head)

    def test_sequences_are_rows_of_their_positions(self):
        """Features [batch, time, dim], labels [batch, time] or [.., p]."""
        head = built(self.make_head())
        x, y = data(labels_wide=2)
        folded = x.reshape(4, 4, DIM)
        np.testing.assert_allclose(
            head(folded), head(x).numpy().reshape(4, 4, -1), **TOLERANCE
        )
        for labels in (y, np.maximum(y[:, 0], 0)):
            expected = head.compute_loss(x, labels)
            losses = head.compute_loss(
                folded, labels.reshape(4, 4, *labels.shape[1:])
            )
            assert losses.shape == (4, 4)
            np.testing.assert_allclose(
                losses, tf.reshape(expected, [4, 4]), **TOLERANCE
            )
        for found, expected in zip(head.top_k(folded, 3), head.top_k(x, 3)):
            assert found.shape == (4, 4, 3)
            np.testing.assert_allclose(
                found, tf.reshape(expected, [4, 4, 3]), **TOLERANCE
            )

    def test_masked_positions_weigh_nothing(self):
        """In `fit`, in `evaluate`, in metrics; and weights [batch, time]."""
        head = self.make_head()
        names = [metrics.TopKAccuracy(head, 3)]
        ids = keras.Input([None], dtype="int64", name="ids")
        features = keras.layers.Embedding(30, DIM, mask_zero=True)(ids)
        model = keras.Model(ids, head(features))
        model.compile(
            tfxclass.optimizers.LazyAdam(0.01),
            loss=head.loss,
            metrics=names,
            run_eagerly=True,
        )
        random = np.random.default_rng(5)
        x = random.integers(1, 30, (8, 5))
        x[:, 3:] = 0
        x[0, 1:] = 0
        y = random.integers(0, CLASSES, x.shape)
        history = model.fit(x, y, batch_size=8, epochs=2, verbose=0).history
        assert np.all(np.isfinite(history["loss"]))
        randomize(head)
        rows = model.layers[1](x).numpy()[x > 0]
        logits = self.logits(head, rows)
        losses = self.exact_losses(head, rows, y[x > 0])
        result = model.evaluate(x, y, batch_size=8, verbose=0, return_dict=True)
        np.testing.assert_allclose(result["loss"], losses.mean(), rtol=2e-5)
        best, _ = reference.top_k(logits, 3)
        hits = (best == y[x > 0][:, None]).any(axis=1)
        np.testing.assert_allclose(
            result["accuracy_at_3"], hits.mean(), rtol=1e-6
        )
        weights = random.random(x.shape)
        weighted = model.evaluate(
            x, y, sample_weight=weights, batch_size=8, verbose=0
        )[0]
        expected = (losses * weights[x > 0]).sum() / len(losses)
        np.testing.assert_allclose(weighted, expected, rtol=2e-5)
        ids, _ = tfxclass.top_k(model, 3).predict(x, verbose=0)
        np.testing.assert_array_equal(ids[x > 0], best)

    def test_labels_of_either_rank_on_one_compiled_model(self):
        model = make_model(self.make_head())
        x, y = data()
        result = [
            model.evaluate(x, labels, batch_size=BATCH, verbose=0)
            for labels in (y, np.stack([y, np.full_like(y, -1)], 1), y)
        ]
        np.testing.assert_allclose(result, result[0], rtol=1e-6)

    def test_labels_without_a_known_shape(self):
        """As those of a tf.py_function."""
        head = built(self.make_head())
        x, y = data()

        @tf.function
        def losses():
            labels = tf.py_function(lambda: y, [], tf.int64)
            return head.compute_loss(x, labels)

        np.testing.assert_allclose(
            losses(), head.compute_loss(x, y), **TOLERANCE
        )
