"""How far apart two float32 computations of the same thing may be.

A dot product of n terms, added in any order, is within n u sum |terms| of the
exact one, u = eps / 2 (Higham, Accuracy and Stability of Numerical Algorithms,
2002, section 3.1). So the error follows the terms and not the result: near 0,
where they cancel, no relative tolerance holds, and another processor, thread
count or oneDNN adds in another order. Bounds here are float64 arrays, of the
difference of two computed results (which bounds that to the exact one, too).
"""

import numpy as np

from tests.support import reference

EPSILON = float(np.finfo(np.float32).eps)


def product_error_bound(queries, rows, bias=None, query_error=None):
    """Of `queries . rows^T + bias`, `[batch, num_rows]`.

    Args:
        queries: `[batch, dim]`.
        rows: `[num_rows, dim]`.
        bias: `[num_rows]` or None.
        query_error: bound of the queries' own error, `[batch, dim]`.
    """
    queries, rows = (np.abs(np.asarray(a, np.float64)) for a in (queries, rows))
    sizes, num_terms = queries @ rows.T, rows.shape[1]
    if bias is not None:
        sizes = sizes + np.abs(_finite(bias))
        num_terms += 1
    bound = num_terms * EPSILON * sizes
    return bound if query_error is None else bound + query_error @ rows.T


def cosine_error_bound(queries, rows, scale, query_error=None):
    """Of `scale` times the cosines.

    A normalised row has the error of its squared norm, half of dim u relative,
    and of three roundings (root, inverse, product).
    """
    dim = np.shape(rows)[1]
    sizes = np.abs(reference.normalized(queries)) @ np.abs(
        reference.normalized(rows).T
    )
    bound = (2 * dim + 8) * EPSILON * scale * sizes
    if query_error is None:
        return bound
    norms = np.linalg.norm(queries, axis=1, keepdims=True)
    moved = np.linalg.norm(query_error, axis=1, keepdims=True)
    # A direction moves by at most twice what its vector moves, over its norm.
    return bound + scale * np.divide(
        2 * moved, norms, out=np.zeros_like(moved), where=norms > 0
    )


def log_sum_error_bound(logits, bound):
    """Of the log of the sum of exponentials of each row, `[batch, 1]`."""
    logits = np.asarray(logits, np.float64)
    top = np.abs(np.max(_finite(logits), axis=1, keepdims=True))
    # As the logits move, so does it; a float32 sum of n; the log, and top + it.
    rounding = (logits.shape[1] + np.log(logits.shape[1]) + top + 4) * EPSILON
    return np.max(bound, axis=1, keepdims=True) + rounding


def probability_error_bound(logits, bound):
    """Of `softmax(logits)` `[batch, num_classes]`, from that of the logits."""
    logits = np.asarray(logits, np.float64)
    of_log = bound + log_sum_error_bound(logits, bound)
    # The difference of logit and log-sum is rounded as both are.
    of_log += (np.abs(_finite(logits)) + 4) * EPSILON
    return reference.softmax(logits) * np.expm1(of_log)


def score_error_bound(head, features, feature_error=None):
    """Of the output of a head with one class matrix: logits, probabilities."""
    kernel = np.asarray(head.kernel)
    bias = None if head.bias is None else np.asarray(head.bias)
    scale = head.logit_scale
    if head.similarity == "cosine":
        bound = cosine_error_bound(features, kernel, scale, feature_error)
    else:
        bound = product_error_bound(features, kernel, bias, feature_error)
    if head.activation is None:
        return bound
    logits = reference.head_logits(
        features, kernel, bias, head.similarity, scale
    )
    return probability_error_bound(logits, bound)


def assert_within(result, expected, bound):
    """Within `bound` of each other; infinities equal, NaN nowhere."""
    result, expected = (np.asarray(a, np.float64) for a in (result, expected))
    assert result.shape == expected.shape
    with np.errstate(invalid="ignore"):
        apart = np.where(result == expected, 0.0, np.abs(result - expected))
    bound = np.broadcast_to(bound, apart.shape)
    for at in np.argwhere(~(apart <= bound))[:1]:
        at = tuple(int(i) for i in at)
        raise AssertionError(
            f"{result[at]} and {expected[at]} at {at} are {apart[at]:.3g} "
            f"apart, more than {bound[at]:.3g}"
        )


def _finite(values):
    """Masked classes, at -inf, have no error."""
    values = np.asarray(values, np.float64)
    return np.where(np.isfinite(values), values, 0.0)
