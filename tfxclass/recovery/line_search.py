"""Losses of many steps from a lifted class matrix, in one pass over classes."""

from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.core.softmax import empty_stats
from tfxclass.core.softmax import logsumexp_of
from tfxclass.core.targets import Targets
from tfxclass.ops import library
from tfxclass.recovery.rows import Rows
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.blocks import logits_at


class Step(NamedTuple):
    """`W = keep V R^T + eta diag(1 / (p + q)) G (S + mu I)^-1`.

    Attributes:
        eta: float >= 0, length; 0 is the lifted matrix.
        mu: float > 0, added to the eigenvalues of S.
        q: float > 0, added to the class frequencies p.
        keep: float in [0, 1], part of the lifted matrix.
    """

    eta: float
    mu: float
    q: float
    keep: float = 1.0


class Direction(NamedTuple):
    """The direction of a step.

    Attributes:
        gradient: float32 `[num_classes, dim]`, a multiple of G.
        scale: float; G is `scale * gradient`.
        frequencies: float64 `[num_classes]`, p.
        queries: dict by mu: float32 `[n, dim]`, the rows' features times
            `(S + mu I)^-1`.
    """

    gradient: np.ndarray
    scale: float
    frequencies: np.ndarray
    queries: dict[float, np.ndarray]


def losses_of(
    head: keras.layers.Layer,
    rows: Rows,
    direction: Direction,
    steps: Sequence[Step],
) -> np.ndarray:
    """Mean cross-entropy of the rows after each of `steps`, float64.

    Logits are linear in eta and in what is kept, so each block of classes is
    multiplied once for every mu, and no class matrix is made.

    Args:
        head: the one whose lifted matrix the steps begin at.
        rows: `Rows`, the n of `direction`.
        direction: `Direction`.
        steps: list of `Step`.

    Returns:
        `[len(steps)]`; infinity where numbers overflow.
    """
    parts = head.parts(rows.features)
    stats = [empty_stats(len(rows.weights)) for _ in steps]
    targets = [0.0 for _ in steps]
    for queries, part in parts:
        part = part.whole()
        local = part.local_ids(rows.targets.ids)
        here = Targets(local, tf.where(local >= 0, rows.targets.weights, 0.0))
        bare = part._replace(bias=None)
        base = _weighted(logits_at(queries, bare, local), here)
        bias = _weighted(_bias_at(part, local), here)
        moved = _at_targets(direction, rows, here)
        for i, step in enumerate(steps):
            targets[i] += step.keep * base + bias + step.eta * moved(step)
        _fold(stats, Blocks(queries, bare), part, direction, steps)
    return np.array(
        [
            _mean(logsumexp_of(*stat) - tf.cast(target, tf.float64), rows)
            for stat, target in zip(stats, targets)
        ]
    )


def _mean(losses, rows):
    weights = tf.cast(rows.weights * rows.targets.is_labelled, tf.float64)
    losses = tf.where(weights > 0, losses, 0.0)
    mean = float(tf.reduce_sum(weights * losses) / tf.reduce_sum(weights))
    return mean if np.isfinite(mean) else np.inf


def _weighted(logits, targets):
    return tf.reduce_sum(
        tf.math.multiply_no_nan(logits, targets.weights), axis=1
    )


def _at_targets(direction, rows, here):
    """A function of a `Step`: how the rows' target logits change with eta."""
    place, column = np.nonzero(here.ids >= 0)
    ids = rows.targets.ids.numpy()[place, column]
    shares = here.weights.numpy()[place, column] * direction.scale
    slopes = {
        mu: np.einsum("nd,nd->n", queries[place], direction.gradient[ids])
        for mu, queries in direction.queries.items()
    }

    def moved(step):
        of_labels = slopes[step.mu] * shares
        of_labels = of_labels / (direction.frequencies[ids] + step.q)
        total = np.bincount(place, of_labels, len(here.ids))
        return tf.constant(total, tf.float32)

    return moved


def _bias_at(part, local):
    if part.bias is None:
        return tf.zeros(tf.shape(local))
    return tf.gather(part.bias, tf.maximum(local, 0))


def _fold(stats, blocks, part, direction, steps):
    """Adds all classes of `blocks`, without a bias, and the bias of `part`."""
    no_labels = tf.fill([blocks.batch, 1], tf.constant(-1, tf.int64))
    no_delta = tf.zeros([blocks.batch, 1])
    size = int(blocks.size)
    for start in range(0, int(blocks.num_classes), size):
        logits = blocks.logits(start)
        bias = 0.0 if part.bias is None else part.bias[start : start + size]
        at = slice(part.first + start, part.first + start + logits.shape[1])
        gradient = tf.constant(direction.gradient[at])
        slopes = {
            mu: tf.matmul(queries, gradient, transpose_b=True)
            for mu, queries in direction.queries.items()
        }
        kept = {keep: keep * logits + bias for keep in {s.keep for s in steps}}
        for i, step in enumerate(steps):
            factor = direction.scale / (direction.frequencies[at] + step.q)
            factor = tf.constant(step.eta * factor, tf.float32)
            stats[i] = library.ops.tfxclass_softmax_block_stats(
                kept[step.keep] + slopes[step.mu] * factor,
                no_labels,
                no_delta,
                start,
                *stats[i],
            )
