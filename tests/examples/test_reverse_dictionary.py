"""The demo: its parsers, its ranks, and all of it on tiny data."""

import collections
import importlib.util
import io

import keras
import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from examples.reverse_dictionary import __main__ as demo
from examples.reverse_dictionary import data
from examples.reverse_dictionary import evaluate
from examples.reverse_dictionary import meaning
from examples.reverse_dictionary import model as model_lib
from examples.reverse_dictionary import text
from examples.reverse_dictionary import train
from tests.support import reference

DOG = (
    "02084071 05 n 03 dog 0 domestic_dog 0 Canis_familiaris 0 002 "
    "@ 02083346 n 0000 ~ 01322604 n 0000 | a member of the genus Canis; "
    'occurs in many breeds; "the dog barked; all night"  '
)
needs_wordnet = pytest.mark.skipif(
    importlib.util.find_spec("wn") is None
    or importlib.util.find_spec("dictionary") is None,
    reason="needs tfxclass[examples]",
)


def synset(*words, gloss="", pointers=()):
    return data.Synset(words, gloss, (), pointers)


class TestData:
    def test_a_line_of_wordnet(self):
        offset, dog = data.parse_synset(DOG)
        assert offset == "02084071"
        assert dog.words == ("dog", "domestic dog", "canis familiaris")
        assert dog.gloss == (
            "a member of the genus Canis; occurs in many breeds"
        )
        assert dog.examples == ("the dog barked; all night",)
        assert dog.pointers == (
            ("@", ("n", "02083346")),
            ("~", ("n", "01322604")),
        )

    def test_frames_of_verbs_are_no_words(self):
        line = "00001740 29 v 01 breathe 0 000 02 + 02 00 + 08 00 | inhale  "
        assert data.parse_synset(line)[1].words == ("breathe",)

    def test_markers_of_adjectives_are_no_part_of_the_word(self):
        assert data.word_of("Well_Off(ip)") == "well off"
        assert data.word_of("f(x)") == "f(x)"

    @needs_wordnet
    def test_counts_of_wordnet(self):
        synsets = data.read_wordnet()
        assert len(synsets) == 117_659
        assert sum(len(s.words) for s in synsets.values()) == 206_978
        assert len(data.words_of(synsets.values())) == 147_306

    def test_definitions_taken_from_wordnet_are_dropped(self):
        synsets = [
            synset("cat", "true cat", gloss="feline mammal; purrs"),
            synset("dog", gloss="it barks"),
        ]
        queries = [
            data.Query("cat", "Feline mammal -- purrs."),  # a copy
            data.Query("cat", "It barks."),  # another word's gloss: stays
            data.Query("cow", "It moos."),  # no class
            data.Query("dog", " ... "),  # says nothing
        ]
        assert data.test_queries(queries, synsets) == [queries[1]]

    def test_the_sample_is_fixed(self):
        synsets = [synset("cat", gloss="purrs")]
        queries = [data.Query("cat", f"text {i}") for i in range(50)]
        sample = data.test_queries(queries, synsets, size=10)
        assert len(set(sample)) == 10
        assert sample == data.test_queries(queries, synsets, size=10)

    def test_hill(self, tmp_path):
        path = tmp_path / "hill.tsv"
        path.write_text("word\tdescription\ncat\tit purrs\ncow\tit moos\n")
        assert data.read_hill(["cat"], path) == [data.Query("cat", "it purrs")]
        assert data.read_hill(["cat"], tmp_path / "none.tsv") == []


class TestText:
    def test_words_and_stems(self):
        found = text.split(tf.constant(["State of Being-concentric!", ""]))
        assert found.to_list() == [
            [b"state", b"of", b"being", b"concentric"]
            + [b"_stat", b"_of", b"_being", b"_concentr"],
            [],
        ]
        stem = text.split(tf.constant(["concentricity"])).to_list()[0][1]
        assert stem == b"_concentr"

    def test_vocabulary(self):
        column = text.split_all(["a a b", "a c", "c a", ""])
        terms, idf = text.make_vocabulary([column], 4)
        assert terms.tolist() == [b"a", b"_a", b"c", b"_c"]
        np.testing.assert_allclose(idf, np.log([4 / 3, 4 / 3, 2, 2]))

    def test_ids(self, tmp_path):
        path = tmp_path / "terms.txt"
        path.write_text("b\n_b\na\n")
        ids = text.WordIds(path)(tf.constant(["a b", "z"]))
        assert ids.numpy().tolist() == [[2, 0, -1, 1], [-1, -1, -1, -1]]

    def test_the_words_of_a_question(self):
        terms = [b"care", b"_care", b"careful", b"of"]
        words = ["care", "careful", "careless thing", "cares", "of"]
        found = text.classes_of_terms(terms, words, most=3)
        rows = [sorted(set(row) - {-1}) for row in found.tolist()]
        assert rows == [[0], [0, 1, 3], [1], [4]]
        layer = text.AskedClasses(found)
        asked = layer(np.array([[1, 3, -1]])).numpy()
        assert sorted(set(asked[0]) - {-1}) == [0, 1, 3, 4]


class TestTraining:
    def test_texts_and_labels(self):
        synsets = {
            ("n", "1"): synset("dog", "hound", gloss="barks"),
            ("n", "2"): synset(
                "pug",
                gloss="small",
                pointers=(("@", ("n", "1")), ("!", ("n", "2"))),
            ),
        }
        texts = train.texts_of(synsets)
        assert texts["gloss"] == ["barks", "small"]
        assert texts["word"] == ["dog hound", "pug"]
        assert texts["related"] == ["", "dog hound"]
        labels = train.labels_of(synsets, ["dog", "hound", "pug"])
        assert labels.tolist() == [[0, 1], [2, -1]]

    def test_batches(self, tmp_path, monkeypatch):
        keep = {"gloss": 1.0, "word": 0.0}
        monkeypatch.setattr(train, "KEEP", keep)
        path = tmp_path / "terms.txt"
        path.write_text("a\nb\nc\n")
        columns = {
            "gloss": text.split_all(["a b", "", "c a b"]),
            "word": text.split_all(["c", "c", "c"]),
        }
        batches = train.Batches(
            text.WordIds(path).table,
            columns,
            np.arange(3)[:, np.newaxis],
            length=2,
        )
        # As long as allowed; rows of other texts are not reached into.
        assert batches.words(np.array([2, 1, 0])).tolist() == [
            [2, 0],
            [-1, -1],
            [0, 1],
        ]
        ids, labels = batches[0]
        assert len(batches) == 1
        assert sorted(labels[:, 0].tolist()) == [0, 1, 2]
        assert batches.terms(3, keep).toarray().tolist() == [
            [1, 1, 0],
            [0, 0, 0],
            [1, 1, 1],
        ]
        assert ids.shape == (3, 2)


class TestMeaning:
    def test_words_are_near_what_defines_them(self):
        terms = [b"winged", b"_wing", b"fly", b"_fly", b"cat"]
        first = np.eye(5, dtype="float32")
        words = ["cat", "winged", "no term"]
        # "winged" is defined by "fly", "cat" by nothing.
        rows = np.zeros((3, 5), "float32")
        rows[1, 2] = 1
        found = meaning.expanded(first, terms, words, rows)
        near = found @ first[2]
        # Itself, and its stem by it.
        np.testing.assert_allclose(near, [0.5**0.5] * 3 + [0, 0])
        np.testing.assert_allclose(np.diag(found), [0.5**0.5] * 5)

    def test_what_people_use_gains(self, monkeypatch):
        counts = collections.Counter({"cat": 9})
        monkeypatch.setattr(data, "read_counts", lambda: counts)
        words = ["cat", "cat flap", "ocelot"]
        found = meaning.usualness(words, ["A cat.", "the cat's paw"])
        expected = 0.01 * (np.log(10) + np.log(3))
        np.testing.assert_allclose(found, [expected, -0.06, 0], rtol=1e-6)

    @needs_wordnet
    def test_counts(self):
        counts = data.read_counts()
        assert counts["person"] > 1000 and counts["ice cream"] > 0

    def test_the_answer_is_the_sum_of_its_parts(self, tmp_path):
        path, terms = tmp_path / "terms.txt", 4
        path.write_text("a\n_a\nb\n_b\n")
        random = np.random.default_rng(0)
        idf = np.arange(1.0, 5)
        parts = []
        for _ in range(2):
            embeddings, rows = (
                random.normal(size=(n, model_lib.DIM)).astype("float32")
                for n in (terms, 3)
            )
            parts.append((embeddings, keras.utils.normalize(rows)))
        usual = np.array([0.1, 0, -0.1], "float32")
        asked = np.array([[0, -1], [-1, -1], [2, 1], [2, -1]])
        model, excluded = model_lib.make_answering(
            path, idf, parts[:1], parts[1], usual, asked
        )
        named = keras.Model(model.inputs, excluded)(tf.constant(["b", "z"]))
        assert [set(row) for row in named.numpy().tolist()] == [
            {1, 2, -1},
            {-1},
        ]
        found = model.predict(tf.constant(["b a", "zzz"]), verbose=0)
        cosines = [
            keras.utils.normalize(idf @ e)[0] @ rows.T for e, rows in parts
        ]
        logits = [cosines[0] + 0.7 * cosines[1] + 1.7 * usual, 1.7 * usual]
        expected = reference.softmax(15 * np.array(logits))
        np.testing.assert_allclose(found, expected, rtol=1e-4)


class TestRanks:
    SCORES = np.array([[3.0, 1.0, 2.0, 1.0], [0.0, 0.0, 0.0, 5.0]])

    @pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_matrix])
    @pytest.mark.parametrize("block", [1, 2])
    def test_by_hand(self, kind, block):
        # Ties count half: both 1.0 are third or fourth, three 0.0 are between
        # second and fourth.
        found = evaluate.ranks(
            kind(self.SCORES),
            np.array([1, 0]),
            kind(np.eye(4)),
            block=block,
        )
        assert found.tolist() == [3, 3]

    def test_excluded_classes_have_no_rank(self):
        excluded = np.array([[0, -1], [3, 2]])
        found = evaluate.ranks(
            self.SCORES, np.array([1, 0]), np.eye(4), excluded
        )
        assert found.tolist() == [2, 1]

    def test_summary(self):
        found = np.array([1, 10, 11, 100, 101])
        assert evaluate.summary(found) == (0.2, 0.4, 0.8, 11)


def test_typed_definitions_end_with_the_input(monkeypatch):
    typed = iter(["it purrs"])

    def read(prompt):
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", read)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert list(demo.typed_definitions()) == [demo.EXAMPLE]
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    assert list(demo.typed_definitions()) == ["it purrs"]


@needs_wordnet
def test_end_to_end(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "PARTS", 1)
    demo.main(
        ["--limit=300", "--epochs=2", "--compare", f"--out={tmp_path}"]
        + ["an entity that has physical existence"]
    )
    output = capsys.readouterr().out
    answers = output[output.index("an entity that has") :].splitlines()
    assert answers[1].split(maxsplit=1)[1] == "physical entity"
    for name in (
        "TF-IDF, glosses",
        "TF-IDF, the model's",
        "SampledSoftmax",
        "Full",
    ):
        assert name in output
    assert (tmp_path / "1" / "saved_model.pb").exists()
    assets = {path.name for path in (tmp_path / "1" / "assets").iterdir()}
    assert assets == {"vocabulary.txt", "labels.txt"}
