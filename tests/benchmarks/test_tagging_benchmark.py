"""The leaderboard of taggers: jobs, environments, scores, on tiny data."""

import json
import os
import sys

import numpy as np
import pytest

from benchmarks import measure
from benchmarks.tagging import __main__ as tagging
from benchmarks.tagging import sets
from benchmarks.tagging import tools
from benchmarks.tagging.tools import Tool

TEXTS = [("red apple", ["fruit"]), ("blue sky", ["air", "sky"])] * 3


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Arguments for a set of two files of JSON lines."""
    lines = [json.dumps({"text": x, "tags": y}) for x, y in TEXTS]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    other = json.dumps({"text": "red sky", "tags": ["sky", "new"]})
    (tmp_path / "test.jsonl").write_text("\n".join([lines[0], other]))
    one = sets.Set("Tiny", "train.jsonl", "test.jsonl")
    monkeypatch.setitem(sets.SETS, "tiny", one)
    monkeypatch.setattr(tools, "CACHE", str(tmp_path / "jobs"))
    monkeypatch.setattr(measure, "RESULTS", str(tmp_path / "out"))
    return ["--data", str(tmp_path), "--sets", "tiny", "--tools"]


def test_rows_and_scores(made, tmp_path):
    path = str(tmp_path / "rows.npz")
    sets.prepare("tiny", tmp_path, path)
    data = np.load(path)
    # Of air, fruit and sky; "new" is numbered on.
    assert data["num_labels"] == 3
    np.testing.assert_array_equal(data["y_1"], [1, 0, 2] * 3)
    np.testing.assert_array_equal(data["test_y_1"], [1, 2, 3])
    norms = np.add.reduceat(data["x_2"] ** 2, data["x_0"][:-1])
    np.testing.assert_allclose(norms, 1, rtol=1e-5)
    ids = np.array([[1, 0, 2, -1, -1], [2, 1, 0, -1, -1]])
    found = tagging.scores(data, ids)
    assert (found["P@1"], found["P@3"]) == (1, round(2 / 6, 4))
    # "new" would have been worth more.
    assert 0 < found["PSP@3"] < found["PSP@1"] < 1


@pytest.mark.slow
def test_resumed_with_what_failed(made, tmp_path, monkeypatch):
    tried = []

    def run(command):
        tried.append(command)
        np.savez(command[-1], ids=np.tile([1, 0, 2, -1, -1], (2, 1)))
        return {"cpu_s": 1.0, "peak_gb": 0.5, "predict_ms": 0.1, "mb": 2.0}

    def python_of(tool):
        if tool.label == "fastText":
            raise tools.NotInstalled("ERROR: no compiler")
        return "python"

    monkeypatch.setattr(tagging, "in_process", run)
    monkeypatch.setattr(tools, "python_of", python_of)
    names = ["ours_fast", "omikuji", "fasttext"]
    assert tagging.main([*made, *names]) == 1
    assert tried[0][1:4] == ["-m", "benchmarks.tagging.ours", "ours_fast"]
    assert tried[1][2] == "omikuji" and len(tried) == 2
    record = json.loads((tmp_path / "out/tagging/tiny.json").read_text())
    errors = [row.get("error") for row in record["rows"]]
    assert [x for x in errors if x != "not run"] == [
        None, None, "not installed: ERROR: no compiler"
    ]  # fmt: skip
    assert len(errors) == len(tools.TOOLS)
    assert record["rows"][1]["P@1"] == 0.5
    assert (tmp_path / "out/tagging/tiny.png").stat().st_size > 1000
    # What has a result is not run again; what failed is.
    monkeypatch.setattr(tools, "python_of", lambda tool: "python")
    assert tagging.main([*made, *names]) == 0
    assert len(tried) == 3 and tried[2][2] == "fasttext"


def test_sets_of_many_labels_are_not_for_all_tools(made, monkeypatch):
    few = Tool("one-vs-rest", ("x",), most_labels=2)
    monkeypatch.setitem(tools.TOOLS, "napkin_br", few)
    monkeypatch.setattr(tools, "python_of", None)
    assert tagging.main([*made, "napkin_br"]) == 0


def test_environments_are_made_once(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(tools, "CACHE", str(tmp_path))
    tool = Tool("a", ("b", "numpy<2"), "a==1")
    folder = tmp_path / "environments" / "a-1"

    def run(command):
        ran.append(command)
        os.makedirs(folder / "bin", exist_ok=True)
        (folder / "bin" / "python").touch()

    monkeypatch.setattr(tools, "_run", run)
    python = str(folder / "bin" / "python")
    assert tools.python_of(tool) == tools.python_of(tool) == python
    assert ran[1][-2:] == ["b", "numpy<2"] and len(ran) == 3
    # Without what it asks for.
    assert ran[2][-2:] == ["--no-deps", "a==1"]


def test_an_environment_that_failed_is_told_of():
    with pytest.raises(tools.NotInstalled, match="No module named nothing"):
        tools._run([sys.executable, "-m", "nothing"])
