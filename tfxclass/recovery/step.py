"""Recovery by one preconditioned gradient step of a searched length.

The class matrix is

    W = keep V R^T + eta diag(1 / (p + q)) G (S + mu I)^-1
    G = (Y - P)^T X / n,  S = X^T X / n,  p = class frequencies

with short class vectors V, projection R, features X, labels Y, and the
probabilities P of the projected model. -G is the gradient of the mean loss at
the lifted matrix V R^T. Its second derivative for class c is about `p_c S`, of
which the two other factors approximate the inverse (Martens and Grosse, ICML
2015). eta, mu, q and keep are chosen by the loss on held-out rows. So the step
is never worse there than the lifted matrix, which is eta = 0 and keep = 1. keep
is less than 1 only if the projected model is overconfident.
"""

import itertools
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.core.targets import uniform_targets
from tfxclass.ops import bfloat16_rows
from tfxclass.recovery.sums import RecoverySums
from tfxclass.rows.loss import cross_entropy

# Rows of the search, and of its first part: the least, the most, and the logits
# that are computed in between.
_HELD_OUT, _LOGITS = (1024, 4096), 2**30
_COARSE, _COARSE_LOGITS = (128, 1024), 2**27
# In mean eigenvalues of S, and in 1 / num_classes.
_RIDGES = (1e-2, 1e-1, 1.0)
_SHARES = (1.0, 10.0, 100.0)
_KEEPS = (1.0, 0.5, 0.25, 0.1, 0.0)
_LENGTHS = 10.0 ** np.arange(-2.0, 4.5, 0.5)
_FINER = 10.0 ** (np.arange(-3, 4) / 12)
# Rows, each once for every step, whose losses are computed together.
_ROWS_AT_ONCE = 4096
# Numbers of a block of class vectors: 8 MiB of float32.
_BLOCK = 1 << 21


class Step(NamedTuple):
    """Numbers of the formula above; with eta = 0, mu and q do not matter."""

    eta: float
    mu: float = 1.0
    q: float = 1.0
    keep: float = 1.0


class Report(NamedTuple):
    """The step that was found, and mean losses of the held-out rows."""

    step: Step
    loss: float
    lifted_loss: float
    num_rows: int

    def __str__(self):
        eta, mu, q, keep = self.step
        return (
            f"step: eta {eta:.3g}, mu {mu:.3g}, q {q:.3g}, kept {keep:.3g}; "
            f"loss of {self.num_rows:,} rows held out {self.lifted_loss:.4g} "
            f"before, {self.loss:.4g} after"
        )


def rows_held_out(num_classes: int) -> int:
    """How many examples are held out for the search, 1,024 to 4,096."""
    return int(np.clip(_LOGITS // num_classes, *_HELD_OUT))


def recovered_by_step(sums: RecoverySums) -> tuple[np.ndarray, Report]:
    """The class matrix, float32 `[num_classes, dim]`, and the `Report`."""
    sums.return_surplus()
    sums.check_rows()
    inverses = _inverses(sums)
    report = _search(sums, inverses)
    eta, mu, q, keep = report.step
    kernel = np.empty(sums.kernel.shape, np.float32)
    for at, rows in lifted_blocks(sums.head):
        kernel[at] = rows * np.float32(keep)
        if eta:
            moves = sums.kernel[at] * _factors(sums, q, at)
            kernel[at] += np.float32(eta) * (moves @ inverses[mu])
    return kernel, report


def lifted_blocks(
    head: keras.layers.Layer,
) -> Iterator[tuple[slice, np.ndarray]]:
    """V R^T in blocks: ranges of classes, and their float32 `[size, dim]`."""
    first = 0
    for projection, rows in head.projected_rows():
        for at in row_blocks(rows.shape[0], head.projection.shape[0]):
            block = tf.matmul(rows[at], projection, transpose_b=True)
            yield slice(first + at.start, first + at.stop), block.numpy()
        first += rows.shape[0]


def row_blocks(count: int, dim: int) -> Iterator[slice]:
    """`[count, dim]` in blocks of rows that need little memory."""
    size = max(_BLOCK // dim, 1)
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def _inverses(sums):
    """Inverses of `S + mu I` by mu, float32."""
    moments = sums.moments / sums.total_weight
    mean = float(np.trace(moments)) / len(moments)
    # Features that are all zero leave nothing to divide by.
    ridges = [ridge * mean for ridge in _RIDGES] if mean > 0 else [1.0]
    identity = np.eye(len(moments))
    return {
        mu: np.linalg.inv(moments + mu * identity).astype(np.float32)
        for mu in ridges
    }


def _factors(sums, q, at):
    """float32 `[size, 1]`: with them, the sums become G / (p + q)."""
    found = 1 / (sums.counts[at] + q * sums.total_weight)
    return found.astype(np.float32)[:, np.newaxis]


def _search(sums, inverses):
    """`Report` of the step with the least loss of the held-out rows."""
    rows = sums.held_out
    rows = rows.at((rows.weights > 0) & (rows.ids >= 0).any(axis=1))
    if not len(rows.ids):
        return Report(Step(0.0), np.nan, np.nan, 0)
    seen = (rows.ids >= 0) & (sums.counts[rows.ids] > 0)
    lone = len(seen) - np.count_nonzero(seen.any(axis=1))
    if 2 * lone > len(seen):
        warnings.warn(
            f"{lone} of the {len(seen)} held-out examples are the only ones "
            "of their class. A step cannot help them, so it will be too "
            "short. Give two or more examples for each class.",
            stacklevel=2,
        )

    def best(steps):
        return steps[int(np.argmin(_losses(sums, inverses, some, steps)))]

    num_classes = sums.head.num_classes
    count = int(np.clip(_COARSE_LOGITS // num_classes, *_COARSE))
    some = np.linspace(0, len(rows.weights) - 1, count).astype(int)
    some = rows.at(np.unique(some))
    keep = best([Step(0.0, min(inverses), keep=keep) for keep in _KEEPS]).keep
    shares = [share / num_classes for share in _SHARES]
    keeps = dict.fromkeys((1.0, keep))
    grid = itertools.product(_LENGTHS, inverses, shares, keeps)
    found = best([Step(*one) for one in grid])
    steps = [found._replace(eta=0.0, keep=1.0)]
    steps += [found._replace(eta=found.eta * factor) for factor in _FINER]
    losses = _losses(sums, inverses, rows, steps)
    step = steps[int(np.argmin(losses))]
    return Report(step, losses.min(), losses[0], len(rows.weights))


def _losses(sums, inverses, rows, steps):
    """Mean cross-entropy of the rows after each step; infinity for NaN.

    Logits after a step are products of the short features and class vectors, to
    which the step's are appended as columns.
    """
    losses = np.zeros(len(steps))
    features = tf.constant(rows.features)
    parts = sums.head.parts(features)
    moved = {mu: features @ inverses[mu] for mu in {x.mu for x in steps}}
    at_once = max(_ROWS_AT_ONCE // len(rows.weights), 1)
    for q in {step.q for step in steps}:
        widened = [_with_step(sums, part.whole(), q) for _, part in parts]
        chosen = [i for i, step in enumerate(steps) if step.q == q]
        for start in range(0, len(chosen), at_once):
            some = chosen[start : start + at_once]
            after = [
                (_queries(x, moved, [steps[i] for i in some]), part)
                for (x, _), part in zip(parts, widened)
            ]
            ids = np.tile(rows.ids, (len(some), 1))
            each = cross_entropy(after, uniform_targets(ids)).numpy()
            each = each.reshape(len(some), -1)
            losses[some] = np.average(each, axis=1, weights=rows.weights)
    return np.where(np.isfinite(losses), losses, np.inf)


def _with_step(sums, part, q):
    """Class vectors of a part and of a step, side by side."""
    at = slice(part.first, part.first + part.num_classes)
    short = bfloat16_rows.widen(part.kernel).numpy()
    width = short.shape[1]
    kernel = np.empty((len(short), width + sums.kernel.shape[1]), "f4")
    kernel[:, :width] = short
    np.multiply(sums.kernel[at], _factors(sums, q, at), kernel[:, width:])
    return part._replace(kernel=tf.constant(kernel), bfloat16_products=False)


def _queries(short, moved, steps):
    """Queries of all steps: short features, and features moved by the step."""
    each = [
        tf.concat([step.keep * short, step.eta * moved[step.mu]], axis=1)
        for step in steps
    ]
    return tf.concat(each, axis=0)
