"""Word of work that takes long."""

import time

import pytest

from tfxclass import progress


@pytest.fixture(autouse=True)
def short_patience(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.05)


def test_long_work_is_told(capsys):
    with progress.told("Sleeping"):
        time.sleep(0.3)
    assert capsys.readouterr().err == "Sleeping ... 0 s\n"


def test_short_work_is_not(capsys):
    with progress.told("Nothing"):
        pass
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_failure_goes_on(capsys):
    with pytest.raises(ValueError, match="no"), progress.told("Failing"):
        raise ValueError("no")
    assert capsys.readouterr().err == ""
