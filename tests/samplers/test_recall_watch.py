"""When probes of a few queries say that an index fell, and when they do not."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.cases import quick
from tfxclass.samplers.schedule import RecallWatch
from tfxclass.samplers.schedule import recall_of

QUERIES, BEST = 16, 10


class Twin:
    """The watch in NumPy, from its definition: means of what was seen."""

    def __init__(self):
        self.seen, self.recent, self.noise = [], None, None

    def add(self, recall, variance):
        self.seen.append(recall)
        if self.recent is None:
            self.recent, self.noise = recall, variance
        self.recent = 0.8 * self.recent + 0.2 * recall
        self.noise = 0.8 * self.noise + 0.2 * variance
        first = self.seen[:4]
        floor, share = 0.9 * np.mean(first), 1 / len(first)
        alone = recall < floor - 3 * np.sqrt(self.noise * (1 + share))
        error = np.sqrt(self.noise * (0.2 / 1.8 + share))
        return alone or self.recent < floor - 2 * error


def probes(recalls, seed=0, together=True):
    """`(hits, wanted)` of queries that find about so much, each its own."""
    random = np.random.default_rng(seed)
    for recall in recalls:
        own = np.full(QUERIES, recall)
        if together:  # as if a query's hits were three draws
            own = random.beta(2 * recall, 2 * (1 - recall), QUERIES)
        yield random.binomial(BEST, own), np.full(QUERIES, BEST)


@tf.function
def judge(watch, hits, wanted, is_first):
    """A probe's recall, its variance, the watch after it, and a fall."""
    recall, variance = recall_of(hits, wanted)
    watch = watch.after(recall, variance, is_first)
    return recall, variance, watch, watch.fell(recall)


def first_fall(recalls, **options):
    """The probe at which the index fell, or None; as the twin has it."""
    watch, twin = RecallWatch(*[tf.constant(0.0)] * 4), Twin()
    for number, (hits, wanted) in enumerate(probes(recalls, **options)):
        recall, variance, watch, fell = judge(
            watch,
            tf.constant(hits, tf.int32),
            tf.constant(wanted, tf.int32),
            tf.constant(number == 0),
        )
        np.testing.assert_allclose(recall, hits.sum() / wanted.sum(), rtol=1e-6)
        assert fell == twin.add(float(recall), float(variance))
        if fell:
            return number
    return None


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("recall", quick([0.3, 0.5, 0.7, 0.95], [0.5]))
def test_noise_is_no_fall(recall, together):
    """A rebuild for nothing costs a quarter of the steps' time."""
    found = [
        first_fall([recall] * 60, seed=seed, together=together)
        for seed in range(5)
    ]
    assert sum(x is not None for x in found) <= 1


@pytest.mark.parametrize("start", [0.5, 0.9])
def test_a_slow_fall_is_seen(start):
    """1.5 % a probe: a floor that moved along would never tell."""
    recalls = start * 0.985 ** np.arange(200)
    for seed in range(3):
        assert recalls[first_fall(recalls, seed=seed)] > 0.55 * start


def test_a_sudden_fall_is_seen_at_once():
    for seed in range(5):
        assert first_fall([0.9] * 6 + [0.3] * 3, seed=seed) in (6, 7)


def test_variance_is_that_between_queries():
    random = np.random.default_rng(2)
    found, told = [], []
    measure = tf.function(recall_of)
    for hits, wanted in probes([0.6] * 400, seed=random):
        recall, variance = measure(
            tf.constant(hits, tf.int32), tf.constant(wanted, tf.int32)
        )
        found.append(float(recall))
        told.append(float(variance))
    # The variance of a variance of 400 draws: about 7 % of it.
    np.testing.assert_allclose(np.mean(told), np.var(found), rtol=0.3)


def test_perfect_probes_are_not_without_noise():
    hits = tf.fill([QUERIES], BEST)
    recall, variance = recall_of(hits, hits)
    assert recall == 1 and variance > 0
    recall, variance = recall_of(0 * hits, 0 * hits)
    assert recall == 0 and np.isfinite(variance)
