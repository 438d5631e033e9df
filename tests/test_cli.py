"""The command `tfxclass`, as a process and without TensorFlow."""

import os
import pathlib
import resource
import subprocess
import sys

import pytest

import tfxclass

ROOT = pathlib.Path(__file__).parents[1]


def run(*arguments):
    """Runs the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tfxclass_cli", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def seconds_of_children():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize(
    "arguments",
    [[], ["tag"], ["tag", "fit"], ["tag", "predict"]],
)
def test_help_does_not_load_tensorflow(arguments):
    """It took four seconds and began with TensorFlow's log lines."""
    start = seconds_of_children()
    done = run(*arguments, "--help")
    # 0.1 s; processor time, since other tests run as well.
    assert seconds_of_children() - start < 1
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.startswith("usage: tfxclass")


def test_help_tells_defaults():
    text = run("tag", "fit", "--help").stdout
    for default in ("text", "tags", "best", "0", "|", "utf-8"):
        assert f"(default: {default})" in text
    assert "(default: None)" not in text
    assert "calibrated" in run("tag", "predict", "--help").stdout


def test_version():
    done = run("--version")
    assert done.stdout == f"tfxclass {tfxclass.__version__}\n"
    assert not done.stderr


def test_wrong_arguments_are_told_at_once():
    done = run("tag", "fit", "data.csv")
    assert done.returncode == 2
    assert "--out" in done.stderr
    done = run("tag", "predict", "model", "--threshold", "high")
    assert done.returncode == 2
    assert "--threshold: must be a number" in done.stderr
    assert "calibrated" in done.stderr


@pytest.mark.slow
def test_an_empty_file_is_told_without_log_lines(tmp_path):
    """tests/test_import.py has the case of a missing file."""
    path = tmp_path / "no.jsonl"
    path.touch()
    done = run("tag", "fit", str(path), "--out", "model")
    assert done.returncode == 1
    assert done.stderr == f"tfxclass: {path}: the file is empty\n"
