"""`Tagger.fit(class_names=...)`: tags that have a name and no text."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tfxclass_text import Tagger
from tfxclass_text.tagger_model import layers_of

STEMS, ENDINGS = "bal der fin gul kor lim mon nap pir rus".split(), "ado ek in"
WORDS = list(map("".join, itertools.product(STEMS, ENDINGS.split())))
TAGS = 120


def _texts(names, tags, random):
    """Two of the three words of a tag's name, and another one."""
    return [
        " ".join([*random.permutation(names[tag].split())[:2], other])
        for tag, other in zip(tags, random.choice(WORDS, len(tags)))
    ]


@pytest.fixture(scope="module")
def task():
    """Names of all tags; texts of odd tags to learn from; texts of all."""
    random = np.random.default_rng(0)
    every = random.permutation(list(itertools.combinations(WORDS, 3)))
    names = {i: " ".join(every[i]) for i in range(TAGS)}
    learned = (2 * random.integers(0, TAGS // 2, 900) + 1).tolist()
    asked = random.integers(0, TAGS, 400).tolist()
    texts = [_texts(names, tags, random) for tags in (learned, asked)]
    return names, (texts[0], learned), (texts[1], asked)


@pytest.fixture(scope="module")
def tagger(task):
    names, learned, _ = task
    return Tagger(verbose=0).fit(*learned, class_names=names)


def share_found(tagger, texts, tags, kind):
    """How often the first answer is right, of texts of even or odd tags."""
    answers = tagger.predict(texts, k=1)
    found = [best[0][0] == tag for best, tag in zip(answers, tags)]
    return np.mean([x for x, tag in zip(found, tags) if tag % 2 == kind])


def share_by_names(names, texts, tags, kind):
    """How often the name with the most words of a text is the right one."""
    words = {tag: set(name.split()) for tag, name in names.items()}
    found = []
    for text, tag in zip(texts, tags):
        if tag % 2 == kind:
            asked = set(text.split())
            shared = {x: len(words[x] & asked) for x in words}
            best = [x for x, n in shared.items() if n == max(shared.values())]
            found.append((tag in best) / len(best))
    return np.mean(found)


def test_tags_without_a_text_are_found_by_their_names(task, tagger):
    names, _, (texts, tags) = task
    for kind in (0, 1):
        by_names = share_by_names(names, texts, tags, kind)
        assert share_found(tagger, texts, tags, kind) > by_names - 0.05


def test_a_tag_without_a_text_has_the_direction_of_its_names():
    texts = [f"old {x}" for x in WORDS * 8]
    names = {"new": ["balado derek", "finin"], WORDS[0]: "a name of its own"}
    tagger = Tagger(verbose=0).fit(texts, WORDS * 8, class_names=names)
    layers = layers_of(tagger.model)
    sums = [
        layers.embedding.sums(*layers.features({"text": name})).numpy()[0]
        for name in tf.constant([[x] for x in names["new"]])
    ]
    expected = sum(x / np.linalg.norm(x) for x in sums)
    vectors = layers.embedding.tags.numpy()
    vector = vectors[tagger.tags.index("new")]
    np.testing.assert_allclose(
        vector / np.linalg.norm(vector),
        expected / np.linalg.norm(expected),
        atol=1e-5,
    )
    # A name of a tag with texts is one more text of it.
    ((tag, _),) = tagger.predict(["its own name"], k=1)[0]
    assert tag == WORDS[0]


def test_saved_exported_and_explained(task, tagger, tmp_path):
    _, _, (texts, _) = task
    tagger.save(tmp_path / "saved")
    again = Tagger.load(tmp_path / "saved")
    assert again.predict(texts[:20]) == tagger.predict(texts[:20])
    folder = tagger.export(tmp_path / "served", k=3, verify=False)
    served = tf.saved_model.load(folder).signatures["serving_default"]
    answers = served(text=tf.constant(texts[:20]))
    for names, scores, expected in zip(
        answers["labels"].numpy(),
        answers["scores"].numpy(),
        tagger.predict(texts[:20], k=3),
    ):
        # Tags that are ints are text in a labels file.
        assert [int(name) for name in names] == [tag for tag, _ in expected]
        np.testing.assert_allclose(scores, [p for _, p in expected], 1e-4)
    ((tag, _),) = tagger.predict(texts[:1], k=1)[0]
    found = tagger.explain(texts[0], tag)
    total = found.bias + sum(x.contribution for x in found.terms)
    assert total == pytest.approx(found.logit, abs=1e-5)


def test_they_are_still_found_after_more_texts(task):
    names, (texts, tags), asked = task
    tagger = Tagger(verbose=0).fit(texts[:450], tags[:450], class_names=names)
    before = share_found(tagger, *asked, 0)
    tagger.partial_fit(texts[450:], tags[450:])
    assert share_found(tagger, *asked, 0) > before - 0.1


def test_few_texts_are_enough():
    names = {"food": "things to eat", "tool": ["tools", "hand tools"]}
    tagger = Tagger(verbose=0)
    tagger.fit(["milk", "eggs"], ["food", "food"], class_names=names)
    assert tagger.predict(["a small hand tool"], k=1)[0][0][0] == "tool"


@pytest.mark.parametrize(
    "options, arguments, named",
    [
        ({}, {"class_names": {}}, "must be a dict of tags to their names"),
        ({}, {"class_names": ["a"]}, "must be a dict of tags to their names"),
        ({}, {"class_names": {"a": " "}}, "for the tag 'a'"),
        ({}, {"class_names": {"a": [1]}}, "for the tag 'a'"),
        ({}, {"class_names": {"a": []}}, "for the tag 'a'"),
        ({}, {"class_names": {1: "one"}}, "all ints or all str"),
        ({}, {"tags": [["a", "b"], ["a"]]}, "texts of one tag each"),
        ({}, {"tags": [[], ["a"]]}, "texts of one tag each"),
        ({}, {"texts": [(["x"], ["a"])], "tags": None}, "all in memory"),
        (
            {},
            {"texts": {"t": ["x", "y"], "u": ["z", "v"]}},
            "texts of one column. Received: ['t', 'u']",
        ),
        ({"c": 1.0}, {}, "c=1.0"),
        ({"neighbors": 5}, {}, "neighbors=5"),
        ({"embedding_dim": 0}, {}, "embedding_dim=0"),
    ],
)
def test_wrong_arguments(options, arguments, named):
    given = {"texts": ["x", "y"], "tags": ["a", "b"], "class_names": {"a": "n"}}
    with pytest.raises(ValueError) as e:
        Tagger(**options, verbose=0).fit(**{**given, **arguments})
    assert named in str(e.value), e.value
