"""`placement="host"`, with a second logical device in the place of a GPU."""

import pytest
import tensorflow as tf

from tests.support import host_placement
from tests.support.processes import run
from tfxclass import layers
from tfxclass import samplers

# What remembers has variables of its own to place.
SOME = ["auto"]
OTHERS = [name for name in host_placement.HEADS if name not in SOME]


@pytest.mark.parametrize(
    "names",
    [SOME, pytest.param(OTHERS, marks=pytest.mark.slow)],
    ids=["some", "others"],
)
def test_training_equals_that_on_the_device(tmp_path, names):
    code, output = run(["tests.support.host_placement", *names], tmp_path)
    lines = output.splitlines()
    equal = [name for name in names if f"equal: {name}" in lines]
    assert equal == names, output[-3000:]
    assert code == 0


def test_config():
    head = layers.SampledSoftmax(60, 30, placement="host")
    assert head.get_config()["placement"] == "host"
    other = type(head).from_config(head.get_config())
    assert other.placement == "host"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: layers.SampledSoftmax(60, 30, placement="gpu"),
            "`placement` must be",
        ),
        (
            lambda: layers.ProjectedSoftmax(60, 4, placement="host"),
            "needs a `sampler`",
        ),
    ],
)
def test_invalid_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_strategies_are_refused():
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        head = layers.SampledSoftmax(
            60, sampler=samplers.UniformSampler(30), placement="host"
        )
        with pytest.raises(ValueError, match="is for one device"):
            head.build([None, 8])
