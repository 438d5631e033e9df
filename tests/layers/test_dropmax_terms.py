"""Masks of DropMax and every term of its loss against NumPy in float64."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.support import reference
from tfxclass.losses import as_targets
from tfxclass.losses import dropmax


class TestTerms:
    """Each term of the loss against NumPy in float64."""

    random = np.random.default_rng(5)
    retain = 4 * random.normal(size=(6, 9))
    residual = 3 * random.normal(size=(6, 9))
    labels = np.array(
        [[2, 5], [0, -1], [-1, -1], [8, 0], [1, -1], [3, 4]], np.int64
    )

    @pytest.fixture
    def target(self):
        return dropmax.is_target(tf.zeros([6, 9]), tf.constant(self.labels))

    def check(self, result, expected):
        total = tf.reduce_sum(result, axis=1)
        np.testing.assert_allclose(total, expected, rtol=2e-5, atol=1e-5)

    @property
    def expected(self):
        return reference.dropmax_terms(self.retain, self.labels, self.residual)

    def test_is_target(self, target):
        wanted = [[c in row for c in range(9)] for row in self.labels]
        np.testing.assert_array_equal(target, wanted)

    def test_target_penalty(self, target):
        retain = tf.constant(self.retain, tf.float32)
        result = dropmax.target_penalty(retain, target)
        self.check(result, self.expected["target"])

    def test_kl(self, target):
        retain = tf.constant(self.retain, tf.float32)
        posterior = tf.constant(self.retain + self.residual, tf.float32)
        result = dropmax.bernoulli_kl(posterior, retain, target)
        self.check(result, self.expected["kl"])
        assert np.all(result.numpy() >= -1e-6)

    def test_kl_of_the_prior_is_equation_10(self, target):
        """With q = rho but at the target, KL is -log rho of the target."""
        retain = tf.constant(self.retain, tf.float32)
        result = dropmax.bernoulli_kl(retain, retain, target)
        np.testing.assert_array_equal(
            result, dropmax.target_penalty(retain, target)
        )

    def test_auxiliary(self, target):
        residual = tf.constant(self.residual, tf.float32)
        result = dropmax.auxiliary_loss(residual, target)
        self.check(result, self.expected["auxiliary"])

    def test_negative_entropy(self):
        retain = tf.constant(self.retain, tf.float32)
        result = dropmax.negative_entropy(retain)
        self.check(result, -self.expected["entropy"])
        least = dropmax.negative_entropy(tf.zeros([1])).numpy()
        np.testing.assert_allclose(least, -np.log(2), rtol=1e-6)

    @pytest.mark.parametrize("num_samples", [1, 4])
    def test_masked_cross_entropy(self, num_samples):
        masks = self.random.uniform(size=(num_samples, 6, 9))
        masks[0, :, 3] = 0.0  # dropped for certain
        logits = 2 * self.random.normal(size=(6, 9))
        labels = self.labels[:, :1].copy()
        labels[5] = 7
        with np.errstate(divide="ignore"):
            log_masks = tf.constant(np.log(masks), tf.float32)
        result = dropmax.masked_cross_entropy(
            tf.constant(logits, tf.float32), log_masks, as_targets(labels, 9)
        )
        expected = np.mean(
            [
                reference.cross_entropy(
                    np.log(z * np.exp(logits) + 1e-20), labels
                )
                for z in masks
            ],
            axis=0,
        )
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)

    def test_all_classes_dropped(self):
        """Epsilon alone is left: all classes are equal (equation 3)."""
        log_masks = tf.fill([1, 2, 3], float("-inf"))
        logits = tf.constant([[1.0, 2.0, 3.0], [0.0, 0.0, 5.0]])
        result = dropmax.masked_cross_entropy(
            logits, log_masks, as_targets([0, 1], 3)
        )
        np.testing.assert_allclose(result, [np.log(3)] * 2, rtol=1e-5)

    def test_add_epsilon(self):
        z = np.array([0.0, 1e-30, 1e-20, 3e-20, 1e-5, 0.5, 1.0])
        with np.errstate(divide="ignore"):
            log_mask = tf.constant(np.log(z), tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(log_mask)
            result = dropmax.add_epsilon(log_mask)
        np.testing.assert_allclose(result, np.log(z + 1e-20), rtol=1e-6)
        np.testing.assert_allclose(
            tape.gradient(result, log_mask), z / (z + 1e-20), atol=1e-5
        )


class TestMasks:
    def test_expectation_over_many_draws(self):
        rho = np.array([0.02, 0.2, 0.5, 0.9, 0.99])
        logits = np.log(rho / (1 - rho)).astype(np.float32)
        draws = dropmax.uniform([100_000, 5], [3, 4])
        error = 4 * np.sqrt(rho * (1 - rho) / 1e5)
        hard = np.exp(dropmax.bernoulli_log_mask(logits, draws))
        assert set(np.unique(hard)) == {0.0, 1.0}
        assert np.all(np.abs(hard.mean(axis=0) - rho) < error)
        z = np.exp(dropmax.concrete_log_mask(logits, draws, 0.1))
        assert np.all(np.abs((z > 0.5).mean(axis=0) - rho) < error)
        # The mean of a relaxed mask, by the midpoint rule.
        u = (np.arange(400_000) + 0.5) / 400_000
        exact = reference.concrete_mask(logits, u[:, None], 0.1).mean(axis=0)
        assert np.all(np.abs(z.mean(axis=0) - exact) < error)
        np.testing.assert_allclose(exact, rho, atol=0.01)

    @pytest.mark.parametrize("temperature", [0.1, 0.7])
    def test_concrete_equals_numpy(self, temperature):
        random = np.random.default_rng(1)
        logits = 3 * random.normal(size=(4, 6))
        draws = random.uniform(0.01, 0.99, (5, 4, 6))
        result = dropmax.concrete_log_mask(
            tf.constant(logits, tf.float32),
            tf.constant(draws, tf.float32),
            temperature,
        )
        expected = np.log(reference.concrete_mask(logits, draws, temperature))
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)

    def test_gradient_through_the_relaxation(self):
        random = np.random.default_rng(1)
        logits = random.normal(size=(4, 6))
        draws = random.uniform(0.05, 0.95, (3, 4, 6)).astype(np.float32)
        upstream = random.normal(size=(3, 4, 6))
        given = tf.constant(logits, tf.float32)
        with tf.GradientTape() as tape:
            tape.watch(given)
            z = dropmax.concrete_log_mask(given, tf.constant(draws), 0.5)
        gradient = tape.gradient(z, given, tf.constant(upstream, tf.float32))

        def in_numpy(x):
            masks = reference.concrete_mask(x, draws, 0.5)
            return np.sum(upstream * np.log(masks))

        for _ in range(5):
            direction = random.normal(size=logits.shape)
            expected = reference.numeric_gradient(in_numpy, logits, direction)
            np.testing.assert_allclose(
                np.sum(gradient.numpy() * direction), expected, rtol=1e-4
            )

    @given(
        st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=8),
        st.integers(0, 2**31),
    )
    def test_masks_are_finite_between_0_and_1(self, logits, seed):
        draws = dropmax.uniform([3, len(logits)], [seed, 1])
        log_z = dropmax.concrete_log_mask(tf.constant(logits), draws, 0.1)
        assert np.all(np.isfinite(log_z)) and np.all(log_z.numpy() <= 0)
