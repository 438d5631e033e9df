"""What a tagger learns on held-out texts: fields, C, thresholds."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tests.text.test_tagger import TAGS
from tests.text.test_tagger import TEXTS
from tests.text.test_tagger import quiet
from tfxclass_text import Field
from tfxclass_text import Tagger
from tfxclass_text import columns as columns_lib
from tfxclass_text import fields as fields_lib
from tfxclass_text import linear_tree
from tfxclass_text import neighbors
from tfxclass_text import recipes
from tfxclass_text import scoring
from tfxclass_text import selection
from tfxclass_text import term_table
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import from_pairs

# Each text twice and more: enough to hold some out.
MANY, MANY_TAGS = TEXTS * 40, TAGS * 40


def columns_of(texts):
    return {"title": [text.split()[1] for text in texts], "text": texts}


COLUMNS = columns_of(TEXTS)


@pytest.fixture(scope="module")
def tagger():
    """Votes and embeddings are mixed into the scores of two columns."""
    fields = [Field(["title", "text"], min_count=1)]
    tagger = quiet(fields=fields, neighbors=3, embedding_dim=8)
    return tagger.fit(columns_of(MANY), MANY_TAGS)


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
        layer.votes(ids, values), expected, rtol=1e-4, atol=1e-6
    )
    assert not expected[4].any() and expected.any(axis=1).sum() == 8
    p = np.random.default_rng(3).random((9, 6)).astype(np.float32)
    np.testing.assert_allclose(
        layer(ids, values, p), (p + 0.1 * expected) / 1.1, rtol=1e-4, atol=1e-6
    )


def test_a_tagger_with_votes_is_a_plain_model(tagger, tmp_path):
    assert tagger.summary["neighbors"] == 3
    assert tagger.summary["embedding_dim"] == 8
    share = tagger.model.get_layer("nearest-texts").share
    assert tagger.summary["vote_share"] == round(share, 3)
    assert share in neighbors.SHARES
    tagger.save(tmp_path / "tagger")
    loaded = Tagger.load(tmp_path / "tagger")
    assert loaded.predict(COLUMNS) == tagger.predict(COLUMNS)
    np.testing.assert_array_equal(loaded.thresholds, tagger.thresholds)
    folder = tagger.export(
        tmp_path / "model", k=5, threshold="calibrated", verify=False
    )
    served = tf.saved_model.load(folder).signatures["serving_default"]
    given = {name: tf.constant(texts) for name, texts in COLUMNS.items()}
    answers = served(**given)
    for names, scores, expected in zip(
        answers["labels"].numpy(),
        answers["scores"].numpy(),
        tagger.predict(COLUMNS, threshold="calibrated"),
    ):
        assert [x.decode() for x in names if x] == [t for t, _ in expected]
        np.testing.assert_allclose(
            scores[: len(expected)], [p for _, p in expected], 1e-4
        )


def test_learned_thresholds(tagger):
    least = dict(zip(tagger.tags, tagger.thresholds))
    every = tagger.predict(COLUMNS, k=len(tagger.tags))
    learned = tagger.predict(COLUMNS, threshold="calibrated")
    for answer, all_of in zip(learned, every):
        assert answer == [(tag, p) for tag, p in all_of if p >= least[tag]]
    # These texts were learned: the answers are their tags.
    for answer, tags in zip(learned, TAGS):
        assert {tag for tag, _ in answer} == set(tags)
    for threshold in ("best", 50, np.nan, [0.5, 0.5]):
        with pytest.raises(ValueError, match="`threshold` must be a number"):
            tagger.predict(COLUMNS, threshold=threshold)


def stems(count, size, seed=0):
    """`(texts, tags)`: words that begin with their tag, and are all unlike."""
    random = np.random.default_rng(seed)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    begins = ["".join(random.choice(letters, 6)) for _ in range(count)]
    tags = [begins[i % count] for i in range(size)]
    return [t + "".join(random.choice(letters, 4)) for t in tags], tags


def test_equal_margins_are_no_hit():
    truth = np.eye(5, dtype=bool)
    np.testing.assert_allclose(
        scoring.reciprocal_ranks(np.zeros((5, 5)), truth), 1 / 3
    )
    assert (scoring.reciprocal_ranks(truth + 0.0, truth) == 1).all()
    both = np.array([[True, True, False]])
    assert scoring.reciprocal_ranks(np.zeros((1, 3)), both) == 1 / 1.5
    ordered = np.array([[0.9, 0.5, 0.7], [0.0, 0.0, 0.0]])
    truth = np.array([[True, True, False], [False, False, False]])
    found = scoring.row_precisions(ordered, truth)
    np.testing.assert_allclose(found, [(1 + 2 / 3) / 2])


def test_noise_is_no_gain():
    random = np.random.default_rng(0)
    before = random.random(400)
    noise = 0.3 * random.standard_normal(400)
    noise += 0.01 - noise.mean()
    assert scoring.clear_gain(before + noise, before) < 0
    assert scoring.clear_gain(before + noise + 0.05, before) > 0.03
    assert scoring.clear_gain(before[:1] + 1, before[:1]) == 0


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
    found = recipes.candidates(texts, 1000)
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


# Of 60 texts none is held out to choose on.
@pytest.mark.parametrize(
    "size, second",
    [
        (60, "title"),
        (400, "english"),
        pytest.param(60, "english", marks=pytest.mark.slow),
        pytest.param(400, "title", marks=pytest.mark.slow),
    ],
)
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


@pytest.mark.parametrize(
    "size, effort",
    [
        (60, "fast"),
        (400, "fast"),
        (400, "best"),
        pytest.param(60, "best", marks=pytest.mark.slow),
    ],
)
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
    tagger = quiet(effort=effort, embedding_dim=0)
    tagger.fit(train, tags[:size])
    assert tagger.score(test, tags[size:]) > 0.9


def test_long_columns_have_their_own_words():
    """If held-out texts gain by them; short ones always have them."""
    texts = columns_lib.read({"a": [LONG] * 30, "b": [LONG] * 30})
    pooled, own = recipes.candidates(texts, 30, quick=True)
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
    Tagger(verbose=2).fit(MANY, MANY_TAGS)
    lines = capsys.readouterr().out.splitlines()
    costs = [x for x in lines if "CPU seconds" in x]
    assert costs == [lines[1]] and lines[2].startswith("tagger: tried")
    assert re.search(r"takes about \d+ CPU seconds and \d\.\d GB$", lines[1])
    # Of few texts, without scoring.
    Tagger(effort="fast").fit(TEXTS, TAGS)
    assert capsys.readouterr().out.count("CPU seconds") == 1


def test_the_best_recipe_so_far_is_changed(monkeypatch):
    """Each change is tried in the best recipe, and stays if it gains."""
    gains = {0.5: 0.0, 0.1: 0.1, 1.0: -0.1}
    real, tried = selection._try, []

    def attempt(task, recipe):
        tried.append((recipe.c, [field.kind for field in recipe.fields]))
        trial = real(task, recipe)
        return trial._replace(scores=0 * trial.scores + gains[recipe.c])

    monkeypatch.setattr(selection, "_try", attempt)
    tagger = quiet(neighbors=0, embedding_dim=0).fit(MANY, MANY_TAGS)
    words, both = ["words"], ["words", "chars"]
    assert tried == [(0.5, words), (0.1, words), (1.0, words), (0.1, both)]
    assert tagger.summary["c"] == 0.1
    assert len(tagger.summary["fields"]) == 1
    tried.clear()
    # Where a trial takes long, nothing is chosen.
    monkeypatch.setattr(selection, "_MAX_SECONDS", 0.0)
    quiet(neighbors=0, embedding_dim=0).fit(MANY, MANY_TAGS)
    assert tried == [(0.5, words)]


def test_few_terms_where_there_is_no_time_for_all(monkeypatch):
    texts = [f"a{i} b{i % 7} c{i % 5} d{i % 3}" for i in range(400)]
    tags = [[f"{i % 7}"] for i in range(400)]
    for effort, seconds, most in (
        ("fast", 1e9, 9), ("fast", 0.0, 2), ("best", 0.0, 9)
    ):  # fmt: skip
        preset = recipes.PRESETS[effort]
        terms = None if effort == "best" else 2
        preset = preset._replace(seconds=seconds, terms=terms)
        monkeypatch.setitem(recipes.PRESETS, effort, preset)
        tagger = quiet(effort=effort, embedding_dim=0).fit(texts, tags)
        assert (tagger.summary["terms_a_text"] <= 2) == (most == 2)
        passes = tagger.summary["passes"]
        assert passes == (3 if most == 2 else preset.passes)


def test_a_tree_is_judged_as_it_answers(monkeypatch):
    """What held-out texts were told is what the model tells."""
    texts, stem = stems(60, 480)
    preset = recipes.PRESETS["fast"]._replace(seconds=1e-9)
    monkeypatch.setitem(recipes.PRESETS, "fast", preset)
    held = texts[400:], [[tag, "all"] for tag in stem[400:]]
    found = []
    real = selection._learned
    monkeypatch.setattr(
        selection, "_learned", lambda *x: found.append(x) or real(*x)
    )
    fields = [Field("text", "chars", 2, 5)]
    tagger = quiet(effort="fast", fields=fields, embedding_dim=0)
    tagger.fit(texts[:400], [[tag, "all"] for tag in stem[:400]], held)
    assert tagger.summary["groups"] == 8
    answers = found[0][3]
    np.testing.assert_allclose(
        tagger.predict_proba(held[0]), answers, rtol=1e-3, atol=1e-6
    )
    # All texts were learned from, so the classifiers that were judged stay.
    assert tagger.model.get_layer("tag-scores") is found[0][2]


def test_fitted_to_rows_that_have_a_label(monkeypatch):
    truth = np.zeros((9, 4), bool)
    truth[[1, 3, 8], 2] = True
    assert scoring.labeled_rows(truth).tolist() == [1, 3, 8]
    monkeypatch.setattr(scoring, "_MAX_FITTED", 4)
    monkeypatch.setattr(scoring, "_MIN_ROWS", 1)
    assert scoring.labeled_rows(truth).tolist() == [1]


@pytest.mark.parametrize("is_slow", [False, True])
def test_fields_that_no_trial_has_time_for_are_not_read(is_slow, monkeypatch):
    """They took most of the memory, and half of the time, of many titles."""
    texts = [f"word{i % 5} other{i % 7} third{i % 11}" for i in range(240)]
    tags = [[f"tag{i % 5}"] for i in range(240)]
    read = []

    def rows_of(batches, fields, *vocabularies):
        read.append({field.kind for field in fields})
        return original(batches, fields, *vocabularies)

    original = term_table.rows_of
    monkeypatch.setattr(term_table, "rows_of", rows_of)
    if is_slow:
        monkeypatch.setattr(selection, "_PASS", 0.0)
    Tagger(effort="fast", verbose=0).fit(texts, tags)
    assert read[0] == ({"words"} if is_slow else {"words", "chars"})


def test_seconds_of_a_pass_are_of_all_terms():
    fields = [Field("text", "words"), Field("text", "chars", 3, 3)]
    columns = {"text": [b"one two two"] * 5000}
    found = recipes.pass_seconds(fields, columns, 100_000, 40)
    # One, two; and runs of three characters within words.
    terms = len(fields_lib.read_terms({"text": [b"one two two"]}, fields)[1][1])
    assert found == linear_tree.seconds(100_000 * (2 + terms), 40, 1)


def test_lengths_of_a_field_are_ints():
    field = Field("text", "chars", 2.0, 3.0, min_count=1.0)
    assert repr((field.shortest, field.longest, field.min_count)) == "(2, 3, 1)"
