"""Which skipped steps count, and by how much: the `terms` of a catch-up.

The mathematics is told in custom_ops/core/skipped_steps.h.
"""

import functools
import math

import numpy as np

# A step that moves a row by less than this share of the first one is left out.
_NEGLIGIBLE = 1e-9
# What a polynomial may be off, as a share of the move.
_TOLERANCE = 1e-7
_DEGREES = (2, 5)
# How far above epsilon the root of a velocity is thought to be: 10^4 / 10^-7.
_ROOT_OVER_EPSILON = 1e11


@functools.cache
def sgd_terms(momentum: float, nesterov: bool, capacity: int) -> np.ndarray:
    """float32 `[1, steps]`: by how much a velocity moves its row.

    Args:
        momentum: float in [0, 1].
        nesterov: bool.
        capacity: int, no row skips more steps.
    """
    powers = _powers(momentum, min(_num_steps(momentum), capacity))
    return -(powers * (momentum if nesterov else 1))[None].astype(np.float32)


@functools.cache
def adam_terms(
    beta_1: float, beta_2: float, epsilon: float, amsgrad: bool, capacity: int
) -> tuple[np.ndarray, bool]:
    """By how much a first moment moves its row, and whether element by element.

    Args:
        beta_1, beta_2, epsilon: floats.
        amsgrad: bool.
        capacity: int, no row skips more steps.

    Returns:
        float32 `[n, steps]` and False: polynomials in x = epsilon / (sqrt(v) +
        epsilon), n coefficients for each step; or, where betas make none that
        is good to 1e-7, `[2, steps]`, beta_1^i and beta_2^(i/2), and True.
    """
    if amsgrad:
        powers = _powers(beta_1, min(_num_steps(beta_1), capacity))
        return powers[None].astype(np.float32), False
    root = math.sqrt(beta_2)
    ratio = beta_1 / root if root else math.inf
    steps = _num_steps(ratio)
    powers = _powers(beta_1, min(steps, capacity))
    roots = _powers(root, len(powers))
    if ratio < 1:
        for degree in _DEGREES:
            terms, error = _polynomials(powers, roots, degree)
            if error < _TOLERANCE:
                return terms.astype(np.float32), False
    # Terms rise until c_i sqrt(v) is below epsilon, then fall like beta_1^i.
    fading = math.log(_ROOT_OVER_EPSILON) / -math.log(root) if root else 0
    steps = min(steps, _num_steps(beta_1) + math.ceil(fading), capacity)
    terms = np.stack([_powers(beta_1, steps), _powers(root, steps)])
    return terms.astype(np.float32), True


def check_betas(beta_1: float, beta_2: float, epsilon: float) -> None:
    """Raises a ValueError where dense Adam moves a resting row without end."""
    if beta_1**2 >= beta_2 and not epsilon > 0 and beta_1 > 0:
        raise ValueError(
            "`catch_up=True` needs `beta_1` below the root of `beta_2`, or "
            "`epsilon` > 0: without either, Adam's steps on a resting row do "
            f"not fade. Received: beta_1={beta_1}, beta_2={beta_2}, "
            f"epsilon={epsilon}"
        )


def _num_steps(ratio):
    """Steps until ratio^i is negligible; more than any history if never."""
    if ratio >= 1:
        return 1 << 62
    if ratio <= 0:
        return 1
    return max(1, math.ceil(math.log(_NEGLIGIBLE) / math.log(ratio)))


def _powers(ratio, steps):
    """ratio^1, ..., ratio^steps."""
    return float(ratio) ** np.arange(1, steps + 1)


def _polynomials(powers, roots, degree):
    """`[degree + 1, steps]` of beta_1^i / (c_i + (1 - c_i) x), and the error.

    Interpolated at Chebyshev's nodes on [0, 1].
    """
    angles = math.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)
    nodes = (1 + np.cos(angles)) / 2
    terms = np.linalg.solve(
        np.vander(nodes, increasing=True), _terms_at(powers, roots, nodes)
    )
    x = np.linspace(0, 1, 33)
    exact = _terms_at(powers, roots, x)
    found = np.vander(x, degree + 1, increasing=True) @ terms
    error = np.abs(found - exact).sum(axis=1) / exact.sum(axis=1).clip(1e-300)
    return terms, error.max()


def _terms_at(powers, roots, x):
    return powers / (roots + (1 - roots) * x[:, None])
