"""Kernel ridge regression beside a tagger's linear scores."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.text.test_tagger_choices import random_rows
from tfxclass_text import Field
from tfxclass_text import KernelScores
from tfxclass_text import Tagger
from tfxclass_text import kernel_ridge
from tfxclass_text import near_texts
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import from_pairs

PENALTY = 0.3


@pytest.fixture(scope="module")
def data():
    """`(dense texts, has label, queries, arguments of make)`."""
    texts, rows = random_rows(40, 15, 0)
    has = np.random.default_rng(1).random((40, 6)) < 0.3
    labels = from_pairs(40, *np.nonzero(has))
    data = LabeledRows(rows, labels, 15, 6)
    return texts, has, random_rows(9, 15, 2), data


def unit(x):
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-9)


def kernel(x, y):
    return (np.exp(unit(x) @ unit(y).T) - 1) / (np.e - 1)


def plain_scores(texts, has, queries):
    means = has.mean(axis=0)
    # As much of the diagonal as the ridge.
    matrix = kernel(texts, texts) + (PENALTY + 1e-3) * np.eye(len(texts))
    weights = np.linalg.solve(matrix, has - means)
    return np.clip(kernel(queries, texts) @ weights + means, 0, 1)


def test_scores_equal_the_plain_way(data):
    texts, has, (queries, given), arguments = data
    layer = kernel_ridge.build_kernel_scores(arguments, 40, PENALTY, share=0.4)
    ids, values = given.padded()
    expected = plain_scores(texts, has, queries)
    # Solved in float32.
    np.testing.assert_allclose(
        layer.scores(ids, 7 * values), expected, atol=1e-4
    )
    some = near_texts.scores_of(layer, given, np.array([4, 1]))
    np.testing.assert_allclose(some, expected[:, [4, 1]], atol=1e-4)
    p = np.random.default_rng(3).random((9, 6)).astype(np.float32)
    found = layer(ids, values, p)
    np.testing.assert_allclose(found, 0.6 * p + 0.4 * expected, atol=1e-4)
    layer = kernel_ridge.build_kernel_scores(arguments, 40, 5.0)
    assert np.abs(layer.scores(ids, values) - expected).max() > 0.05


def test_some_texts_as_landmarks(data, monkeypatch):
    """Those with a text's own copies are the same functions."""
    texts, has, (queries, given), arguments = data
    twice = np.repeat(np.arange(40), 2)
    monkeypatch.setattr(
        np.random, "default_rng", lambda _: np.random.RandomState(0)
    )
    order = np.random.RandomState(0).permutation(80)[:40]
    layer = kernel_ridge.build_kernel_scores(arguments.take(twice), 40, PENALTY)
    assert layer.similarity.num_labels == 40
    kept = np.sort(order)
    both = kernel(texts[twice], texts[twice[kept]])
    own = kernel(texts[twice[kept]], texts[twice[kept]]) + 1e-3 * np.eye(40)
    means = has.mean(axis=0)
    weights = np.linalg.solve(
        both.T @ both + PENALTY * own, both.T @ (has[twice] - means)
    )
    expected = kernel(queries, texts[twice[kept]]) @ weights + means
    np.testing.assert_allclose(
        layer.scores(*given.padded()), np.clip(expected, 0, 1), atol=1e-3
    )


def test_weights_of_low_rank(data, monkeypatch):
    texts, has, (queries, given), (rows, labels, *sizes) = data
    # Labels 3 to 5 are copies of 0 to 2, so that there are three directions.
    has = has[:, [0, 1, 2, 0, 1, 2]]
    labels = from_pairs(40, *np.nonzero(has))
    monkeypatch.setattr(kernel_ridge, "_MAX_WEIGHTS", 3 * 46)
    layer, one = (
        kernel_ridge.build_kernel_scores(
            LabeledRows(rows, labels, *sizes), 40, PENALTY, single_label=one
        )
        for one in (False, True)
    )
    assert layer.rank == 3 and layer.kernel.shape == (40, 3)
    expected = plain_scores(texts, has, queries)
    np.testing.assert_allclose(
        layer.scores(*given.padded()), expected, atol=1e-4
    )
    again = KernelScores.from_config(one.get_config())
    again.set_weights(one.get_weights())
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        again.scores(*given.padded()), expected, atol=1e-4
    )


def test_how_many_landmarks():
    assert kernel_ridge.num_landmarks(4_880, 159) == 4_880
    assert kernel_ridge.num_landmarks(14_000, 983) == 14_000
    assert kernel_ridge.num_landmarks(20_000, 983) == 3_000
    assert kernel_ridge.num_landmarks(45_000, 983) == 0
    assert kernel_ridge.num_landmarks(14_000, 100_000) == 0


# One of two words, or both or neither: no plane parts "one" from "other".
TEXTS = [
    " ".join(w for w in words if w)
    for words in itertools.product(
        ("fox", "hare"), ("red", "grey"), ("big", "old", "wet")
    )
] * 20
TAGS = [
    ["one" if ("fox" in text) == ("red" in text) else "other", text[-3:]]
    for text in TEXTS
]


@pytest.fixture(scope="module")
def tagger():
    fields = [Field(["text"], max_share=1.0)]
    return Tagger(fields, verbose=0, neighbors=0).fit(TEXTS, TAGS)


def test_learns_what_words_alone_do_not_tell(tagger, tmp_path):
    assert tagger.summary["landmarks"] == len(TEXTS)
    assert tagger.summary["kernel_share"] in kernel_ridge.SHARES
    best = tagger.predict(TEXTS[:12], k=2)
    assert all({t for t, _ in x} == set(own) for x, own in zip(best, TAGS))
    tagger.save(tmp_path / "tagger")
    loaded = Tagger.load(tmp_path / "tagger")
    assert loaded.predict(TEXTS[:12]) == tagger.predict(TEXTS[:12])
    folder = tagger.export(tmp_path / "model", k=2, verify=False)
    served = tf.saved_model.load(folder).signatures["serving_default"]
    found = served(text=tf.constant(TEXTS[:12]))["labels"].numpy()
    assert [[t.decode() for t in row] for row in found] == [
        [tag for tag, _ in answer] for answer in best
    ]


def test_left_out_where_it_does_not_help(tmp_path):
    tags = [[text[-3:], text.split()[0]] for text in TEXTS]
    made = Tagger(verbose=0, neighbors=0).fit(TEXTS, tags)
    assert made.summary["landmarks"] == 0
    assert any(name == "kernel" for name, *_ in made.summary["tried"])
    made = Tagger(verbose=0, landmarks=0, effort="fast").fit(TEXTS, tags)
    assert not any(name == "kernel" for name, *_ in made.summary["tried"])
    made.save(tmp_path)
    assert Tagger.load(tmp_path).landmarks == 0
    with pytest.raises(ValueError, match="`landmarks` must be"):
        Tagger(landmarks=-1)
