"""A network with a hidden layer beside a tagger's linear scores."""

import math

import numpy as np
import pytest

from tests.text.test_tagger_choices import random_rows
from tfxclass_text import Field
from tfxclass_text import Tagger
from tfxclass_text import perceptron
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import from_pairs

# Two words of a text: one tag of those that are both of one half, or of two.
NAMES = [f"{letter}{number}" for letter in "ab" for number in range(6)]


def pairs(size, seed):
    random = np.random.default_rng(seed)
    chosen = [random.choice(NAMES, 2, replace=False) for _ in range(size)]
    tags = [["same" if x[0] == y[0] else "other"] for x, y in chosen]
    return [" ".join(words) for words in chosen], tags


def gelu(x):
    return 0.5 * x * (1 + np.array([math.erf(v) for v in (x / 2**0.5).flat])
                      .reshape(x.shape))  # fmt: skip


def plain(**options):
    """A tagger of single words, by linear scores."""
    fields = [Field("text", min_count=1, max_share=1.0)]
    options = {"neighbors": 0, "landmarks": 0, "verbose": 0, **options}
    return Tagger(fields, **options)


@pytest.fixture(scope="module")
def tagger():
    return plain().fit(*pairs(600, 0))


def test_learns_what_no_weights_of_words_tell(tagger):
    texts, tags = pairs(200, 1)
    assert tagger.summary["hidden_units"] == perceptron.UNITS
    assert tagger.summary["hidden_passes"] == 24
    assert tagger.evaluate(texts, tags, ks=[1])["precision_at_1"] > 0.95
    without = plain(hidden_units=0).fit(*pairs(600, 0))
    assert without.summary["hidden_units"] == 0
    # Each word has both tags about as often.
    assert without.evaluate(texts, tags, ks=[1])["precision_at_1"] < 0.7


def test_stays_out_where_it_does_not_help():
    words = np.random.default_rng(0).choice(NAMES, 300)
    tagger = plain().fit(list(words), [[word] for word in words])
    assert tagger.summary["hidden_units"] == 0
    assert any(row[0] == "perceptron" for row in tagger.summary["tried"])
    fast = plain(effort="fast").fit(*pairs(300, 0))
    assert all(row[0] != "perceptron" for row in fast.summary["tried"])


def test_saved_and_exported(tagger, tmp_path):
    texts, _ = pairs(20, 2)
    expected = tagger.predict(texts)
    tagger.save(tmp_path / "saved")
    assert Tagger.load(tmp_path / "saved").predict(texts) == expected
    # Verified through TensorFlow's C API.
    tagger.export(tmp_path / "served")


@pytest.fixture(scope="module")
def data():
    """`LabeledRows`."""
    rows = random_rows(50, 15, 0)[1]
    has = np.random.default_rng(1).random((50, 6)) < 0.3
    has[:, 0] |= ~has.any(axis=1)
    return LabeledRows(rows, from_pairs(50, *np.nonzero(has)), 15, 6)


@pytest.mark.parametrize("one", [True, False])
def test_logits_equal_the_plain_way(data, one):
    if one:
        labels = from_pairs(50, np.arange(50), np.arange(50) % 6)
        data = data._replace(labels=labels)
    network = perceptron.train(data, 8, 2, one)
    texts, given = random_rows(9, 15, 2)
    hidden, tags = network
    units = gelu(texts @ np.asarray(hidden.kernel) + np.asarray(hidden.bias))
    expected = units @ np.asarray(tags.kernel) + np.asarray(tags.bias)
    found = network.logits_of(given, np.array([3, 0]))
    np.testing.assert_allclose(found, expected[:, [3, 0]], atol=1e-4)


def test_the_same_seed_gives_the_same_network(data):
    first, again, other = (
        perceptron.train(data, 8, 2, seed=seed) for seed in (3, 3, 4)
    )
    for x, y, z in zip(*(network.hidden.get_weights() for network in
                         (first, again, other))):  # fmt: skip
        np.testing.assert_array_equal(x, y)
        assert np.abs(x - z).max() > 0.001


def test_says_how_far_it_is(data):
    said = []
    perceptron.train(data, 8, 8, say=said.append)
    assert [line.split()[-1] for line in said] == ["2", "4", "6", "8"]


def test_as_many_passes_as_there_is_time_for(data):
    assert perceptron.num_epochs(data) == 24
    # 8 passes take half a minute of a core with so many labels.
    some = int(30 / (1.6e-10 * 50 * 512 * 8.5))
    assert perceptron.num_epochs(data._replace(num_labels=some)) == 8
    many = data._replace(num_labels=2 * some)
    assert perceptron.num_epochs(many) == 0
    assert perceptron.num_epochs(many, units=128) > 8
    assert perceptron.num_epochs(data._replace(num_features=1_000_000)) == 0


@pytest.mark.parametrize(
    "options, size, named",
    [
        ({"hidden_units": -1}, 300, "hidden_units.*-1"),
        ({"hidden_units": 2.5}, 300, "hidden_units.*2.5"),
        ({"hidden_units": 8}, 30, "`hidden_units` needs.*200 texts.*30"),
    ],
)
def test_wrong_arguments(options, size, named):
    with pytest.raises(ValueError, match=named):
        Tagger(verbose=0, **options).fit(*pairs(size, 0))
