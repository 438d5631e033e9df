"""Training under `tf.distribute`, on logical devices."""

import pytest

from tests import mirrored
from tests.processes import run

NAMES = list(mirrored.HEADS)


# Each process starts TensorFlow once for a part of the heads.
@pytest.mark.parametrize(
    "names",
    [NAMES[0::2], pytest.param(NAMES[1::2], marks=pytest.mark.slow)],
    ids=["a", "b"],
)
def test_two_replicas_equal_one_device(tmp_path, names):
    _, output = run(["tests.mirrored", *names], tmp_path)
    equal = [line for line in output.splitlines() if "equal:" in line]
    assert len(equal) == len(names), output[-3000:]
