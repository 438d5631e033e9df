"""What `import tfxclass` does to a process, and what it leaves alone."""

import json
import os
import platform
import subprocess
import sys

import pytest

NAME = "TF_ENABLE_ONEDNN_OPTS"
only_x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="TensorFlow decides well elsewhere"
)

# The command imports tfxclass without TensorFlow's notes. What this prints is
# about that import.
FRESH = """
import json
import sys

import tfxclass_cli

status = tfxclass_cli.main(["tag", "fit", sys.argv[1], "--out", "model"])

import keras
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
print(json.dumps({"status": status, "input": keras.Input((1,)).name}))
"""

# TensorFlow is not found: the import ends there, which keeps the test short.
WITHOUT_TENSORFLOW = f"""
import importlib
import os
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "tensorflow":
            raise ImportError(name)

sys.meta_path.insert(0, Finder())
if "--is-loaded" in sys.argv:
    sys.modules["tensorflow"] = None
try:
    importlib.import_module(sys.argv[1])
except ImportError:
    print(os.environ.get("{NAME}"))
"""


def run(code, *arguments, **variables):
    """Runs Python in an environment without the variable for oneDNN."""
    rest = {name: value for name, value in os.environ.items() if name != NAME}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**rest, **variables},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.fixture(scope="module")
def missing_file(tmp_path_factory):
    return str(tmp_path_factory.mktemp("data") / "no.jsonl")


@pytest.fixture(scope="module")
def fresh(missing_file):
    """A process that imports TensorFlow, which takes seconds: one for all."""
    return run(FRESH, missing_file)


def test_a_missing_file_is_told_without_log_lines(fresh, missing_file):
    assert json.loads(fresh.stdout.splitlines()[-1])["status"] == 1
    text = f"tfxclass: {missing_file}: there is no such file\n"
    assert fresh.stderr == text


def test_the_import_leaves_tensorflow_unconfigured(fresh):
    """Devices cannot be set up once the first variable is made."""
    name = json.loads(fresh.stdout.splitlines()[-1])["input"]
    assert name == "keras_tensor"


@only_x86
def test_onednn_is_on():
    """In processes that begin with `import tfxclass`, as these do."""
    shown = run("import tfxclass; tfxclass.show_build()").stdout
    assert "oneDNN: on\n" in shown


@only_x86
@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        (["tfxclass"], {}, "1"),
        (["tfxclass_text"], {}, "1"),
        (["tfxclass"], {NAME: "0"}, "0"),
        # Processes that this one starts would inherit a setting it does not
        # have.
        (["tfxclass", "--is-loaded"], {}, "None"),
    ],
    ids=["before TensorFlow", "taggers, too", "not wanted", "after TensorFlow"],
)
def test_the_setting_of_onednn(arguments, variables, expected):
    found = run(WITHOUT_TENSORFLOW, *arguments, **variables).stdout
    assert found == f"{expected}\n"
