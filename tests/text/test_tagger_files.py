"""Taggers on disk: whole, as they were made, and proven where exported."""

import copy
import json
import os
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support import processes
from tfxclass_text import Field
from tfxclass_text import Tagger
from tfxclass_text import tagger_export
from tfxclass_text import tagger_files

TEXTS = [
    "see a red fox", "see a grey hare", "eggs and some milk",
    "flour and some eggs",
]  # fmt: skip
TAGS = [["animal", "red"], ["animal"], ["food", "egg"], ["food", "egg"]]


def fitted(tags, **options):
    options = {"effort": "fast", "verbose": 0, **options}
    return Tagger(**options).fit(TEXTS, tags)


@pytest.fixture(scope="module")
def old():
    return fitted(TAGS)


def fail_to_write(self, path, *_):
    with open(path, "wb") as f:
        f.write(b"half")
    raise OSError("no space left")


def fail_to_rename(*_):
    raise OSError("no space left")


@pytest.mark.parametrize(
    "owner, name, failure",
    [
        (keras.Model, "save", fail_to_write),
        pytest.param(
            tagger_files.os,
            "replace",
            fail_to_rename,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_save_that_fails_leaves_the_old_one(
    old, tmp_path, monkeypatch, owner, name, failure
):
    """It left the new model with the names of the old one."""
    old.save(tmp_path)
    before = sorted(os.listdir(tmp_path))
    new = fitted([["x", "y"], ["x"], ["z"], ["y"]])
    with monkeypatch.context() as m:
        m.setattr(owner, name, failure)
        with pytest.raises(OSError, match="no space"):
            new.save(tmp_path)
    assert sorted(os.listdir(tmp_path)) == before
    assert Tagger.load(tmp_path).predict(TEXTS) == old.predict(TEXTS)
    (tmp_path / "notes.txt").write_text("not the tagger's")
    new.save(tmp_path)
    assert Tagger.load(tmp_path).predict(TEXTS) == new.predict(TEXTS)
    # The model of before went, and nothing else.
    assert len(os.listdir(tmp_path)) == len(before) + 1


def test_a_folder_holds_a_tagger_or_its_exports(old, tmp_path):
    old.save(tmp_path / "saved")
    with pytest.raises(ValueError, match="`folder` .*'tagger.json', a saved"):
        old.export(tmp_path / "saved", verify=False)
    version = tmp_path / "served" / "1"
    version.mkdir(parents=True)
    (version / "saved_model.pb").touch()
    with pytest.raises(ValueError, match="`folder` .*1/saved_model.pb', a"):
        old.save(tmp_path / "served")


def test_folders_that_are_no_versions_are_let_be(old, tmp_path):
    other = tmp_path / "2024-old" / "saved_model.pb"
    other.parent.mkdir()
    other.touch()
    old.save(tmp_path)
    assert Tagger.load(tmp_path).predict(TEXTS) == old.predict(TEXTS)
    assert other.exists()


def test_how_it_was_made_is_kept(old, tmp_path):
    """A refit of a loaded tagger chooses its fields if the first one did."""
    old.save(tmp_path / "chosen")
    loaded = Tagger.load(tmp_path / "chosen")
    assert loaded.fields is None and loaded.verbose == 0
    fields = [Field(["text"], min_count=1, max_share=1.0)]
    fitted(TAGS, fields=fields).save(tmp_path / "given")
    loaded = Tagger.load(tmp_path / "given")
    assert [str(x) for x in loaded.fields] == [str(x) for x in fields]


COPIES = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


@pytest.mark.parametrize("name", COPIES)
def test_a_tagger_is_copied(old, name, tmp_path):
    """It could not be pickled: its answers are a local function."""
    unfitted = COPIES[name](Tagger(seed=3, effort="fast", verbose=0))
    assert unfitted.seed == 3
    assert unfitted.fit(TEXTS, TAGS).tags == old.tags
    copied = COPIES[name](old)
    assert copied.predict(TEXTS) == old.predict(TEXTS)
    assert copied.evaluate(TEXTS, TAGS) == old.evaluate(TEXTS, TAGS)
    assert copied.summary == old.summary and copied.tags == old.tags
    np.testing.assert_array_equal(copied.thresholds, old.thresholds)
    copied.save(tmp_path)
    loaded = Tagger.load(tmp_path)
    for a, b in zip(loaded.model.weights, old.model.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    before = old.predict(TEXTS)
    copied.fit(TEXTS, ["x", "y", "x", "y"])
    assert copied.tags == ["x", "y"] and old.predict(TEXTS) == before


def test_a_pickle_is_read_in_another_process(old, tmp_path):
    """It has not imported what the pickle is made of."""
    path = tmp_path / "tagger.pickle"
    path.write_bytes(pickle.dumps(old))
    code = (
        "import json, pickle, sys; assert 'tfxclass_text' not in sys.modules; "
        "tagger = pickle.load(open(sys.argv[1], 'rb')); "
        f"print(json.dumps(tagger.predict({TEXTS!r})))"
    )
    found = json.loads(processes.run_code(code, str(path)).splitlines()[-1])
    answers = [[tuple(x) for x in answer] for answer in found]
    assert answers == old.predict(TEXTS)


UNUSUAL_TEXTS = ["red\0fox", "fox \0red", "\0", "\u00e9\0fox", "g\0:2 f:1\0"]
UNUSUAL_TAGS = [" a ", "b\t", "\u6f22 \u5b57", "\U0001f600", 'q"|,', "#"]


@pytest.fixture(scope="module")
def unusual():
    """A tagger of words, characters and values, for texts with NULs."""
    fields = [
        Field("text", kind, min_count=1, max_share=1.0)
        for kind in ("words", "chars", "values")
    ]
    texts = [*UNUSUAL_TEXTS, "red", "fox", "\u00e9", "g"]
    tags = [*UNUSUAL_TAGS, "x", "y", "z"]
    return Tagger(fields=fields, effort="fast", verbose=0).fit(texts, tags)


@pytest.fixture(scope="module")
def exported(unusual, tmp_path_factory):
    """`(folder, (what an export's answers are compared with, they))`."""
    seen = []
    compare = tagger_export.compare
    check = compare.check

    def note(answers, *expected):
        seen.append((expected, answers))
        check(answers, *expected)

    with pytest.MonkeyPatch.context() as m:
        m.setattr(compare, "check", note)
        folder = unusual.export(tmp_path_factory.mktemp("served"), k=9)
    (found,) = seen
    return folder, found


def test_texts_with_nuls_are_served_as_predicted(unusual, exported):
    """A served text ended at its first NUL."""
    served = tf.saved_model.load(exported[0]).signatures["serving_default"]
    answers = served(text=tf.constant(UNUSUAL_TEXTS))
    predicted = unusual.predict(UNUSUAL_TEXTS, k=9)
    expected = [[p for _, p in x] for x in predicted]
    np.testing.assert_allclose(answers["scores"], expected, rtol=1e-5)
    found = [[x.decode() for x in row] for row in answers["labels"].numpy()]
    assert found == [[tag for tag, _ in x] for x in predicted]
    np.testing.assert_allclose(
        unusual.model({"text": tf.constant(UNUSUAL_TEXTS)}).numpy().max(axis=1),
        answers["scores"][:, 0],
        rtol=1e-5,
    )


def test_unusual_tags_are_saved_and_exported(unusual, exported, tmp_path):
    """What `fit` takes, every labels file holds."""
    assert set(UNUSUAL_TAGS) < set(unusual.tags)
    unusual.save(tmp_path)
    assert Tagger.load(tmp_path).tags == unusual.tags
    path = os.path.join(exported[0], "assets", "labels.txt")
    with open(path, encoding="utf-8") as f:
        assert f.read().splitlines() == unusual.tags


@pytest.mark.parametrize("key", ["ids", "scores", "labels"])
def test_exports_are_compared_in_all(exported, key):
    expected, answers = exported[1]
    check = tagger_export.compare.check
    check(answers, *expected)
    wrong = answers[key].copy()
    wrong[0, 0] = wrong[0, 2] if key != "scores" else wrong[0, 0] + 1e-3
    with pytest.raises(RuntimeError, match=f"`{key}`"):
        check({**answers, key: wrong}, *expected)
    assert np.all(answers["ids"][0] >= 0)


def test_keras_exports_scores_from_texts(old, tmp_path):
    old.model.export(tmp_path, verbose=False)
    loaded = tf.saved_model.load(tmp_path)
    given = {"text": tf.constant(TEXTS)}
    np.testing.assert_allclose(loaded.serve(given), old.model(given), rtol=1e-6)


def test_keras_cannot_export_texts_otherwise(old, tmp_path):
    """Keras' files were refused by ONNX Runtime, without a warning."""
    old.save(tmp_path / "tagger")
    loaded = Tagger.load(tmp_path / "tagger")
    for tagger in (old, loaded):
        for format in ("onnx", "litert", "openvino"):
            with pytest.raises(
                ValueError, match=r"no ops for texts\. Fix: tagger\.export"
            ):
                tagger.model.export(tmp_path / "model", format=format)
    assert not (tmp_path / "model").exists()
