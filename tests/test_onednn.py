"""`import tfxclass` turns oneDNN on, unless it is too late or not wanted."""

import os
import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="TensorFlow decides well elsewhere"
)
NAME = "TF_ENABLE_ONEDNN_OPTS"


def printed(code, **variables):
    """What Python prints in an environment without the variable."""
    rest = {name: value for name, value in os.environ.items() if name != NAME}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**rest, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize(
    "variables, told", [({}, "oneDNN: on\n"), ({NAME: "0"}, "oneDNN: off; ")]
)
def test_before_tensorflow(variables, told):
    code = "import tfxclass; tfxclass.show_build()"
    assert told in printed(code, **variables)


def test_after_tensorflow_the_environment_stays():
    # Processes that this one starts would inherit a setting it does not have.
    # A stub of TensorFlow keeps the test short: the import fails after it.
    code = f"""
import os, sys
sys.modules["tensorflow"] = None
try:
    import tfxclass
except ImportError:
    print(os.environ.get("{NAME}"))
"""
    assert printed(code) == "None\n"
