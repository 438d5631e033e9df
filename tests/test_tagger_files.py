"""Taggers on disk: whole, as they were made, and proven where exported."""

import json
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfxclass.text import Field
from tfxclass.text import Tagger
from tfxclass.text import tagger_export
from tfxclass.text import tagger_files

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


def test_how_it_was_made_is_kept(old, tmp_path):
    """A refit of a loaded tagger chooses its fields if the first one did."""
    old.save(tmp_path / "chosen")
    loaded = Tagger.load(tmp_path / "chosen")
    assert loaded.fields is None and loaded.verbose == 0
    fields = [Field(["text"], min_count=1, max_share=1.0)]
    fitted(TAGS, fields=fields).save(tmp_path / "given")
    loaded = Tagger.load(tmp_path / "given")
    assert [str(x) for x in loaded.fields] == [str(x) for x in fields]


def test_taggers_of_earlier_versions_load(old, tmp_path):
    old.save(tmp_path)
    path = tmp_path / "tagger.json"
    described = json.loads(path.read_text())
    os.rename(tmp_path / described.pop("model"), tmp_path / "model.keras")
    for name in ("verbose", "fields_are_given", "neighbors", "thresholds"):
        del described[name]
    path.write_text(json.dumps(described))
    loaded = Tagger.load(tmp_path)
    assert loaded.predict(TEXTS) == old.predict(TEXTS)
    assert np.all(loaded.thresholds == np.float32(old.summary["threshold"]))


@pytest.fixture(scope="module")
def exported(old, tmp_path_factory):
    """`(the question that proves an export, its right answers)`."""
    seen = []
    with pytest.MonkeyPatch.context() as m:
        check = tagger_export.proof.check
        m.setattr(tagger_export.proof, "check", lambda _, x: seen.extend(x))
        folder = old.export(tmp_path_factory.mktemp("served"), k=3)
    assert check is tagger_export.proof.check
    (question,) = seen
    served = tf.saved_model.load(folder).signatures["serving_default"]
    given = {k: tf.constant(x.tolist()) for k, x in question.inputs.items()}
    return question, {k: x.numpy() for k, x in served(**given).items()}


@pytest.mark.parametrize("key", ["ids", "scores", "labels"])
def test_exports_are_compared_in_all(exported, key):
    question, answers = exported
    question.check(answers)
    wrong = answers[key].copy()
    wrong[0, 0] = wrong[0, 2] if key != "scores" else wrong[0, 0] + 1e-3
    with pytest.raises(RuntimeError, match=f"`{key}`"):
        question.check({**answers, key: wrong})
    assert np.all(answers["ids"][0] >= 0)
