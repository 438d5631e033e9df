"""Training under `tf.distribute`, on logical devices."""

import subprocess
import sys

import pytest

from tests import mirrored
from tests.conftest import ROOT

NAMES = list(mirrored.HEADS)


# Each process starts TensorFlow once for a part of the heads.
@pytest.mark.parametrize("names", [NAMES[0::2], NAMES[1::2]], ids=["a", "b"])
def test_two_replicas_equal_one_device(names):
    done = subprocess.run(
        [sys.executable, "-m", "tests.mirrored", *names],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    equal = [line for line in done.stdout.splitlines() if "equal" in line]
    assert len(equal) == len(names), done.stderr[-3000:]
