"""What a tagger learns on held-out texts: passes, votes, thresholds."""

import types

import numpy as np
import pytest
import tensorflow as tf

from tests.test_tagger import TAGS
from tests.test_tagger import TEXTS
from tests.test_tagger import quiet
from tfxclass.text import Tagger
from tfxclass.text import choice
from tfxclass.text import near_texts
from tfxclass.text import neighbors
from tfxclass.text import trials
from tfxclass.text.beside import best_share
from tfxclass.text.sparse_rows import from_pairs

# Each text twice and more: enough to hold some out.
MANY, MANY_TAGS = TEXTS * 40, TAGS * 40


@pytest.fixture(scope="module")
def tagger():
    return quiet(neighbors=3).fit(MANY, MANY_TAGS)


def random_rows(size, width, seed):
    random = np.random.default_rng(seed)
    dense = random.random((size, width)) * (random.random((size, width)) < 0.4)
    rows, ids = np.nonzero(dense)
    return dense, from_pairs(size, rows, ids, dense[rows, ids])


def plain_votes(texts, labels, queries, count):
    unit = [x / max(np.linalg.norm(x), 1e-9) for x in texts]
    votes = np.zeros((len(queries), labels.shape[1]))
    for vote, query in zip(votes, queries):
        norm = np.linalg.norm(query)
        cosines = np.array([query @ x for x in unit]) / (norm or 1.0)
        best = np.argsort(-cosines, kind="stable")[:count]
        weights = cosines[best] ** 8
        if weights.sum():
            vote += weights / weights.sum() @ labels[best]
    return votes


def test_votes_equal_the_plain_way():
    texts, rows = random_rows(40, 15, 0)
    has = np.random.default_rng(1).random((40, 6)) < 0.3
    labels = from_pairs(40, *np.nonzero(has))
    layer = neighbors.make(rows, labels, 15, 6, num_neighbors=7)
    queries, given = random_rows(9, 15, 2)
    queries[4] = 0
    ids, values = given.padded()
    values[4] = 0
    expected = plain_votes(texts, has, queries, 7)
    np.testing.assert_allclose(
        layer.scores(ids, values), expected, rtol=1e-4, atol=1e-6
    )
    assert not expected[4].any() and expected.any(axis=1).sum() == 8
    some = near_texts.scores_of(layer, rows, np.array([4, 1]))
    each = layer.scores(*rows.padded()).numpy()
    np.testing.assert_allclose(some, each[:, [4, 1]], rtol=1e-5)
    p = np.random.default_rng(3).random((9, 6)).astype(np.float32)
    np.testing.assert_allclose(
        layer(ids, values, p), (p + 0.1 * expected) / 1.1, rtol=1e-4, atol=1e-6
    )


def test_texts_are_found_by_their_heaviest_terms():
    dense, rows = random_rows(12, 30, 5)
    kept = near_texts.unit_rows(rows, most=3)
    for i in range(12):
        own = slice(kept.splits[i], kept.splits[i + 1])
        best = set(np.argsort(-dense[i])[:3])
        assert set(kept.ids[own]) == best
        np.testing.assert_allclose(np.linalg.norm(kept.values[own]), 1, 1e-5)


def test_a_tagger_with_votes_is_a_plain_model(tagger, tmp_path):
    assert tagger.summary["neighbors"] == 3
    share = tagger.model.get_layer("neighbors").share
    assert tagger.summary["vote_share"] == round(share, 3)
    assert share in neighbors.SHARES
    tagger.save(tmp_path / "tagger")
    loaded = Tagger.load(tmp_path / "tagger")
    assert loaded.predict(TEXTS) == tagger.predict(TEXTS)
    np.testing.assert_array_equal(loaded.thresholds, tagger.thresholds)
    folder = tagger.export(tmp_path / "model", k=5, threshold="learned")
    served = tf.saved_model.load(folder).signatures["serving_default"]
    found = served(text=tf.constant(TEXTS))["labels"].numpy()
    expected = tagger.predict(TEXTS, threshold="learned")
    assert [[t.decode() for t in row if t] for row in found] == [
        [tag for tag, _ in answer] for answer in expected
    ]


@pytest.mark.parametrize("one", [True, False])
def test_the_share_of_votes_is_what_held_out_texts_are_best_with(one):
    random = np.random.default_rng(0)
    truth = np.eye(6, dtype=bool)[random.integers(6, size=300)]
    noise, right = random.random(truth.shape), truth + 0.0
    share, mixed = best_share(noise, right, truth, neighbors.SHARES, one)
    assert share == max(neighbors.SHARES)
    np.testing.assert_allclose(mixed, (1 - share) * noise + share * right)
    share, _ = best_share(
        0.4 * right + 0.3, noise, truth, neighbors.SHARES, one
    )
    assert share == min(neighbors.SHARES)


def test_learned_thresholds(tagger):
    least = dict(zip(tagger.tags, tagger.thresholds))
    every = tagger.predict(TEXTS, k=len(tagger.tags))
    learned = tagger.predict(TEXTS, threshold="learned")
    for answer, all_of in zip(learned, every):
        assert answer == [(tag, p) for tag, p in all_of if p >= least[tag]]
    # These texts were learned: the answers are their tags.
    for answer, tags in zip(learned, TAGS):
        assert {tag for tag, _ in answer} == set(tags)
    for threshold in ("best", 50, np.nan, [0.5, 0.5]):
        with pytest.raises(ValueError, match="`threshold` must be a number"):
            tagger.predict(TEXTS, threshold=threshold)


def test_thresholds_of_tags_that_were_not_tried():
    random = np.random.default_rng(0)
    truth = random.random((200, 3)) < 0.3
    p = np.clip(0.4 * truth + 0.6 * random.random(truth.shape), 0, 1)
    found = choice.tag_thresholds(p, truth, np.array([4, 0, 2]), 6, 0.77)
    np.testing.assert_allclose(found[[1, 3, 5]], 0.77)
    answers = p >= found[[4, 0, 2]]
    both = 2 * (answers & truth).sum() / (answers.sum() + truth.sum())
    one = p >= choice.best_threshold(p, truth)
    # Shrunk, so not the best of these rows themselves.
    assert both > 2 * (one & truth).sum() / (one.sum() + truth.sum()) - 0.01


@pytest.mark.parametrize(
    ("scores", "passes"),
    [
        ({4: 0.5, 8: 0.4, 2: 0.4}, 4),
        ({4: 0.5, 8: 0.6, 16: 0.7, 32: 0.6}, 16),
        ({4: 0.5, 8: 0.5, 2: 0.55}, 2),
        ({4: 0.5, 8: 0.6, 16: 0.7, 32: 0.8}, 32),
    ],
)
def test_passes_end_where_held_out_texts_lose(scores, passes):
    made = types.SimpleNamespace(
        tagger=types.SimpleNamespace(effort="best"), epochs=5
    )
    asked = []

    def attempt(*split, num_epochs):
        asked.append(num_epochs)
        return types.SimpleNamespace(score=scores[num_epochs])

    made._try = attempt
    first = types.SimpleNamespace(score=scores[4])
    trial = trials.Trials._stop_early(made, first)
    assert trial.score == max(scores.values())
    assert made.epochs == 5 * passes // 4
    assert sorted([4, *asked]) == sorted(scores)


@pytest.mark.parametrize(
    ("best_c", "asked"),
    [
        (0.5, []),
        (0.04, [0.04, 0.016]),
        (0.1, [0.04]),
        (4.0, [2.0, 4.0, 8.0]),
        (9.0, [2.0, 4.0, 8.0]),
    ],
)
def test_values_of_c_go_on_where_the_best_is_at_their_end(best_c, asked):
    made = types.SimpleNamespace(
        tagger=types.SimpleNamespace(effort="best", c=None),
        effort=trials.EFFORTS["best"],
    )
    found = []

    def attempt(featured, fields, c, *split):
        found.append(c)
        return types.SimpleNamespace(score=-abs(np.log(c / best_c)))

    made._try = attempt
    grid = trials.EFFORTS["best"].values_of_c
    first = max(
        ((attempt(None, "f", c), "f", c) for c in grid),
        key=lambda best: best[0].score,
    )
    found.clear()
    trial, fields, c = trials.Trials._go_on(made, first, None)
    np.testing.assert_allclose(found, asked)
    assert fields == "f" and c == pytest.approx(min(best_c, 8.0))
    made.tagger.c = first[2]
    found.clear()
    assert trials.Trials._go_on(made, first, None) == first and not found


def test_few_terms_where_there_is_no_time_for_all():
    def terms_a_text(seconds, effort="fast"):
        efforts = {
            "fast": trials.Effort(4, seconds, (0.5,), 2),
            "best": trials.Effort(5, 0.0, (0.5,)),
        }
        made = trials.Trials.__new__(trials.Trials)
        made.tagger = types.SimpleNamespace(tags=["a", "b"])
        made.effort = efforts[effort]
        made.epochs = 4
        _, rows = random_rows(20, 20, 0)
        return len(made._lighter(rows).ids) / len(rows)

    assert terms_a_text(1e9) > 3
    assert terms_a_text(0.0) <= 2
    assert terms_a_text(0.0, "best") > 3


def test_votes_are_left_out_where_they_do_not_help():
    tagger = quiet(effort="fast").fit(MANY, MANY_TAGS)
    assert tagger.summary["neighbors"] == 0
    assert tagger.summary["passes"] == 4
    assert len(tagger.model.layers) == 3
    with pytest.raises(ValueError, match="`neighbors` must be"):
        Tagger(neighbors=-1)
