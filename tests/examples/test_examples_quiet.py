"""What the examples print is for a reader."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Notes come with the import, and with the first step in a function.
CODE = """
import examples
import tensorflow as tf

tf.function(lambda x: x @ x)(tf.ones([4, 4]))
print("done")
"""


@pytest.mark.slow
def test_no_notes_of_tensorflow():
    env = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**env, "TF_ENABLE_ONEDNN_OPTS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize(
    "path",
    [
        "examples/__init__.py",
        "examples/reverse_dictionary/__main__.py",
        "serving/demo.py",
    ],
)
def test_notes_of_tensorflow_are_hidden_first(path):
    """That they are, a process of the server shows: tests/serve."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf8"))
    first = next(x for x in tree.body if isinstance(x, ast.ImportFrom))
    assert (first.module, first.names[0].name) == ("tfxclass_serve", "quiet")
    before = tree.body[: tree.body.index(first)]
    imports = [x for x in before if isinstance(x, ast.Import)]
    names = {name.name for x in imports for name in x.names}
    assert names <= {"os", "subprocess", "sys"}, "Python's own modules"


def test_help_says_what_data_is_read():
    found = [
        call
        for path in sorted((ROOT / "examples").glob("*.py"))
        for call in path.read_text(encoding="utf8").split("add_argument(")
        if call.lstrip().startswith('"--data"')
    ]
    assert found and all("help=" in call for call in found)
