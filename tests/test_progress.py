"""Word of work that takes long."""

import time

import numpy as np
import pytest

import tfxclass
from tests.support.cases import quick
from tests.support.contract import data
from tests.support.contract import make_model
from tfxclass import progress
from tfxclass.samplers import indexed


@pytest.fixture(autouse=True)
def short_patience(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.05)


def test_long_work_is_told(capsys):
    with progress.log_if_slow("Sleeping"):
        time.sleep(0.3)
    assert capsys.readouterr().err == "Sleeping ... 0 s\n"


def test_short_work_is_not(capsys):
    with progress.log_if_slow("Nothing"):
        pass
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def slow_items(count):
    for number in range(count):
        time.sleep(0.04)
        yield number


def test_a_long_walk_is_told(capsys):
    found = list(progress.progress_iter(slow_items(4), "Walking", 1_000))
    assert found == [0, 1, 2, 3]
    first, last = capsys.readouterr().err.splitlines()
    assert first in ("Walking: 2 of 1,000", "Walking: 3 of 1,000")
    assert last == "Walking: 4, 0 s"


def test_on_a_terminal_it_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "_OFTEN", 0)
    list(progress.progress_iter(slow_items(4), "Walking"))
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and told.count("\r") >= 2
    assert told.endswith("Walking: 4, 0 s\n")


def test_a_short_walk_is_not(capsys):
    assert list(progress.progress_iter(range(3), "Walking")) == [0, 1, 2]
    assert capsys.readouterr().err == ""


def exports(model, folder):
    lists = tfxclass.export.InvertedLists(4)
    tfxclass.export.saved_model(model, folder, top_k=3, search=lists)


LONG = {
    "calibrate": (
        lambda model, x, y, folder: tfxclass.calibrate(
            model, (x, y), thresholds="micro"
        ),
        ("Computing held-out", "Fitting the temp", "Answering held-out"),
    ),
    "add_classes": (
        lambda model, x, y, folder: tfxclass.add_classes(
            model, 1, (x, np.where(y > 30, y, 60))
        ),
        ("Computing the features",),
    ),
    "export": (
        lambda model, x, y, folder: exports(model, folder),
        (
            "Clustering",
            "Answering exactly",
            "Measuring the recall",
            "Writing",
            "Proving",
        ),
    ),
    "huffman": (
        lambda model, x, y, folder: tfxclass.trees.huffman(y + 1),
        ("Making a tree of 16 classes",),
    ),
    "advise": (
        lambda model, x, y, folder: tfxclass.advise(
            model, (x, y), num_sampled=32, seconds=8
        ),
        ("Training FullSoftmax", "Training SampledSoftmax"),
    ),
}


@pytest.mark.parametrize("name", quick(LONG, ("add_classes", "huffman")))
def test_what_may_take_long_is_told(name, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(progress, "PATIENCE", -1)
    sampler = tfxclass.samplers.KMeansSampler(32, num_groups=4)
    model = make_model(tfxclass.layers.SampledSoftmax(60, sampler=sampler))
    call, lines = LONG[name]
    call(model, *data(), str(tmp_path / "model"))
    told = capsys.readouterr().err
    for line in lines:
        assert line in told


def test_failure_goes_on(capsys):
    with pytest.raises(ValueError, match="no"), progress.log_if_slow("Failing"):
        raise ValueError("no")
    assert capsys.readouterr().err == ""


def test_the_first_index_of_a_fit_is_told(capfd, monkeypatch):
    """By the step that builds it, and by no other."""
    monkeypatch.setattr(indexed, "_LARGE_MATRIX", 1)
    sampler = tfxclass.samplers.KMeansSampler(32, num_groups=4)
    model = make_model(tfxclass.layers.SampledSoftmax(60, sampler=sampler))
    model.fit(*data(rows=48), batch_size=16, verbose=0)
    told = capfd.readouterr().err
    assert told.count("Building an index of 60 class rows ...\n") == 1
