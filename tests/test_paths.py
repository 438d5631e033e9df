"""Paths that users give."""

import os
import pathlib

import keras
import pytest

import tfxclass
import tfxclass_cli as cli
from tfxclass.callbacks import AtomicModelCheckpoint
from tfxclass.data import XCFile
from tfxclass.paths import check_folder
from tfxclass.paths import local_path
from tfxclass_text import Tagger
from tfxclass_text import readers

REMOTE = ["gs://bucket/m", "s3://b/m.keras", pathlib.Path("gs://bucket/m")]


def model():
    head = tfxclass.layers.FullSoftmax(3)
    return keras.Sequential([keras.Input((2,)), head])


def test_home_is_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("~/a", pathlib.Path("~/a"), b"~/a"):
        assert local_path(path) == str(tmp_path / "a")
    assert local_path("C:/a") == "C:/a" and local_path("a~") == "a~"


@pytest.mark.parametrize("path", [*REMOTE, "", None, 3])
def test_what_is_no_local_path(path):
    with pytest.raises(ValueError, match="`folder` must"):
        local_path(path, "folder")


@pytest.mark.parametrize("path", REMOTE)
@pytest.mark.parametrize(
    "use",
    [
        lambda path: tfxclass.export.saved_model(model(), path),
        lambda path: tfxclass.export.vectors(model(), path),
        lambda path: tfxclass.save_model(model(), path),
        lambda path: AtomicModelCheckpoint(path),
        lambda path: Tagger.load(path),
        lambda path: XCFile(path),
        lambda path: readers.read(path, ["text"]),
    ],
)
def test_addresses_make_no_folders(use, path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="local file or folder.*copy it"):
        use(path)
    assert os.listdir(tmp_path) == []


def test_export_to_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = tfxclass.export.vectors(model(), "~/vectors")
    assert folder == str(tmp_path / "vectors")
    assert os.listdir(tmp_path) == ["vectors"]


def test_folders_that_cannot_be_made(tmp_path):
    check_folder(tmp_path / "a" / "b", "--out")
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="`--out` must be a folder"):
        check_folder(tmp_path / "file" / "b", "--out")


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("text,tags\nmilk,a;b\npaint,c\n")
    return str(path)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--test", "none.csv", "--out", "m"], "none.csv"),
        (["--test", "d.csv", "--out", "m"], "no column 'tags'"),
        (["--test", "e.csv", "--out", "m"], "row with a tag"),
        (["--test", "f.csv", "--out", "m"], "f.csv: A tag must be one line"),
        (["--out", "gs://b/m"], "`--out`"),
        (["--out", "d.csv"], "`--out`"),
        (["--out", "m", "--export", "d.csv/m"], "`--export`"),
        (["--out", "m", "--encoding", "x"], "`encoding`"),
    ],
)
def test_fit_checks_all_files_first(
    options, message, data, monkeypatch, tmp_path, capsys
):
    """A wrong name of a test file lost what was learned."""
    monkeypatch.chdir(tmp_path)
    pathlib.Path("d.csv").write_text("text\nmilk\n")
    pathlib.Path("e.csv").write_text("text,tags\nmilk,\n")
    pathlib.Path("f.csv").write_text('text,tags\nmilk,"a\nb"\n')
    monkeypatch.setattr(Tagger, "fit", lambda *_: pytest.fail("trained"))
    assert cli.main(["tag", "fit", data, *options]) == 1
    assert message in capsys.readouterr().err


def test_separator_and_a_folder_that_breaks(
    data, monkeypatch, tmp_path, capsys
):
    save = Tagger.save

    def refuse(tagger, folder):
        if folder == "m":
            raise OSError("disk full")
        save(tagger, folder)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Tagger, "save", refuse)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fit = ["tag", "fit", data, "--out", "m", "--separator", ";"]
    assert cli.main(fit) == 1
    error = capsys.readouterr().err
    assert "disk full" in error
    (spare,) = tmp_path.glob("tfxclass-tagger-*")
    assert str(spare) in error
    assert sorted(Tagger.load(spare).tags) == ["a", "b", "c"]
