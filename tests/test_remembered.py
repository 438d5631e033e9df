"""Neighbours by label: what is kept, who is searched for, what a step has."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.test_hashing_forest import clustered
from tfxclass import layers
from tfxclass import samplers
from tfxclass.samplers import hashing_forest
from tfxclass.samplers import masses
from tfxclass.samplers import remembered
from tfxclass.samplers.remembered import Remembered

CLASSES, DIM, BATCH = 300, 8, 16


def int64(values):
    return tf.constant(values, tf.int64)


def made(num_classes=CLASSES):
    return Remembered(keras.layers.Layer(), num_classes)


def padded(ids):
    """A column of ids, and seven of padding."""
    return tf.pad(int64(ids)[:, None], [[0, 0], [0, 7]], constant_values=-1)


def test_what_is_noted_is_recalled():
    kept = made()
    found = np.arange(4 * 9).reshape(4, 9)
    kept.note(int64([5, 7, -1, 5]), int64(2), int64(found))
    kept.note(int64([7]), int64(4), int64(found[3:]))
    steps, ids = kept.recall(int64([7, 5, 6, -1]))
    assert steps.numpy().tolist() == [4, 2, -1, tf.int64.max]
    # Eight of nine, and the first of two rows of one label.
    assert ids.numpy()[0].tolist() == list(range(27, 35))
    assert ids.numpy()[1].tolist() == list(range(8))
    assert (ids.numpy()[2] == -1).all()


def test_classes_that_share_a_place_take_it_from_each_other(monkeypatch):
    monkeypatch.setattr(remembered, "_MOST_SLOTS", 10)
    kept = made()
    assert remembered.bytes_of(CLASSES) == remembered.bytes_of(10)
    kept.note(int64([3]), int64(0), padded([1]))
    kept.note(int64([13]), int64(1), padded([2]))
    steps, ids = kept.recall(int64([3, 13]))
    assert steps.numpy().tolist() == [-1, 1]
    assert ids.numpy()[:, 0].tolist() == [-1, 2]


def test_the_rows_searched_for_longest_ago_are_searched_for():
    kept = made()
    for step, label in enumerate([4, 2, 3]):
        kept.note(int64([label]), int64(step), padded([10 * label]))
    asked = []

    def find(queries):
        asked.append(queries.numpy()[:, 0].tolist())
        return padded(100 + np.arange(len(queries)))

    def search(labels, step, count):
        queries = tf.range(len(labels), dtype=tf.float32)[:, tf.newaxis]
        found = kept.search(
            queries, int64(labels), int64(step), tf.constant(count), find, 1
        ).numpy()
        return found[found >= 0].tolist()

    # Label 9 is new; a row without a label is the last.
    assert search([3, -1, 2, 9, 4], 3, 2) == [100, 101, 20, 30]
    assert search([3, -1, 2, 9, 4], 4, 1) == [100, 30, 100, 101]
    assert asked == [[3, 4], [2]]


def hard(rows, features, labels):
    """The best class of each row that is no label, by NumPy."""
    logits = features @ rows.T
    logits[:, labels] = -np.inf
    return logits.argmax(axis=1)


@pytest.mark.parametrize(("share", "least"), [(None, 0.9), (1.0, 0.9)])
def test_a_step_has_neighbours_of_all_rows(share, least):
    """Of a batch that comes again, four times with a quarter of it asked."""
    sampler = samplers.HashingForestSampler(
        4 * BATCH, 20, 20, query_share=share, seed=1
    )
    head = layers.SampledSoftmax(CLASSES, sampler=sampler)
    head.build((None, DIM))
    head.kernel.assign(clustered(CLASSES, DIM))
    rows = head.kernel.numpy()
    labels = np.arange(BATCH) * 7
    features = 3 * rows[labels]
    best = hard(rows, features, labels)
    shares = []
    for _ in range(4):
        sample = sampler.sample(
            tf.constant(features), int64(labels)[:, tf.newaxis], head.kernel
        )
        sampler.update(head.kernel, sample.ids)
        # Not those of the fill.
        found = sample.ids.numpy()[sample.log_expected_count.numpy() == 0]
        shares.append(np.isin(best, found).mean())
    assert shares[-1] >= least, shares
    # A quarter of the rows, and what they share with others.
    assert shares[0] >= least if share else shares[0] < 0.8, shares


def test_the_hardest_are_told_once_and_without_labels():
    rows, queries = clustered(40, DIM), clustered(3, DIM, seed=2)
    labels = int64([[3, -1], [5, 6], [-1, -1]])
    found = int64([9, 3, -1, 8, 9, 6, 7])
    arguments = tf.constant(queries), labels, found, tf.Variable(rows), False
    ids, scores = masses.hardest(*arguments, int64(9), 40)
    assert ids.numpy().tolist() == [9, 8, 7] and not scores.numpy().any()
    # As few places as there are, or as labels leave.
    for places, num_sampled in [(2, 40), (9, 5)]:
        ids, scores = masses.hardest(*arguments, int64(places), num_sampled)
        p = np.exp(queries @ rows.T)
        whole = p[:, [9, 8, 7]].sum(axis=1) + [p[0, 3], p[1, [5, 6]].sum(), 0]
        expected = (p[:2, [9, 8, 7]] / whole[:2, None]).sum(axis=0)
        np.testing.assert_allclose(scores, np.log(expected), rtol=1e-4)


def test_shards_and_the_papers_rule_ask_for_all_rows():
    sampler = samplers.HashingForestSampler(9)
    assert sampler.share_of_queries() == 0.25
    assert sampler.for_rows(0, 50, 9, seed=1).share_of_queries() == 1
    paper = samplers.HashingForestSampler(9, correct_fill=False)
    assert paper.share_of_queries() == 1
    again = samplers.HashingForestSampler(9, query_share=0.5).get_config()
    assert again["query_share"] == 0.5


def test_with_rows_on_servers_all_are_asked_for(monkeypatch):
    monkeypatch.setattr(hashing_forest, "_is_on_servers", lambda: True)
    sampler = samplers.HashingForestSampler(9, query_share=0.5)
    sampler.build((CLASSES, DIM))
    assert sampler.share_of_queries() == 1 and sampler.remembered is None


@pytest.mark.parametrize("share", [0, -0.5, 1.5])
def test_a_share_of_nothing_is_refused(share):
    with pytest.raises(ValueError, match=r"`query_share` must be in \(0, 1\]"):
        samplers.HashingForestSampler(9, query_share=share)
