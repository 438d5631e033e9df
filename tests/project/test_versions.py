"""`make test-versions`: what it wrote, and that it tells a failure."""

import copy
import json
import pathlib

import numpy as np
import pytest

from custom_ops import build
from tests.benchmarks.test_results import MACHINE_PATH
from tests.versions import ask
from tests.versions import environments
from tests.versions import table
from tfxclass.keras_internals import TESTED

FOUND = {
    "date": "2030-01-02",
    "command": "make test-versions",
    "machine": "2 cores",
    "tests": [
        {
            "tensorflow": "2.20.0",
            "keras": "3.12.0",
            "numpy": "2.0",
            "ops": "compiled",
            "passed": 9,
            "failed": [],
        }
    ],
    "exports": [
        {
            "made_with": "2.20",
            "tensorflow": version,
            "models": {"Full": "equal", "Tagger": "equal"},
        }
        for version in ("2.19.1", "2.20.0")
    ],
}


def test_the_page_is_what_the_result_says():
    found = json.loads(table.RESULT.read_text())
    page = table.PAGE.read_text()
    assert page == table.page(found, page)
    assert table.is_sound(found)
    assert not MACHINE_PATH.search(table.RESULT.read_text())


def test_every_tensorflow_was_tested_and_loads_every_export():
    found = json.loads(table.RESULT.read_text())
    tested = {build.minor_version(x["tensorflow"]) for x in found["tests"]}
    assert tested == {*build.TESTED} == {*environments.TESTED}
    assert {x["ops"] for x in found["tests"]} == {"compiled", "fallback"}
    pairs = {
        (x["made_with"], build.minor_version(x["tensorflow"]))
        for x in found["exports"]
    }
    servers = {*environments.SERVING, *environments.TESTED}
    assert pairs == {(x, y) for x in environments.TESTED for y in servers}


def test_the_oldest_keras_is_tested():
    oldest = TESTED.partition(">=")[2].partition(",")[0]
    assert f"keras=={oldest}.0" in environments.TESTED[build.TESTED[0]]


def test_tables():
    lines = table.text(FOUND).splitlines()
    assert "| 2.20.0 | 3.12.0 | 2.0 | compiled | 9 | 0 |" in lines
    assert "| export made with | in 2.19.1 | in 2.20.0 |" in lines
    assert "| 2.20 | 2 of 2 | 2 of 2 |" in lines
    old = f"above\n{table.START}old\n{table.END}below\n"
    new = table.page(FOUND, old)
    assert new.startswith("above\n") and new.endswith("below\n")
    assert "old\n" not in new and table.page(FOUND, new) == new


def test_a_failure_is_told():
    assert table.is_sound(FOUND)
    failed = copy.deepcopy(FOUND)
    failed["tests"][0]["failed"] = ["tests/smoke.py"]
    assert not table.is_sound(failed)
    other = copy.deepcopy(FOUND)
    other["exports"][1]["models"]["Tagger"] = "AssertionError: ids"
    assert not table.is_sound(other)
    assert "| 2.20 | 2 of 2 | 1 of 2 |" in table.text(other)


@pytest.mark.parametrize("key", ["ids", "scores"])
def test_other_answers_are_found(key):
    expected = {"ids": np.array([[1, 2]]), "scores": np.array([[0.5, 0.25]])}
    ask.compare(expected, expected)
    other = expected | {key: expected[key][:, ::-1]}
    with pytest.raises(AssertionError):
        ask.compare(other, expected)


def test_an_export_that_does_not_load_is_told(tmp_path):
    np.savez(tmp_path / "inputs.npz", x=np.zeros(2))
    np.savez(tmp_path / "expected.npz", ids=[[0]], scores=[[0.0]])
    assert "Error" in ask.outcome(str(tmp_path), "none")


def test_an_environment_is_made_once(monkeypatch, tmp_path):
    python = pathlib.Path("bin") / "python"
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    commands = []

    def run(command, check):
        commands.append(list(map(str, command)))
        (tmp_path / "2.20").mkdir(exist_ok=True)

    monkeypatch.setattr(environments.subprocess, "run", run)
    for _ in range(2):
        assert environments.make("2.20") == tmp_path / "2.20" / python
    assert len(commands) == 2 and "tensorflow-cpu==2.20.*" in commands[1]
    packages = ("tensorflow-cpu==2.20.1",)
    monkeypatch.setitem(environments.TESTED, "2.20", packages)
    environments.make("2.20")
    assert len(commands) == 4 and packages[0] in commands[3]
