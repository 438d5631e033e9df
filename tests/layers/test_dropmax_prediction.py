"""Prediction of DropMax by either equation, exported too; rho."""

import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support import reference
from tests.support.contract import BATCH
from tests.support.contract import CLASSES
from tests.support.contract import built
from tests.support.contract import data
from tests.support.contract import make_model
from tests.support.contract import randomize
from tests.support.dropmax_cases import each_mode
from tests.support.dropmax_cases import make_head
from tests.support.dropmax_cases import retain_logits
from tfxclass import layers
from tfxclass.losses import dropmax


def mixture_in_numpy(head, x, num_samples):
    logits = reference.head_logits(x, head.kernel.numpy())
    rho = reference.sigmoid(retain_logits(head, x))
    total = 0.0
    for i in range(num_samples):
        u = dropmax.uniform([head.num_classes], [head.seed, i]).numpy()
        masks = (u < rho).astype(float)
        total += np.exp(reference.masked_log_softmax(logits, masks))
    return total / num_samples


class TestPrediction:
    @pytest.mark.parametrize("mode", ["adaptive", "posterior", "random"])
    def test_samples_equal_numpy(self, mode):
        head = built(make_head(mode, predict_samples=30))
        x, y = data()
        expected = mixture_in_numpy(head, x, 30)
        result = head(x).numpy()
        np.testing.assert_allclose(result, expected, rtol=2e-4, atol=1e-6)
        np.testing.assert_allclose(result.sum(axis=1), 1.0, rtol=1e-5)
        np.testing.assert_allclose(
            head.compute_loss(x, y),
            -np.log(expected[np.arange(BATCH), y]),
            rtol=1e-4,
        )
        ids, scores = head.top_k(x, 4)
        best, _ = reference.top_k(expected, 4)
        np.testing.assert_array_equal(ids, best)
        np.testing.assert_allclose(
            scores, np.take_along_axis(result, best, 1), rtol=1e-5
        )

    def test_many_samples_approach_the_mean_over_all_masks(self):
        head = layers.DropMax(
            3, "adaptive", seed=1, mode_options={"predict_samples": 4_000}
        )
        built(head)
        x, _ = data(rows=2)
        logits = reference.head_logits(x, head.kernel.numpy())
        rho = reference.sigmoid(retain_logits(head, x))
        expected = 0.0
        for mask in np.ndindex(2, 2, 2):
            p = np.where(mask, rho, 1 - rho).prod(axis=1, keepdims=True)
            masked = reference.masked_log_softmax(logits, np.array(mask))
            expected = expected + p * np.exp(masked)
        # Four standard errors of a mean over masks.
        result = tf.function(head)(tf.constant(x))
        np.testing.assert_allclose(result, expected, atol=0.03)

    def test_the_same_in_any_batch_and_call(self):
        head = built(make_head("adaptive", predict_samples=10))
        x, _ = data()
        first = head(x).numpy()
        np.testing.assert_array_equal(first, head(x))
        alone = np.concatenate([head(x[i : i + 1]) for i in range(BATCH)])
        np.testing.assert_allclose(first, alone, rtol=1e-5, atol=1e-7)
        head.compute_loss(x, np.zeros(BATCH, int), training=True)
        np.testing.assert_array_equal(first, head(x))

    def test_logits_are_log_probabilities(self):
        options = {"predict_samples": 10, "activation": None}
        head = built(make_head("adaptive", **options))
        x, _ = data()
        expected = np.log(mixture_in_numpy(head, x, 10))
        np.testing.assert_allclose(head(x), expected, rtol=1e-4, atol=1e-4)

    def test_nan_rows_of_samples_have_no_best(self):
        head = built(make_head("adaptive", predict_samples=3))
        x, _ = data()
        x[2] = np.nan
        ids, _ = head.top_k(x, 4)
        assert np.all(ids.numpy()[2] == -1)
        assert np.all(np.delete(ids.numpy(), 2, axis=0) >= 0)

    @pytest.mark.parametrize(
        ("mode", "predict_samples", "activation"),
        [
            # The contract exports one of "adaptive", too.
            pytest.param("adaptive", None, "softmax", marks=pytest.mark.slow),
            pytest.param("adaptive", 30, "softmax", marks=pytest.mark.slow),
            pytest.param("posterior", None, None, marks=pytest.mark.slow),
            ("posterior", 30, None),
            ("random", 30, "softmax"),
            pytest.param("attention", None, "softmax", marks=pytest.mark.slow),
        ],
    )
    def test_export(self, mode, predict_samples, activation, tmp_path):
        """Proven through TensorFlow's C API: stock ops alone."""
        options = {"use_bias": True, "activation": activation}
        head = make_head(mode, predict_samples=predict_samples, **options)
        model = make_model(head)
        randomize(head)
        folder = tfxclass.export.saved_model(model, tmp_path, top_k=7)
        x, _ = data()
        served = tf.saved_model.load(folder).signatures["serving_default"]
        answers = served(x=tf.constant(x))
        ids, scores = tfxclass.top_k(model, 7).predict(x, verbose=0)
        np.testing.assert_array_equal(answers["ids"], ids)
        np.testing.assert_allclose(answers["scores"], scores, rtol=1e-4)

    @pytest.mark.parametrize("predict_samples", [None, 4])
    def test_blocks_of_many_classes(self, predict_samples, monkeypatch):
        """Streamed in blocks of 1,024 and exported in blocks, too."""
        monkeypatch.setattr("tfxclass.rows.blocks.BLOCK_LOGITS", 1)
        monkeypatch.setattr("tfxclass.rows.stock_search.ONE_BLOCK_CLASSES", 100)
        head = layers.DropMax(
            2500,
            num_sampled=50,
            sampler="uniform",
            use_bias=True,
            mode_options={"predict_samples": predict_samples},
            seed=1,
        )
        built(head)
        x, y = data(classes=2500)
        output = head(x).numpy()
        expected, _ = reference.top_k(output, 5)
        weights = head.export_weights()
        for ids, scores in (
            head.top_k(x, 5),
            tf.function(lambda x: head.top_k(x, 5, weights=weights))(x),
        ):
            np.testing.assert_array_equal(ids, expected)
            np.testing.assert_allclose(
                scores, np.take_along_axis(output, expected, 1), rtol=1e-4
            )
        np.testing.assert_allclose(
            head.compute_loss(x, y),
            -np.log(output[np.arange(BATCH), y]),
            rtol=1e-4,
        )


class TestRetainProbabilities:
    @each_mode
    def test_second_output(self, mode):
        model = make_model(make_head(mode))
        randomize(model.layers[-1])
        x, _ = data()
        output, rho = tfxclass.retain_probabilities(model).predict(x, verbose=0)
        features = model.layers[0](x).numpy()
        expected = reference.sigmoid(retain_logits(model.layers[-1], features))
        np.testing.assert_allclose(rho, expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(output, model(x), rtol=1e-6)

    def test_logits_and_samples(self):
        head = make_head("adaptive", activation=None, predict_samples=3)
        model = make_model(head)
        x, _ = data()
        output, _ = tfxclass.retain_probabilities(model).predict(x, verbose=0)
        np.testing.assert_allclose(np.exp(output).sum(axis=1), 1.0, rtol=1e-5)

    def test_other_heads_have_none(self):
        model = make_model(layers.FullSoftmax(CLASSES))
        with pytest.raises(ValueError, match="FullSoftmax"):
            tfxclass.retain_probabilities(model)
