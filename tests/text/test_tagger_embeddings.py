"""Embeddings of terms and tags, mixed with a tagger's linear scores."""

import itertools

import keras
import numpy as np
import pytest

from tests.support.cases import quick
from tests.text.test_tagger_choices import random_rows
from tfxclass_text import Field
from tfxclass_text import Tagger
from tfxclass_text import embeddings
from tfxclass_text import growth
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import from_pairs
from tfxclass_text.tagger_model import layers_of

# Tags are pairs of a trade and a thing, and words are written in two ways that
# share characters: "baking" and "bakings".
TRADES = ["baking", "selling", "mending", "driving", "drawing"]
THINGS = ["bread", "wagon", "cloth", "paper", "metal", "glass"]


def pairs(size, seed):
    random = np.random.default_rng(seed)
    trades, things = random.choice(TRADES, size), random.choice(THINGS, size)
    texts = [
        f"{trade}{'s' * random.integers(2)} {thing}{'s' * random.integers(2)}"
        for trade, thing in zip(trades, things)
    ]
    return texts, [f"{x} {y}" for x, y in zip(trades, things)]


@pytest.fixture(scope="module")
def tagger():
    return Tagger(embedding_dim=16, verbose=0).fit(*pairs(600, 0))


def test_reads_words_and_characters_of_their_own(tagger):
    assert tagger.summary["embedding_dim"] == 16
    fields = tagger.model.get_layer("text-features").fields
    kinds = [(field.kind, field.longest) for field in fields]
    assert kinds == [("words", 2), ("words", 1), ("chars", 5)]
    (linear,) = growth.linear_fields(layers_of(tagger.model))
    assert linear.longest == 2
    texts, tags = pairs(100, 1)
    assert tagger.evaluate(texts, tags, ks=[1])["precision_at_1"] > 0.95


def test_saved(tagger, tmp_path):
    """Exports are tested in test_tagger_choices.py and test_class_names.py."""
    texts, _ = pairs(20, 2)
    expected = tagger.predict(texts)
    tagger.save(tmp_path)
    assert Tagger.load(tmp_path).predict(texts) == expected


def test_onnx_gives_the_same(tagger, tmp_path):
    pytest.importorskip("onnxruntime")
    # Verified by ONNX Runtime.
    tagger.export_onnx(tmp_path / "onnx", k=3)


def test_partial_fit_leaves_them_out(tmp_path):
    tagger = Tagger(embedding_dim=8, verbose=0)
    tagger.fit(*pairs(300, 0))
    with pytest.warns(UserWarning, match="leaves out .*embedding_dim"):
        tagger.partial_fit(["flying kites"], ["flying kites"])
    assert tagger.summary["embedding_dim"] == 0
    assert len(tagger.summary["fields"]) == 3  # of the first fit
    assert len(tagger.model.get_layer("text-features").fields) == 1
    assert tagger.predict(["flying kites"], k=1)[0][0][0] == "flying kites"


def test_a_policy_of_bfloat16_changes_nothing():
    """Scores that are mixed in were rounded to bfloat16, which failed."""
    found = []
    try:
        for policy in ("float32", "mixed_bfloat16"):
            keras.config.set_dtype_policy(policy)
            tagger = Tagger(neighbors=3, embedding_dim=8, verbose=0)
            tagger.fit(*pairs(300, 0))
            found.append(tagger.predict(pairs(9, 1)[0]))
    finally:
        keras.config.set_dtype_policy("float32")
    assert found[0] == found[1]


def test_given_fields_are_read_by_both():
    field = Field("text", "chars", 2, 4)
    tagger = Tagger([field], embedding_dim=8, verbose=0)
    tagger.fit(*pairs(300, 0))
    assert tagger.model.get_layer("text-features").fields == [field]
    assert tagger.summary["embedding_dim"] == 8


def test_fast_tries_none():
    tagger = Tagger(effort="fast", verbose=0).fit(*pairs(300, 0))
    assert all(row[0] != "embeddings" for row in tagger.summary["tried"])


def test_a_column_may_have_the_name_of_the_layer():
    texts, tags = pairs(300, 0)
    tagger = Tagger(effort="fast", verbose=0)
    tagger.fit({"embeddings": texts}, tags)
    same = Tagger(effort="fast", verbose=0).fit(texts, tags)
    found = tagger.predict({"embeddings": texts[:9]})
    assert found == same.predict(texts[:9])


MANY = ["".join(x) for x in itertools.product("bdfgkl", "ao", "mnprst", "aeu")]


def many_pairs(size, seed, words=MANY[:144]):
    """Texts with one of `words`, written in two ways, and some noise."""
    random = np.random.default_rng(seed)
    tags = random.choice(words, size)
    noise = random.choice(["red", "old", "new", "small"], size)
    ends = random.choice(["", "s"], size)
    texts = [f"{x} {tag}{end}" for x, tag, end in zip(noise, tags, ends)]
    return texts, tags.tolist()


@pytest.fixture(scope="module", params=quick(["fast", "best"], ["fast"]))
def alone(request):
    """A tagger of one of many tags."""
    return Tagger(effort=request.param, verbose=0).fit(*many_pairs(1500, 0))


def share(tagger, texts, tags):
    return tagger.evaluate(texts, tags, ks=[1])["precision_at_1"]


def test_one_of_many_tags_is_told_by_embeddings_alone(alone, tmp_path):
    is_fast = alone.effort == "fast"
    assert alone.summary["embedding_dim"] == (128 if is_fast else 256)
    assert alone.summary["weights"] == 0
    texts, tags = many_pairs(200, 1)
    assert share(alone, texts, tags) > 0.95
    why = alone.explain(texts[0], tags[0])
    parts = sum(term.contribution for term in why.terms)
    assert why.bias + parts == pytest.approx(why.logit, abs=1e-5)
    alone.save(tmp_path)
    assert Tagger.load(tmp_path).predict(texts) == alone.predict(texts)


def test_onnx_of_embeddings_alone(alone, tmp_path):
    pytest.importorskip("onnxruntime")
    alone.export_onnx(tmp_path / "onnx", k=3)


def test_embeddings_alone_grow(recwarn):
    tagger = Tagger(effort="fast", verbose=0).fit(*many_pairs(1500, 0))
    new = MANY[144:160]
    for seed in range(2):
        tagger.partial_fit(*many_pairs(300, seed + 1, new))
    assert not recwarn.list
    assert set(new) <= set(tagger.tags) and len(tagger.tags) == 160
    # New tags are known, and old ones are not forgotten.
    assert share(tagger, *many_pairs(200, 5, new)) > 0.9
    assert share(tagger, *many_pairs(200, 6)) > 0.9
    assert tagger.summary["texts"] == 2100


def test_embeddings_alone_are_ranked_by_whatever_is_held_out():
    """Held-out texts of unknown tags left nothing but equal probabilities."""
    texts, tags = many_pairs(1500, 0)
    held = ["nothing known"] * 30, ["unknown"] * 30
    tagger = Tagger(effort="fast", verbose=0)
    with pytest.warns(UserWarning):
        tagger.fit(texts, tags, validation_data=held)
    assert share(tagger, texts[:200], tags[:200]) > 0.95


def test_labels_without_sense_leave_an_order():
    texts, tags = many_pairs(1500, 0)
    mixed = np.random.default_rng(1).permutation(tags).tolist()
    tagger = Tagger(effort="fast", verbose=0).fit(texts, mixed)
    found = tagger.predict_proba(texts[:20])
    assert np.all(found.max(axis=1) > found.min(axis=1))


def test_texts_without_terms():
    tags = [str(i % 150) for i in range(300)]
    with pytest.warns(UserWarning, match="held-out texts have a term"):
        tagger = Tagger(effort="fast", verbose=0).fit(["?"] * 300, tags)
    assert tagger.predict(["a"], k=1)[0][0][0] in tags


def test_several_tags_later_keep_the_scale():
    tagger = Tagger(effort="fast", verbose=0).fit(*many_pairs(1500, 0))
    before = np.linalg.norm(layers_of(tagger.model).embedding.tags, axis=1)
    texts, tags = many_pairs(300, 5)
    tagger.partial_fit(texts, [[tag, MANY[0]] for tag in tags])
    after = np.linalg.norm(layers_of(tagger.model).embedding.tags, axis=1)
    np.testing.assert_allclose(after, before, rtol=1e-5)
    assert share(tagger, *many_pairs(200, 6)) > 0.95


@pytest.mark.parametrize("options", [{"c": 1.0}, {"embedding_dim": 0}])
def test_linear_classifiers_if_wanted(options):
    tagger = Tagger(effort="fast", verbose=0, **options)
    tagger.fit(*many_pairs(600, 0))
    assert tagger.summary["weights"] > 0
    assert tagger.summary["embedding_dim"] == 0


@pytest.fixture(scope="module")
def data():
    """`LabeledRows`."""
    rows = random_rows(50, 15, 0)[1]
    has = np.random.default_rng(1).random((50, 6)) < 0.3
    has[:, 0] |= ~has.any(axis=1)
    return LabeledRows(rows, from_pairs(50, *np.nonzero(has)), 15, 6)


def test_scores_equal_the_plain_way(data):
    found = embeddings.train(data, 8, 2)
    texts, given = random_rows(9, 15, 2)
    sums = texts @ np.asarray(found.terms)
    sums /= np.linalg.norm(sums, axis=1, keepdims=True)
    logits = sums @ np.asarray(found.tags).T
    # Class vectors have the norm of the scale.
    np.testing.assert_allclose(
        np.linalg.norm(found.tags, axis=1), 8.0, rtol=1e-5
    )
    logits -= logits.max(axis=1, keepdims=True)
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    scores = found(*given.padded())
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    # Ids below the first are terms that the classifiers alone read.
    ids, values = given.padded()
    moved = embeddings.train(data, 8, 2, first=4)
    np.testing.assert_allclose(moved(ids + 4, values), expected, atol=1e-4)
    np.testing.assert_allclose(
        moved(ids % 4, values), moved(ids, 0 * values), atol=1e-6
    )


def test_the_same_seed_gives_the_same_embeddings(data):
    first, again, other = (
        np.asarray(embeddings.train(data, 8, 2, seed).terms)
        for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.001


def test_says_how_far_it_is(data):
    said = []
    embeddings.train(data, 8, 3, say=said.append)
    assert [line.split()[-1] for line in said] == ["1", "2", "3"]


def test_as_many_passes_as_there_is_time_for(data):
    def plan(units=None, passes=6, is_needed=False, **changes):
        given = data._replace(**changes)
        return embeddings.plan(given, 256, passes, units, is_needed)[:2]

    # Of few texts there are more passes.
    assert plan() == (256, 20)
    many = data.take(np.resize(np.arange(50), 10_000))
    assert plan(rows=many.rows, labels=many.labels) == (256, 6)
    assert plan(num_features=500_000)[0] == 100
    assert plan(num_features=10_000_000)[0] == 0
    assert plan(num_features=10_000_000, is_needed=True)[0] == 64
    entries = len(data.rows.ids)
    # Three passes and a half over so many numbers take two minutes.
    units = int(120 / (3.5 * (1.3e-9 * entries + 1.5e-10 * 50 * 6)))
    # What is wanted is learned anyway.
    assert plan(units) == (units, 3)
    assert plan(2 * units) == (2 * units, 2)
    found = embeddings.plan(data, 256, 6, units)
    assert found.seconds == pytest.approx(120 * 3 / 3.5, 0.01)
    # Vectors of 15 terms with what updates them, and the texts.
    state = 8 * 15 * units
    assert found.gigabytes * 1e9 == pytest.approx(state + 40 * entries)


@pytest.mark.parametrize("of_text", [1, 3])
def test_learns_a_sample_of_many_labels(of_text, recwarn):
    """Label i has term i; a text has one label, or three in a row."""
    size, count = 1500, 1200
    random = np.random.default_rng(0)
    first = random.integers(count - of_text, size=size)
    at = np.repeat(np.arange(size), of_text)
    ids = (first[:, np.newaxis] + np.arange(of_text)).ravel()
    rows = labels = from_pairs(size, at, ids)
    data = LabeledRows(rows, labels, count, count)
    layer = embeddings.train(data, 64, 6)
    scores = layer(*rows.take(np.arange(200)).padded())
    best = np.argmax(scores, axis=1)
    assert np.mean((best >= first[:200]) & (best < first[:200] + of_text)) > 0.9
    assert not recwarn.list


@pytest.mark.parametrize(
    "options, size, named",
    [
        ({"embedding_dim": -1}, 300, "embedding_dim.*-1"),
        ({"embedding_dim": 2.5}, 300, "embedding_dim.*2.5"),
        ({"embedding_dim": True}, 300, "embedding_dim.*True"),
        ({"embedding_dim": 8}, 30, "`embedding_dim` needs.*200 texts.*30"),
    ],
)
def test_wrong_arguments(options, size, named):
    with pytest.raises(ValueError, match=named):
        Tagger(verbose=0, **options).fit(*pairs(size, 0))
