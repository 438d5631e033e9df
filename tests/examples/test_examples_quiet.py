"""What the examples print is for a reader."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Notes come with the import, and with the first step in a function.
CODE = """
import examples
import tensorflow as tf

tf.function(lambda x: x @ x)(tf.ones([4, 4]))
print("done")
"""


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


def test_help_says_what_data_is_read():
    found = [
        call
        for path in sorted((ROOT / "examples").glob("*.py"))
        for call in path.read_text(encoding="utf8").split("add_argument(")
        if call.lstrip().startswith('"--data"')
    ]
    assert found and all("help=" in call for call in found)
