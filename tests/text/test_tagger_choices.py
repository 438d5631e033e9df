"""What a tagger learns on held-out texts: passes, votes, thresholds."""

import re
import types

import numpy as np
import pytest
import tensorflow as tf

from tests.text.test_tagger import TAGS
from tests.text.test_tagger import TEXTS
from tests.text.test_tagger import quiet
from tfxclass_text import Field
from tfxclass_text import Tagger
from tfxclass_text import columns as columns_lib
from tfxclass_text import linear_tree
from tfxclass_text import near_texts
from tfxclass_text import neighbors
from tfxclass_text import sparse_linear
from tfxclass_text import training_cost
from tfxclass_text import trials
from tfxclass_text import tried_labels
from tfxclass_text.ensemble import Plan
from tfxclass_text.ensemble import best_share
from tfxclass_text.model_selection import PRESETS
from tfxclass_text.model_selection import ModelSelection
from tfxclass_text.model_selection import Preset
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import from_pairs

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
    layer = neighbors.build_neighbor_votes(
        LabeledRows(rows, labels, 15, 6), num_neighbors=7
    )
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
    folder = tagger.export(tmp_path / "model", k=5, threshold="calibrated")
    served = tf.saved_model.load(folder).signatures["serving_default"]
    found = served(text=tf.constant(TEXTS))["labels"].numpy()
    expected = tagger.predict(TEXTS, threshold="calibrated")
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
    learned = tagger.predict(TEXTS, threshold="calibrated")
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
    found = trials.tag_thresholds(p, truth, np.array([4, 0, 2]), 6, 0.77)
    np.testing.assert_allclose(found[[1, 3, 5]], 0.77)
    answers = p >= found[[4, 0, 2]]
    both = 2 * (answers & truth).sum() / (answers.sum() + truth.sum())
    one = p >= trials.best_threshold(p, truth)
    # Shrunk, so not the best of these rows themselves.
    assert both > 2 * (one & truth).sum() / (one.sum() + truth.sum()) - 0.01


def scored(score):
    """A trial whose score is beyond doubt."""
    made = types.SimpleNamespace(score=score)
    made.gain = lambda other: score - other.score
    return made


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
        return scored(scores[num_epochs])

    made._try = attempt
    made.is_tuned = True
    first = scored(scores[4])
    trial = ModelSelection._stop_early(made, first)
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
        effort=PRESETS["best"],
        is_tuned=True,
    )
    found = []

    def attempt(featured, fields, c, *split):
        found.append(c)
        return scored(-abs(np.log(c / best_c)))

    made._try = attempt
    grid = PRESETS["best"].values_of_c
    first = max(
        ((attempt(None, "f", c), "f", c) for c in grid),
        key=lambda best: best[0].score,
    )
    found.clear()
    trial, fields, c = ModelSelection._go_on(made, first, None)
    np.testing.assert_allclose(found, asked)
    assert fields == "f" and c == pytest.approx(min(best_c, 8.0))
    made.tagger.c = first[2]
    found.clear()
    assert ModelSelection._go_on(made, first, None) == first and not found


def test_few_terms_where_there_is_no_time_for_all():
    def terms_a_text(seconds, effort="fast"):
        efforts = {
            "fast": Preset(4, seconds, (0.5,), 2),
            "best": Preset(5, 0.0, (0.5,)),
        }
        made = ModelSelection.__new__(ModelSelection)
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


def stems(count, size, seed=0):
    """`(texts, tags)`: words that begin with their tag, and are all unlike."""
    random = np.random.default_rng(seed)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    begins = ["".join(random.choice(letters, 6)) for _ in range(count)]
    tags = [begins[i % count] for i in range(size)]
    return [t + "".join(random.choice(letters, 4)) for t in tags], tags


def test_candidates_are_tried_on_the_same_labels(monkeypatch):
    """Characters take longer, so they were tried on fewer labels and lost."""
    texts, tags = stems(60, 480)
    # Words take 2e-5 seconds, characters 6e-4.
    monkeypatch.setattr(tried_labels, "MAX_SECONDS", 1e-4)
    monkeypatch.setattr(tried_labels, "_SOME_LABELS", 12)
    tagger = quiet(effort="fast").fit(texts[:400], tags[:400])
    words, chars = tagger.summary["tried"]
    assert words[0] == "text:words" and words[3] < 0.5 < 0.9 < chars[3]
    assert tagger.evaluate(texts[400:], tags[400:])["precision_at_1"] > 0.9


@pytest.mark.parametrize("effort", ["fast", "best"])
def test_fields_are_not_chosen_among_some_of_the_labels(monkeypatch, effort):
    """Among some of the labels, choices gained what they lost among all."""
    texts, stem = stems(60, 480)
    tags = [[tag, "all"] for tag in stem]
    monkeypatch.setattr(tried_labels, "MAX_SECONDS", 1e-9)
    monkeypatch.setattr(tried_labels, "_SOME_LABELS", 12)
    preset = PRESETS[effort]._replace(seconds=1e-9)
    monkeypatch.setitem(PRESETS, effort, preset)
    tagger = quiet(neighbors=None, effort=effort).fit(texts, tags)
    names = [name for name, *_ in tagger.summary["tried"]]
    # What is mixed in is judged by all labels, with a label tree.
    added = [] if effort == "fast" else ["neighbors", "embeddings"]
    assert [x for x in names if x not in ("kernel", "perceptron")] == [
        "text:words", *added,
    ]  # fmt: skip
    assert tagger.summary["groups"] == 8


def test_a_tree_is_judged_as_it_answers():
    """Answers of a trial are those of the layer that is made of its weights."""
    _, rows = random_rows(300, 30, 0)
    random = np.random.default_rng(1)
    labels = from_pairs(300, np.arange(300), random.integers(40, size=300))
    data = LabeledRows(rows, labels, 30, 40)
    among, held = np.arange(250), np.arange(250, 300)
    for single in (True, False):
        trial = trials.run_trial(
            data, rows.take(held), labels.take(held), single, 0.5,
            among=among, num_groups=8,
        )  # fmt: skip
        weights, groups = linear_tree.train_linear(
            *data.take(among), 8, c=0.5, num_epochs=4, threshold=0.02
        )
        layer = sparse_linear.from_weights(
            weights, 40, "softmax" if single else "sigmoid", groups,
            group_slope=trials.GROUP_SHARE * 2.0,
        )  # fmt: skip
        layer.slope.assign(2.0)
        layer.intercept.assign(-0.5)
        expected = layer(*rows.take(held).padded())
        found = trial.probabilities(2.0, -0.5, single)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        assert trial.truth.sum() == 50 and len(trial.labels) == 40


@pytest.mark.parametrize("one", [True, False])
def test_labels_to_try(one):
    random = np.random.default_rng(0)
    counts = random.integers(5, size=2000)
    ids = np.repeat(np.arange(2000), counts)
    labels = from_pairs(len(ids), np.arange(len(ids)), ids)
    held = from_pairs(30, np.arange(30), random.integers(2000, size=30))
    every = tried_labels.labels_to_try(labels, held, 2000, one, 5.9)
    np.testing.assert_array_equal(every, np.arange(2000))
    some = tried_labels.labels_to_try(labels, held, 2000, one, 24.0)
    assert len(some) == len(set(some)) == (1000 if one else 256)
    assert counts[some].min() == 1 and counts[some].max() == 4
    if one:
        # Rows of other labels are left out.
        assert set(held.ids[counts[held.ids] > 0]) <= set(some)
    rows = tried_labels.rows_of(labels, some)
    np.testing.assert_array_equal(rows, np.flatnonzero(np.isin(ids, some)))
    assert len(tried_labels.labels_to_try(labels, held, 2000, one, 1e9)) == 256


def test_equal_margins_are_no_hit():
    truth = np.eye(5, dtype=bool)
    np.testing.assert_allclose(
        trials.reciprocal_ranks(np.zeros((5, 5)), truth), 1 / 3
    )
    assert (trials.reciprocal_ranks(truth + 0.0, truth) == 1).all()
    both = np.array([[True, True, False]])
    assert trials.reciprocal_ranks(np.zeros((1, 3)), both) == 1 / 1.5
    ordered = np.array([[0.9, 0.5, 0.7], [0.0, 0.0, 0.0]])
    truth = np.array([[True, True, False], [False, False, False]])
    found = trials.row_precisions(ordered, truth)
    np.testing.assert_allclose(found, [(1 + 2 / 3) / 2])


def test_noise_is_no_gain():
    random = np.random.default_rng(0)
    before = random.random(400)
    noise = 0.3 * random.standard_normal(400)
    noise += 0.01 - noise.mean()
    assert trials.clear_gain(before + noise, before) < 0
    assert trials.clear_gain(before + noise + 0.05, before) > 0.03
    assert trials.clear_gain(before[:1] + 1, before[:1]) == 0


HAN = "\u6771\u4eac\u90fd\u5e02\u7acb\u56f3\u66f8\u9928"
THAI = "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e04\u0e23\u0e31\u0e1a"
LONG = "a plain english text of many words " * 10


@pytest.mark.parametrize(
    "columns, read, first",
    [
        ({"text": "red fox"}, ["text"], False),
        ({"text": LONG}, [], False),
        ({"title": "a short title of words", "text": LONG}, [], False),
        ({"title": "fox", "text": LONG}, ["title"], False),
        ({"a": "a short title of words", "b": "red fox"}, ["a", "b"], False),
        ({"text": HAN * 60}, ["text"], True),
        ({"title": HAN, "text": HAN * 60}, ["title", "text"], True),
        ({"title": HAN, "text": LONG}, ["title"], True),
        ({"text": f"iPhone 15 Pro {HAN} red"}, ["text"], True),
        ({"title": "\uff8c\uff9f\uff9b", "text": THAI * 9}, None, True),
        ({"text": "ACGTACGTTGCATGCA " * 50}, ["text"], True),
        ({"text": "!!!"}, ["text"], False),
    ],
)
def test_where_characters_are_read(columns, read, first):
    texts = columns_lib.read({k: [x] * 30 for k, x in columns.items()})
    found = columns_lib.candidates(texts, num_texts=1000)
    chars = [[f for f in fields if f.kind == "chars"] for fields in found]
    if read == []:
        assert chars == [[]]
        return
    # Several columns have their own terms, too, in one more candidate.
    count = len(columns if read is None else read)
    assert len(found) == (2 if count == 1 else 3)
    if count > 1:
        own = chars[1 if first else 2][1:]
        assert [f.columns for f in own] == [(name,) for name in columns]
    (field,) = chars[0 if first else 1]
    assert field.columns == tuple(columns if read is None else read)
    if not first:
        assert chars[0] == []
        return
    assert (field.shortest, field.longest) == (1, 3)
    # A term of one text tells nothing of others.
    assert all(field.min_count > 1 for part in found for field in part)
    assert len(found[0]) == (1 if len(field.columns) == len(columns) else 2)


def unspaced(size, keys, length, seed):
    """`(texts, tags)`: a tag somewhere among random characters."""
    random = np.random.default_rng(seed)
    texts, tags = [], []
    for i in range(size):
        rest = "".join(chr(x) for x in random.integers(0x4E00, 0x4F00, length))
        at = random.integers(length)
        texts.append(rest[:at] + keys[i % len(keys)] + rest[at:])
        tags.append(keys[i % len(keys)])
    return texts, tags


@pytest.mark.parametrize("size", [60, 400])
@pytest.mark.parametrize("second", ["title", "english"])
def test_columns_without_spaces(size, second):
    """Characters were never read where there are several columns."""
    keys = ["\u5317\u4eac", "\u4e0a\u6d77", "\u5e7f\u5dde", "\u6df1\u5733"]
    texts, tags = unspaced(size + 40, keys, 20, 0)
    other = {"title": lambda t: t[:8], "english": lambda t: "an english text"}
    columns = {"text": texts, second: [other[second](t) for t in texts]}
    train = {name: x[:size] for name, x in columns.items()}
    test = {name: x[size:] for name, x in columns.items()}
    tagger = quiet(effort="fast").fit(train, tags[:size])
    assert tagger.evaluate(test, tags[size:])["precision_at_1"] > 0.9


@pytest.mark.parametrize("size", [60, 400])
@pytest.mark.parametrize("effort", ["fast", "best"])
def test_a_column_that_misleads(size, effort):
    """The title says the tag, and the text has the name of another one.

    Columns without spaces were read as one: half of the answers were right.
    """
    keys = ["\u5317\u4eac", "\u4e0a\u6d77", "\u5e7f\u5dde", "\u6df1\u5733"]
    titles, tags = unspaced(size + 40, keys, 6, 0)
    order = np.random.default_rng(2).permutation(size + 40)
    texts, _ = unspaced(size + 40, keys, 20, 1)
    columns = {"title": titles, "text": [texts[i] for i in order]}
    train = {name: x[:size] for name, x in columns.items()}
    test = {name: x[size:] for name, x in columns.items()}
    light = {"neighbors": 0, "landmarks": 0, "hidden_units": 0}
    tagger = quiet(effort=effort, embedding_dim=0, **light)
    tagger.fit(train, tags[:size])
    assert tagger.score(test, tags[size:]) > 0.9


def test_long_columns_have_their_own_words():
    """If held-out texts gain by them; short ones always have them."""
    texts = columns_lib.read({"a": [LONG] * 30, "b": [LONG] * 30})
    pooled, own = columns_lib.candidates(texts, quick=True)
    assert [field.columns for field in pooled] == [("a", "b")]
    assert [field.columns for field in own] == [("a", "b"), ("a",), ("b",)]


def test_names_of_kanji_and_kana():
    """Short names, many tags, few rows a tag: words find 0.05."""
    random = np.random.default_rng(0)
    ranges = ((0x4E00, 0x4F00, 3), (0x3042, 0x3090, 5), (0x30A2, 0x30F0, 5))
    parts = [
        "".join(chr(x) for x in random.integers(low, high, most - 1))
        for low, high, most in (ranges[i % 3] for i in range(200))
    ]
    texts, tags = [], []
    for number in range(250):
        own = list(random.choice(parts, 3, replace=False))
        for _ in range(4):
            added = [*own, parts[random.integers(len(parts))]]
            texts.append("".join(random.permutation(added)))
            tags.append(f"n{number}")
    order = random.permutation(len(texts))
    texts, tags = ([x[i] for i in order] for x in (texts, tags))
    tagger = quiet(effort="fast").fit(texts[:900], tags[:900])
    # Recorded 0.97.
    found = tagger.evaluate(texts[900:], tags[900:])["precision_at_1"]
    assert found > 0.85, found


def test_texts_without_known_terms_are_told():
    random = np.random.default_rng(0)
    texts = ["".join(random.choice(list("abcdef"), 9)) for _ in range(300)]
    tagger = quiet(effort="fast", fields=[Field("text")])
    with pytest.warns(UserWarning, match="Only .* of 30 held-out texts have"):
        tagger.fit(texts, ["a", "b", "c"] * 100)


def test_one_estimate_of_all_phases_comes_first(capsys):
    Tagger(neighbors=0, verbose=2).fit(MANY, MANY_TAGS)
    lines = capsys.readouterr().out.splitlines()
    costs = [x for x in lines if "CPU seconds" in x]
    assert costs == [lines[1]] and lines[2].startswith("tagger: tried")
    assert re.search(r"takes about \d+ CPU seconds and \d\.\d GB$", lines[1])
    # Of few texts, without trials.
    Tagger(effort="fast").fit(TEXTS, TAGS)
    assert capsys.readouterr().out.count("CPU seconds") == 1


def test_the_estimate_grows_with_what_is_trained():
    _, rows = random_rows(400, 15, 0)
    has = np.random.default_rng(1).random((400, 90)) < 0.1
    labels = from_pairs(400, *np.nonzero(has))
    data = LabeledRows(rows, labels, 15, 90)
    tried = training_cost.Trials(1, 1, False, 400, 90, 40, 1)
    plain = training_cost.of_trials(data, tried, "squared_hinge")
    tuned = tried._replace(num_c=3, is_tuned=True)
    both = training_cost.of_trials(data, tuned, "squared_hinge")
    assert both.seconds > 3 * plain.seconds
    nothing = Plan(0, 0, (0, 0), (0, 0))
    costs = [
        training_cost.mixed_in(data, data, plan, 40).seconds
        for plan in (
            nothing,
            nothing._replace(landmarks=400),
            nothing._replace(hidden=(512, 8)),
            nothing._replace(embedding=(256, 6)),
        )
    ]
    assert min(costs[1:]) > 2 * costs[0]
    cost = training_cost.Cost(1.0, 0.5).then(training_cost.Cost(2.4, 0.7))
    assert str(cost) == "about 3 CPU seconds and 0.7 GB"
