"""The error bounds that tests compare with: they hold, and are no wider."""

import numpy as np
import pytest

from tests.support import error_bounds as bounds
from tests.support import reference

QUERIES = np.random.default_rng(0).normal(size=(5, 64)).astype(np.float32)
ROWS = np.random.default_rng(1).normal(size=(300, 64)).astype(np.float32)


def in_float32(terms, order):
    """Sums over the last axis, one term after the other, all in float32."""
    total = np.zeros(terms.shape[:-1], np.float32)
    for i in order:
        total += terms[..., i]
    return total


def products(order):
    return in_float32(QUERIES[:, None] * ROWS, order)


def test_products_in_any_order_are_within_the_bound():
    bound = bounds.product_error_bound(QUERIES, ROWS)
    order = np.random.default_rng(2).permutation(64)
    bounds.assert_within(products(range(64)), products(order), bound)
    exact = QUERIES.astype(np.float64) @ ROWS.T
    bounds.assert_within(products(order), exact, bound)
    # An error of a thousandth part of the terms is found.
    with pytest.raises(AssertionError, match="apart, more than"):
        bounds.assert_within(
            exact + 1e-3 * np.abs(QUERIES) @ np.abs(ROWS.T), exact, bound
        )


def test_a_product_that_cancels_is_within_the_bound_alone():
    """Where the result is near 0 the error is not relative to it."""
    query = np.array([[1e4, 1.0, -1e4]], np.float32)
    row = np.array([[1.0, 1e-3, 1.0]], np.float32)
    forward = in_float32(query * row, [0, 1, 2])
    back = in_float32(query * row, [0, 2, 1])
    assert not np.allclose(forward, back, rtol=1e-3, atol=1e-7)
    bounds.assert_within(
        forward, back, bounds.product_error_bound(query, row)[0]
    )


@pytest.mark.parametrize("scale", [1.0, 24.0])
def test_cosines_are_within_the_bound(scale):
    def normalized(x, order):
        squares = in_float32(x * x, order)
        return x * (1 / np.sqrt(squares))[:, None]

    order = np.random.default_rng(3).permutation(64)
    result = in_float32(
        normalized(QUERIES, order)[:, None] * normalized(ROWS, order), order
    )
    bound = bounds.cosine_error_bound(QUERIES, ROWS, scale)
    exact = reference.head_logits(QUERIES, ROWS, None, "cosine", scale)
    bounds.assert_within(np.float32(scale) * result, exact, bound)
    assert np.max(bound) < 1e-3 * scale


def test_probabilities_are_within_the_bound():
    logits = products(range(64))
    bound = bounds.product_error_bound(QUERIES, ROWS)
    moved = logits + bound * np.random.default_rng(4).uniform(-1, 1)
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    total = in_float32(shifted, range(300))[:, None]
    of_probability = bounds.probability_error_bound(logits, bound)
    bounds.assert_within(
        shifted / total, reference.softmax(logits), of_probability
    )
    bounds.assert_within(
        reference.softmax(moved), reference.softmax(logits), of_probability
    )
    assert np.all(of_probability < 1e-2 * reference.softmax(logits))


def test_infinities_are_equal_and_nan_is_not():
    both = np.array([-np.inf, 1.0])
    bounds.assert_within(both, both, 0.0)
    with pytest.raises(AssertionError, match="nan"):
        bounds.assert_within([np.nan], [np.nan], 1.0)
    with pytest.raises(AssertionError, match="apart"):
        bounds.assert_within([-np.inf], [1.0], 1e9)
