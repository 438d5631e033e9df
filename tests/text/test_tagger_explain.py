"""Why a tag: what each term of a text adds to the tag's logit."""

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st

from tests.support.cases import quick
from tfxclass_text import Field
from tfxclass_text import Tagger
from tfxclass_text import explain as explain_lib
from tfxclass_text import recipes
from tfxclass_text import sparse_linear
from tfxclass_text.tagger_model import layers_of

WORDS = [f"w{i}" for i in range(60)]
NUM_TAGS = 8
texts_of_words = st.lists(
    st.sampled_from([*WORDS, "unknown", "日本"]), max_size=14
).map(" ".join)
# Explaining a text takes a second: 3 examples, and 25 with --slow.
few = hypothesis.settings(
    max_examples=hypothesis.settings().max_examples // 8, deadline=None
)


def made_up(is_multi, size=250):
    """`(texts, tags)`: noisy, so that no probability is nearly 0 or 1."""
    random = np.random.default_rng(0)
    texts, tags = [], []
    for _ in range(size):
        count = random.integers(1, 4) if is_multi else 1
        own = random.choice(NUM_TAGS, count, replace=False)
        own_words = 5 * random.choice(own, 4) + random.integers(5, size=4)
        others = random.integers(len(WORDS), size=10)
        places = np.concatenate([own_words, others])
        texts.append(" ".join(WORDS[i] for i in places))
        tags.append([f"tag{i}" for i in own])
    return texts, tags


def fitted(is_multi, **options):
    return Tagger(verbose=0, **options).fit(*made_up(is_multi))


@pytest.fixture(scope="module", params=["one tag", "several tags"])
def is_multi(request):
    return request.param == "several tags"


@pytest.fixture(scope="module")
def words_alone(is_multi):
    return fitted(is_multi, effort="fast", fields=[Field("text")])


@pytest.fixture(
    scope="module",
    params=quick(["embeddings", "votes", "both", "tree"], ["both", "tree"]),
)
def mixed(request, is_multi):
    options = {
        "embeddings": {"neighbors": 0, "embedding_dim": 8},
        "votes": {"neighbors": 3, "embedding_dim": 0},
        "both": {"neighbors": 3, "embedding_dim": 8},
        "tree": {"effort": "fast", "fields": [Field("text")]},
    }[request.param]
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "tree":
            slow = recipes.PRESETS["fast"]._replace(seconds=0.0)
            patched.setitem(recipes.PRESETS, "fast", slow)
            patched.setattr("tfxclass_text.linear_tree.num_groups", lambda _: 2)
        return fitted(is_multi, **options)


def odds(tagger, p, tag):
    """What logits tell of probabilities `[texts, tags]`, `[texts]`.

    With one tag a text, only the ratio to the probability of another tag.
    """
    # Explanations take no probability for less.
    p = np.maximum(p.astype(float), 1e-30)
    own = p[:, tagger.tags.index(tag)]
    return own / (own + p[:, 0]) if tagger.summary["one_tag_a_text"] else own


def odds_of(tagger, logit, first):
    if tagger.summary["one_tag_a_text"]:
        logit = logit - first
    return 1 / (1 + np.exp(-logit))


def explain_twice(tagger, text, tag):
    """Explanations of a tag and of the first one, which `odds_of` reads.

    With several tags a text it is not read, so the tag itself is the first.
    """
    found = tagger.explain(text, tag)
    is_read = tagger.summary["one_tag_a_text"]
    return found, tagger.explain(text, tagger.tags[0]) if is_read else found


def assert_sums_up(found):
    total = found.bias + sum(x.contribution for x in found.terms)
    assert total == pytest.approx(found.logit, abs=1e-5)
    sizes = [abs(x.contribution) for x in found.terms]
    assert sizes == sorted(sizes, reverse=True)
    assert len({x.term for x in found.terms}) == len(found.terms)


@few
@hypothesis.given(text=texts_of_words, number=st.integers(1, NUM_TAGS - 1))
def test_a_word_is_deleted(words_alone, text, number):
    tagger = words_alone
    tag = tagger.tags[number]
    found, first = explain_twice(tagger, text, tag)
    assert_sums_up(found)
    bias = tagger.explain("", tag)
    assert not bias.terms
    assert found.bias == pytest.approx(bias.logit, abs=1e-5)
    assert {x.term for x in found.terms} == set(text.split()) & set(WORDS)
    others = {x.term: x.effect for x in first.terms}
    shorter, expected = [text], [odds_of(tagger, found.logit, first.logit)]
    for term, _, effect in found.terms:
        shorter.append(" ".join(x for x in text.split() if x != term))
        logits = found.logit - effect, first.logit - others[term]
        expected.append(odds_of(tagger, *logits))
    p = tagger.predict_proba(shorter)
    np.testing.assert_allclose(odds(tagger, p, tag), expected, atol=1e-5)


def test_contributions_are_weights_times_values(words_alone):
    tagger, text = words_alone, "w1 w2 w3 w3 unknown"
    linear = layers_of(tagger.model).linear
    ids, values = tagger.features([text])
    rows = sparse_linear.weights_of(linear).rows.take(ids[0])
    weights = np.zeros((len(rows), linear.width))
    weights[rows.row_ids(), rows.ids] = rows.values
    expected = linear.slope.numpy() * values[0] * weights[:, 4]
    found = tagger.explain(text, tagger.tags[4])
    np.testing.assert_allclose(
        np.sort([x.contribution for x in found.terms]), np.sort(expected),
        rtol=1e-5, atol=1e-7,
    )  # fmt: skip


def without(tagger, columns, term):
    """What `odds` are of for a tagger that does not know a term."""
    features = layers_of(tagger.model).features
    given = {name: tf.constant(x) for name, x in columns.items()}
    _, ids, names = (x.numpy() for x in features.named(given))
    forgotten, first = np.unique(ids[names == term.encode()]), 0
    saved = [x.numpy() for x in features.hashes]
    for known, hashes in zip(features.hashes, saved):
        own = forgotten - first
        changed = hashes.copy()
        # A hash that no text has.
        changed[own[(own >= 0) & (own < len(hashes))]] += 1
        known.assign(changed)
        first += len(hashes)
    try:
        return tagger.predict_proba(columns)
    finally:
        for known, hashes in zip(features.hashes, saved):
            known.assign(hashes)


def assert_explains(tagger, text, tag, data):
    """As the probabilities are, also without a term that is drawn."""
    found, first = explain_twice(tagger, text, tag)
    assert_sums_up(found)
    columns = {name: [x] for name, x in text.items()}
    expected = odds_of(tagger, found.logit, first.logit)
    p = tagger.predict_proba(columns)
    assert odds(tagger, p, tag) == pytest.approx(expected, abs=1e-5)
    if not found.terms:
        return
    term, _, effect = data.draw(st.sampled_from(found.terms))
    other = next(x.effect for x in first.terms if x.term == term)
    expected = odds_of(tagger, found.logit - effect, first.logit - other)
    p = without(tagger, columns, term)
    assert odds(tagger, p, tag) == pytest.approx(expected, abs=1e-5)


@few
@hypothesis.given(
    text=texts_of_words, number=st.integers(1, NUM_TAGS - 1), data=st.data()
)
def test_a_term_is_forgotten(mixed, text, number, data):
    assert_explains(mixed, {"text": text}, mixed.tags[number], data)


@few
@hypothesis.given(
    title=texts_of_words, text=texts_of_words, code=st.integers(0, 5),
    data=st.data(),
)  # fmt: skip
def test_fields(several_fields, title, text, code, data):
    given = {"title": title, "text": text, "code": f"c{code}:0.5 c0"}
    assert_explains(several_fields, given, "tag2", data)


@pytest.fixture(scope="module")
def several_fields():
    texts, tags = made_up(True)
    fields = [
        Field("title", longest=2, weight=0.5),
        Field(["title", "text"], "chars", 1, 3, max_share=1.0),
        Field("code", "values", min_count=1, max_share=1.0),
    ]
    codes = [f"c{i % 6}:1.5 c{i % 5}" for i in range(len(texts))]
    columns = {"title": texts, "text": texts[::-1], "code": codes}
    return Tagger(fields=fields, verbose=0, embedding_dim=8).fit(columns, tags)


def test_names_of_terms(several_fields):
    text = {"title": "W1, w2", "text": "w3", "code": "c1:2 c0"}
    names = {x.term for x in several_fields.explain(text, "tag1").terms}
    assert {"w1", '"w"', '" w1"', '"w3 "', "c1", "c0"} <= names


def test_it_prints_a_table(words_alone):
    shown = str(words_alone.explain(" ".join(WORDS), "tag1")).splitlines()
    assert shown[0].startswith("'tag1' has the logit ")
    assert shown[-2].endswith("(40 other terms)")
    assert shown[-1].endswith("(bias)")


@pytest.mark.parametrize(
    "text, tag, message",
    [
        ("w1", "nope", "`tag` must be one of the 8 tags.*'nope'"),
        (["w1"], "tag1", "Texts must be str"),
        ({"text": ["w1"]}, "tag1", "Texts must be str"),
        ({"title": "w1"}, "tag1", "columns that the tagger was fitted"),
    ],
)
def test_bad_input(words_alone, text, tag, message):
    with pytest.raises(ValueError, match=message):
        words_alone.explain(text, tag)


def assert_serves(tagger, columns):
    """The signature of exports gives what `explain` tells, by stock ops.

    That it is in an export, tests/serve/test_serve_page.py shows.
    """
    layers, numbers = layers_of(tagger.model), [1, 2, 3]
    strings = {x: tf.TensorSpec([None], tf.string, x) for x in columns}
    ids = tf.TensorSpec([None], tf.int64, "tag_id")
    served = tf.function(
        lambda given, tag_id: explain_lib.served(layers, given, tag_id),
        input_signature=[strings, ids],
    )
    graph = served.get_concrete_function().graph
    assert not [x.type for x in graph.get_operations() if "fxclass" in x.type]
    given = {name: tf.constant(x) for name, x in columns.items()}
    answer = served(given, tf.constant(numbers, tf.int64))
    texts = [dict(zip(columns, row)) for row in zip(*columns.values())]
    for i, (text, number) in enumerate(zip(texts, numbers, strict=True)):
        found = tagger.explain(text, tagger.tags[number])
        names = [x.decode() for x in answer["terms"][i].numpy() if x]
        assert sorted(names) == sorted(x.term for x in found.terms)
        sizes = [x.contribution for x in found.terms]
        np.testing.assert_allclose(
            answer["contributions"][i, : len(names)], sizes, atol=1e-6
        )
        pair = answer["logits"][i], answer["bias"][i]
        np.testing.assert_allclose(pair, (found.logit, found.bias), atol=1e-5)


SERVED = [" ".join(WORDS[:9]), "", "w1 w1 w7"]


def test_an_export_explains(mixed):
    assert_serves(mixed, {"text": SERVED})


def test_an_export_explains_fields(several_fields):
    columns = {"title": SERVED, "text": ["", "w2", "w3"], "code": ["c1:2"] * 3}
    assert_serves(several_fields, columns)
