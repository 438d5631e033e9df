"""Archives that grow, and texts that are read in passes."""

import json
import lzma

import numpy as np
import pytest

from tests.text.test_tagger import TAGS
from tests.text.test_tagger import TEXTS
from tests.text.test_tagger import quiet
from tfxclass_text import Field
from tfxclass_text import Tagger
from tfxclass_text import TextFile
from tfxclass_text import growth
from tfxclass_text import linear_tree
from tfxclass_text import readers
from tfxclass_text import recipes
from tfxclass_text import sparse_linear
from tfxclass_text.corpus import StreamedCorpus
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.sparse_rows import from_pairs
from tfxclass_text.sparse_rows import side_by_side
from tfxclass_text.term_table import TermCounts

BOATS = ["a boat on the sea", "the boat sails", "a ship and a boat at sea"] * 4
MORE = [["boat"], ["boat"], ["boat", "ship"]] * 4


class Passes:
    """The texts in batches, as often as they are asked for."""

    def __init__(self, texts, tags, size=5):
        self.texts, self.tags, self.size = texts, tags, size
        self.count = 0

    def __iter__(self):
        self.count += 1
        for i in range(0, len(self.texts), self.size):
            part = slice(i, i + self.size)
            yield self.texts[part], self.tags[part]


def best(tagger, text):
    return tagger.predict([text], k=1)[0][0][0]


def weights_of(tagger):
    return tagger.model.get_weights()


def same(one, other):
    return one.tags == other.tags and all(
        np.array_equal(a, b) for a, b in zip(weights_of(one), weights_of(other))
    )


def test_new_texts_and_tags():
    tagger = quiet(effort="fast").fit(TEXTS * 4, TAGS * 4)
    tagger.partial_fit(BOATS, MORE)
    assert tagger.tags == sorted(
        {"boat", "ship"} | {x for t in TAGS for x in t}
    )
    assert best(tagger, "the boat at sea") == "boat"
    # What was learned before is not forgotten.
    assert tagger.evaluate(TEXTS, TAGS)["precision_at_1"] == 1.0
    assert tagger.summary["texts"] == len(TEXTS) * 4 + len(BOATS)
    layer = tagger.model.get_layer("tag-scores")
    weights = layer.num_entries + np.count_nonzero(layer.dense)
    assert tagger.summary["weights"] == weights > 0
    assert tagger.summary["tags"] == 7 == len(tagger.thresholds)
    assert tagger.evaluate(BOATS, MORE)["precision_at_1"] == 1.0


def test_resumes_exactly(tmp_path):
    """Saved and loaded in between, the same weights come out."""
    one = quiet(effort="fast").fit(TEXTS * 4, TAGS * 4)
    one.save(tmp_path)
    for texts, tags in ((BOATS, MORE), (TEXTS, TAGS)):
        other = Tagger.load(tmp_path)
        one.partial_fit(texts, tags)
        other.partial_fit(texts, tags)
        assert same(one, other)
        other.save(tmp_path)
    # Old files are gone.
    assert len(list(tmp_path.iterdir())) == 3


def test_from_nothing():
    tagger = quiet().partial_fit(TEXTS * 4, TAGS * 4)
    tagger.partial_fit(BOATS, MORE)
    assert best(tagger, "boat") == "boat"
    assert best(tagger, "bake the cake") in ("food", "cake")


def test_one_tag_a_text_until_there_are_more():
    tagger = quiet(effort="fast").fit(TEXTS * 4, [t[0] for t in TAGS] * 4)
    tagger.partial_fit(["a boat"] * 3, ["boat"] * 3)
    assert tagger.summary["one_tag_a_text"]
    total = sum(p for _, p in tagger.predict(["a hare"], k=9)[0])
    assert total == pytest.approx(1, abs=1e-5)
    tagger.partial_fit(BOATS, MORE)
    assert not tagger.summary["one_tag_a_text"]
    assert best(tagger, "the boat sails") == "boat"


def test_what_was_mixed_in_is_left_out():
    tagger = quiet(embedding_dim=8).fit(TEXTS * 40, TAGS * 40)
    with pytest.warns(UserWarning, match="leaves out .*embedding_dim"):
        tagger.partial_fit(BOATS, MORE)
    assert tagger.summary["embedding_dim"] == 0
    assert best(tagger, "the boat sails") == "boat"
    tagger.partial_fit(BOATS, MORE)  # no warning again


def test_a_label_tree_grows(monkeypatch):
    """A new label joins the group whose texts are like its own."""
    monkeypatch.setattr(linear_tree, "num_groups", lambda _: 2)
    preset = recipes.PRESETS["fast"]._replace(seconds=0.0, terms=None)
    monkeypatch.setitem(recipes.PRESETS, "fast", preset)
    words = [f"w{i}" for i in range(12)]
    texts = [f"{a} {b}" for a in words for b in ("x", "y", "z")]
    tags = [[f"tag-{text.split()[0]}"] * 1 + ["all"] for text in texts]
    tagger = quiet(effort="fast").fit(texts * 2, tags * 2)
    assert tagger.summary["groups"] == 2
    new = ["w0 new x", "w0 new y", "w0 new z"] * 2
    tagger.partial_fit(new, [["added", "tag-w0"]] * 6)
    layer = tagger.model.get_layer("tag-scores")
    groups = dict(zip(tagger.tags, layer.groups.numpy()))
    assert groups["added"] == groups["tag-w0"]
    answers = {tag for tag, _ in tagger.predict(["w0 new"], k=3)[0]}
    assert "added" in answers
    assert best(tagger, "w5 x") in ("tag-w5", "all")


def test_weights_of_a_layer_are_those_it_was_made_of():
    random = np.random.default_rng(0)
    dense = random.standard_normal((40, 90)).astype(np.float32)
    dense[random.random(dense.shape) < 0.9] = 0
    dense[3] = 1.0  # a dense row
    rows, columns = np.nonzero(dense)
    splits = np.searchsorted(rows, np.arange(41))
    given = sparse_linear.SparseWeights(
        splits, columns.astype(np.int32), dense[rows, columns],
        random.standard_normal(90).astype(np.float32),
    )  # fmt: skip
    layer = sparse_linear.from_weights(given, 90)
    assert layer.num_dense
    for one, other in zip(given, sparse_linear.weights_of(layer)):
        np.testing.assert_array_equal(one, other)


def test_memory_is_a_sample(monkeypatch):
    monkeypatch.setattr(growth, "_MOST_TEXTS", 50)
    rows = from_pairs(200, np.arange(200), np.arange(200))
    memory = None
    for first in range(0, 200, 40):
        part = rows.take(np.arange(first, first + 40))
        data = growth.LabeledRows(part, part, 200, 200)
        memory = growth.remember(memory, data, 0, first, [])
    assert len(memory.rows) == 50 == len(set(memory.rows.ids))
    # Texts of all parts: 10 of each are expected.
    assert np.bincount(memory.rows.ids // 40, minlength=5).min() >= 3


def test_refused():
    tagger = quiet(effort="fast").fit(TEXTS, TAGS)
    with pytest.raises(ValueError, match="columns that the tagger"):
        tagger.partial_fit({"title": ["a"]}, ["x"])
    with pytest.raises(ValueError, match="must have a text"):
        tagger.partial_fit([], [])


def test_passes_learn_what_lists_do():
    texts, tags = TEXTS * 30, TAGS * 30
    source = Passes(texts, tags)
    one = quiet(effort="fast").fit(texts, tags)
    other = quiet(effort="fast").fit(source)
    assert same(one, other)
    assert source.count == 3
    one.partial_fit(BOATS, MORE)
    other.partial_fit(Passes(BOATS, MORE))
    assert same(one, other)


def test_a_file_is_read_in_passes(tmp_path):
    path = tmp_path / "texts.jsonl.xz"
    with lzma.open(path, "wt", encoding="utf-8") as f:
        for text, tags in zip(TEXTS * 10, TAGS * 10):
            f.write(json.dumps({"title": text, "tags": tags}) + "\n")
    file = TextFile(path, ["title"], "tags", batch_size=7)
    batches = list(file)
    assert [len(tags) for _, tags in batches] == [7] * 8 + [4]
    assert readers.read(path, ["title"], "tags") == (
        {"title": TEXTS * 10}, TAGS * 10,
    )  # fmt: skip
    tagger = quiet(effort="fast").fit(file)
    given = {"title": TEXTS * 10}
    assert same(tagger, quiet(effort="fast").fit(given, TAGS * 10))


def test_a_sample_of_a_stream_is_spread(monkeypatch):
    monkeypatch.setattr("tfxclass_text.corpus._SAMPLE", 20)
    texts = [str(i) for i in range(333)]
    corpus = StreamedCorpus(Passes(texts, [["x"]] * 333, size=10))
    numbers = [int(text) for text in corpus.sample["text"]]
    assert 20 <= len(numbers) <= 40
    assert len(set(np.diff(numbers))) == 1 and numbers[0] == 0
    assert corpus.size == 333


class Shrinks(Passes):
    def __iter__(self):
        batches = list(super().__iter__())
        yield from batches if self.count == 1 else batches[:1]


@pytest.mark.parametrize(
    "texts, message",
    [
        (iter([(TEXTS, TAGS)]), "iterable more than once.*list_iterator"),
        ([TEXTS], "batches .texts, tags"),
        (Passes([], []), "must have a text"),
        (Passes(TEXTS, [[]] * 6), "must have a tag"),
        (Passes(TEXTS, [["x\ny"]] * 6), "one line of text"),
        (Shrinks(TEXTS, TAGS), "6 texts, then 5"),
        (
            [({"a": ["x"]}, ["t"]), ({"b": ["x"]}, ["t"])],
            "columns that the tagger",
        ),
        ("texts", "an iterable of batches"),
        ({"text": TEXTS}, "an iterable of batches"),
    ],
)
def test_bad_corpora(texts, message):
    with pytest.raises(ValueError, match=message):
        quiet(effort="fast").fit(texts)


def test_terms_are_counted_batch_by_batch(monkeypatch):
    monkeypatch.setattr("tfxclass_text.term_table._WAITING", 50)
    random = np.random.default_rng(0)
    counts, every = TermCounts(), []
    for _ in range(20):
        part = random.integers(-30, 30, 17)
        counts.add(part, np.full(17, 2.0, np.float32))
        every.append(part)
    hashes, texts = np.unique(np.concatenate(every), return_counts=True)
    counts.merge()
    np.testing.assert_array_equal(counts.hashes, hashes)
    np.testing.assert_array_equal(counts.texts, texts)
    assert counts.squares == 4 * 17 * 20


def test_fields_side_by_side():
    random = np.random.default_rng(0)
    dense = [random.random((9, n)) for n in (4, 6)]
    for x in dense:
        x[x < 0.5] = 0
    parts = []
    for x in dense:
        rows, ids = np.nonzero(x)
        parts.append(from_pairs(9, rows, ids, x[rows, ids]))
    joined = side_by_side(parts, [4, 6])
    found = np.zeros((9, 10))
    found[joined.row_ids(), joined.ids] = joined.values
    np.testing.assert_allclose(found, np.concatenate(dense, axis=1), 1e-6)
    assert isinstance(joined, SparseRows)


def test_values_of_an_xc_file_grow():
    field = Field("text", "values", min_count=1, max_share=1.0)
    texts = ["f0:1.5 f1:-1", "f1:2", "f2:1 f0:1"] * 8
    tags = [["a"], ["b"], ["c"]] * 8
    tagger = quiet(effort="fast", fields=[field]).fit(texts, tags)
    tagger.partial_fit(["f9:2 f1:0.1", "f9:1"] * 4, [["new"]] * 8)
    assert best(tagger, "f9:1") == "new"
    assert best(tagger, "f2:1 f0:1") == "c"
