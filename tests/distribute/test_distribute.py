"""Training under `tf.distribute`, on logical devices."""

import pytest

from tests.support import mirrored
from tests.support.processes import run

SOME = ["full_head_adam", "auto"]
OTHERS = [name for name in mirrored.HEADS if name not in SOME]
OTHERS.append(mirrored.TIED)


# Each process starts TensorFlow once for a part of the heads.
@pytest.mark.parametrize(
    "names",
    [SOME, pytest.param(OTHERS, marks=pytest.mark.slow)],
    ids=["some", "others"],
)
def test_two_replicas_equal_one_device(tmp_path, names):
    _, output = run(["tests.support.mirrored", *names], tmp_path)
    equal = [line for line in output.splitlines() if "equal:" in line]
    assert len(equal) == len(names), output[-3000:]
