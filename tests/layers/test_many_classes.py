"""Sums over a million classes against NumPy in float64, within 1e-6.

Features have one dimension and are powers of two, so that logits are exact:
what differs is the sum of exponentials. Sums of equal numbers lose most.
"""

import numpy as np
import pytest
import tensorflow as tf

from tfxclass.core import softmax
from tfxclass.core.targets import as_targets
from tfxclass.ops import library
from tfxclass.rows import blocks
from tfxclass.rows import search
from tfxclass.rows import stock_search
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.rows.loss import cross_entropy

CLASSES = 1_000_000
QUERIES = np.array([[1.0], [-0.5]], np.float32)
LABELS = np.array([0, CLASSES - 1])
SPREAD = {"equal": 1e-3, "apart": 4.0}
# exp to 2.5e-7, float32 sums of at most 16 numbers to 5e-7, and the best logit
# and the loss as float32 to 1e-7.
TOLERANCE = 1e-6


@pytest.fixture(params=SPREAD)
def kernel(request):
    random = np.random.default_rng(0)
    rows = random.normal(size=(CLASSES, 1), scale=SPREAD[request.param])
    return rows.astype(np.float32)


@pytest.fixture(params=[1 << 21, 1])
def block_logits(request, monkeypatch):
    """One block of all classes, or nearly a thousand small ones."""
    monkeypatch.setattr(blocks, "BLOCK_LOGITS", request.param)


def exact(kernel):
    """`(logits, logsumexp)`, float64."""
    logits = QUERIES.astype(np.float64) @ kernel.T.astype(np.float64)
    top = logits.max(axis=1)
    return logits, top + np.log(np.exp(logits - top[:, None]).sum(axis=1))


def expected_loss(kernel):
    logits, logsumexp = exact(kernel)
    return logsumexp - logits[np.arange(2), LABELS]


def best_probabilities(kernel):
    logits, logsumexp = exact(kernel)
    return np.exp(np.sort(logits)[:, :-4:-1] - logsumexp[:, None])


def test_sum_of_a_block(kernel):
    logits = QUERIES @ kernel.T
    nothing = tf.fill([2, 1], tf.constant(-1, tf.int64))
    top, total = library.ops.tfxclass_softmax_block_stats(
        logits, nothing, tf.zeros([2, 1]), 0, *softmax.empty_stats(2)
    )
    shifted = logits.astype(np.float64) - top.numpy()[:, None]
    np.testing.assert_allclose(
        total, np.exp(shifted).sum(axis=1), rtol=TOLERANCE
    )


def test_one_part(kernel, block_logits):
    parts = [(tf.constant(QUERIES), ClassRows(tf.constant(kernel)))]
    loss = cross_entropy(parts, as_targets(LABELS, CLASSES))
    np.testing.assert_allclose(loss, expected_loss(kernel), rtol=TOLERANCE)


def test_parts(kernel, block_logits):
    half = CLASSES // 2
    queries = tf.constant(QUERIES)
    parts = [
        (queries, ClassRows(tf.constant(rows), first=first, size=half))
        for rows, first in zip(np.split(kernel, 2), (0, half))
    ]
    loss = cross_entropy(parts, as_targets(LABELS, CLASSES))
    np.testing.assert_allclose(loss, expected_loss(kernel), rtol=TOLERANCE)


@pytest.mark.parametrize("find", [search.best_of_rows, stock_search.best])
def test_top_k(kernel, block_logits, find):
    rows = ClassRows(tf.constant(kernel))
    # A graph, as models and exports are: an eager loop over blocks is slow.
    best = tf.function(lambda: find(tf.constant(QUERIES), rows, 3))()
    scores = softmax.probabilities(best.logits, best.logsumexp)
    np.testing.assert_allclose(
        scores, best_probabilities(kernel), rtol=TOLERANCE
    )
