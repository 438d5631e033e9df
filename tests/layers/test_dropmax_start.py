"""Where the biases of posterior DropMax begin, and what hangs on it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from tests.support import reference
from tests.support.contract import CLASSES
from tests.support.contract import DIM
from tfxclass import layers
from tfxclass.losses import dropmax


def descent(kl, auxiliary, entropy):
    """Where gradient descent from zeros ends, by a solver of ODEs."""

    def velocity(_, point):
        p, r = point
        rho, q = reference.sigmoid(p), reference.sigmoid(p + r)
        of_p = kl * (rho - q) + entropy * rho * (1 - rho) * p
        of_r = auxiliary * reference.sigmoid(r) + kl * q * (1 - q) * r
        return [-of_p, -of_r]

    options = {"method": "LSODA", "rtol": 1e-9, "atol": 1e-9}
    return solve_ivp(velocity, (0, 1e6), [0.0, 0.0], **options).y[:, -1]


@pytest.mark.parametrize(
    "weights",
    # The third has two more solutions, farther from zero.
    [(1, 1, 3), (1, 1, 1), (10, 0.1, 1), (1, 0.1, 1), (2, 1, 3), (1, 1, 5)],
)
def test_stationary_logits_are_where_descent_ends(weights):
    found = dropmax.stationary_logits(*weights)
    np.testing.assert_allclose(found, descent(*weights), atol=1e-4)


def test_stationary_probabilities_of_the_default_weights():
    """As measured in models that were trained: rho 0.41, q 0.13."""
    p, r = dropmax.stationary_logits(1.0, 1.0, 3.0)
    assert reference.sigmoid(p) == pytest.approx(0.403, abs=5e-4)
    assert reference.sigmoid(p + r) == pytest.approx(0.121, abs=5e-4)


@given(*[st.sampled_from([0.0, 0.01, 0.3, 1.0, 3.0, 30.0]) for _ in range(3)])
def test_the_loss_is_stationary_there(kl, auxiliary, entropy):
    """By gradients of the loss's own terms, unless it lies below -10."""
    p, r = dropmax.stationary_logits(kl, auxiliary, entropy)
    assert -10 <= p <= 0 and -10 <= r <= 0
    given_p, given_r = tf.constant([[p]]), tf.constant([[r]])
    target = tf.constant([[False]])
    with tf.GradientTape() as tape:
        tape.watch([given_p, given_r])
        drawn_by = tf.stop_gradient(given_p) + given_r
        loss = kl * dropmax.bernoulli_kl(drawn_by, given_p, target)
        loss += auxiliary * dropmax.auxiliary_loss(given_r, target)
        loss += entropy * dropmax.negative_entropy(given_p)
    of_p, of_r = tape.gradient(loss, [given_p, given_r])
    # float32 terms of these weights.
    size = 1e-5 * (kl + auxiliary + entropy)
    assert p == -10 or abs(of_p.numpy().item()) <= size
    assert r == -10 or abs(of_r.numpy().item()) <= size


@pytest.mark.parametrize(
    ("mode", "weights"),
    [
        ("posterior", {}),
        ("posterior", {"entropy_weight": 1.0}),
        ("adaptive", {}),
        ("attention", {}),
    ],
)
def test_first_biases(mode, weights):
    head = layers.DropMax(CLASSES, mode, mode_options=weights)
    head.build((None, DIM))
    expected = [0.0]
    if mode == "posterior":
        entropy = weights.get("entropy_weight", 3.0)
        expected = dropmax.stationary_logits(1.0, 1.0, entropy)
    pairs = [x for x in (head.retain, head.posterior) if x is not None]
    for matrix, value in zip(pairs, expected, strict=True):
        np.testing.assert_array_equal(matrix.kernel, 0.0)
        np.testing.assert_allclose(matrix.bias, value, rtol=1e-6)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("posterior", (1.0, 1.0, 3.0)),
        ("adaptive", (1.0, None, 1.0)),
        ("attention", (1.0, None, 1.0)),
        ("random", (None, None, None)),
    ],
)
def test_default_weights(mode, expected):
    p = 0.5 if mode == "random" else None
    head = layers.DropMax(9, mode, mode_options={"retain_probability": p})
    found = head.kl_weight, head.auxiliary_weight, head.entropy_weight
    assert found == expected
    again = layers.DropMax.from_config(head.get_config())
    assert again.get_config() == head.get_config()


@pytest.mark.slow
def test_hundreds_of_classes_are_learned():
    """From zeros six times as many errors: the features are drowned."""
    balanced, zeros = error_of_posterior(False), error_of_posterior(True)
    assert balanced < 0.1 and zeros > 0.2, (balanced, zeros)


def error_of_posterior(from_zeros, classes=300, dim=16, rows=15_000):
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    centers = random.normal(size=(classes, dim))
    y = random.integers(0, classes, rows)
    x = centers[y] + 0.3 * random.normal(size=(rows, dim))
    head = layers.DropMax(classes, "posterior", use_bias=True, seed=1)
    hidden = [keras.layers.Dense(32, activation="relu") for _ in range(2)]
    model = keras.Sequential([keras.Input([dim]), *hidden, head])
    if from_zeros:
        for matrix in (head.retain, head.posterior):
            matrix.bias.assign(tf.zeros(matrix.bias.shape))
    model.compile(keras.optimizers.Adam(3e-3), loss=head.loss)
    model.fit(x, y, batch_size=100, verbose=0, shuffle=False)
    answers = model.predict(x[:1000], batch_size=1000, verbose=0)
    return np.mean(answers.argmax(axis=1) != y[:1000])
