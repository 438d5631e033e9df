"""Taggers on disk: whole, as they were made, and proven where exported."""

import copy
import json
import os
import pickle
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfxclass_text import Field
from tfxclass_text import Tagger
from tfxclass_text import tagger_export
from tfxclass_text import tagger_files

TEXTS = ["a red fox", "a grey hare", "eggs and milk", "flour and eggs"]
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
    assert len(unfitted.fit(TEXTS, TAGS).predict(TEXTS)) == len(TEXTS)
    copied = COPIES[name](old)
    assert copied.predict(TEXTS) == old.predict(TEXTS)
    assert copied.evaluate(TEXTS, TAGS) == old.evaluate(TEXTS, TAGS)
    assert copied.summary == old.summary and copied.tags == old.tags
    np.testing.assert_array_equal(copied.thresholds, old.thresholds)
    copied.save(tmp_path)
    assert Tagger.load(tmp_path).predict(TEXTS) == old.predict(TEXTS)
    before = old.predict(TEXTS)
    copied.fit(TEXTS, ["x", "y", "x", "y"])
    assert copied.tags == ["x", "y"] and old.predict(TEXTS) == before


def test_a_pickle_is_read_in_another_process(old, tmp_path):
    (tmp_path / "tagger.pickle").write_bytes(pickle.dumps(old))
    code = (
        "import pickle, json; f = open('tagger.pickle', 'rb'); "
        f"print(json.dumps(pickle.load(f).predict({TEXTS!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert [[tuple(x) for x in answer] for answer in found] == old.predict(
        TEXTS
    )


@pytest.mark.parametrize("kind", ["words", "chars", "values"])
def test_texts_with_nuls_are_served_as_predicted(kind, tmp_path):
    """A served text ended at its first NUL."""
    texts = ["red\0fox", "fox \0red", "\0", "\u00e9\0fox", "g\0:2 f:1\0"]
    field = Field("text", kind, min_count=1, max_share=1.0)
    tagger = Tagger(fields=[field], effort="fast", verbose=0)
    tagger.fit([*texts, "red", "fox", "\u00e9", "g"], list("abcdefghi"))
    folder = tagger.export(tmp_path, k=9)
    served = tf.saved_model.load(folder).signatures["serving_default"]
    scores = served(text=tf.constant(texts))["scores"].numpy()
    expected = [[p for _, p in x] for x in tagger.predict(texts, k=9)]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    np.testing.assert_allclose(
        tagger.model({"text": tf.constant(texts)}).numpy().max(axis=1),
        scores[:, 0],
        rtol=1e-5,
    )


def test_unusual_tags_are_exported(tmp_path):
    """What `fit` takes, every labels file holds."""
    tags = [" a ", "b\t", "\u6f22 \u5b57", "\U0001f600", 'q"|,', "#"]
    texts = [f"w{i}" for i in range(6)]
    field = Field("text", min_count=1, max_share=1.0)
    tagger = Tagger(fields=[field], effort="fast", verbose=0).fit(texts, tags)
    folder = tagger.export(tmp_path / "served", k=1)
    served = tf.saved_model.load(folder).signatures["serving_default"]
    found = served(text=tf.constant(texts))["labels"].numpy()
    assert [x[0].decode() for x in found] == tags
    tagger.save(tmp_path / "saved")
    assert Tagger.load(tmp_path / "saved").tags == sorted(tags)
    path = os.path.join(folder, "assets", "labels.txt")
    with open(path, encoding="utf-8") as f:
        assert f.read().splitlines() == sorted(tags)


@pytest.fixture(scope="module")
def exported(old, tmp_path_factory):
    """`(what an export's answers are compared with, its right answers)`."""
    seen = []
    compare = tagger_export.compare
    check = compare.check

    def note(answers, *expected):
        seen.append((expected, answers))
        check(answers, *expected)

    with pytest.MonkeyPatch.context() as m:
        m.setattr(compare, "check", note)
        old.export(tmp_path_factory.mktemp("served"), k=3)
    (found,) = seen
    return found


@pytest.mark.parametrize("key", ["ids", "scores", "labels"])
def test_exports_are_compared_in_all(exported, key):
    expected, answers = exported
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


@pytest.mark.parametrize("format", ["onnx", "litert", "openvino"])
def test_keras_cannot_export_texts_otherwise(old, tmp_path, format):
    """Keras' files were refused by ONNX Runtime, without a warning."""
    with pytest.raises(ValueError, match=r"Fix: tagger\.export"):
        old.model.export(tmp_path / "model", format=format)
    old.save(tmp_path / "tagger")
    with pytest.raises(ValueError, match=r"Fix: tagger\.export"):
        Tagger.load(tmp_path / "tagger").model.export(tmp_path / "m", format)
    assert not (tmp_path / "model").exists()


def test_a_model_is_not_exported_to_formats_without_texts(old):
    with pytest.raises(ValueError, match="no ops for texts"):
        old.model.export("m", format="onnx")
