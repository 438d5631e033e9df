"""`placement="host"`, with a second logical device in the place of a GPU."""

import subprocess
import sys

import pytest
import tensorflow as tf

from tests.conftest import ROOT
from tfxclass import layers
from tfxclass import samplers

HEADS = {
    "uniform": lambda **k: layers.SampledSoftmax(
        60, 30, use_bias=True, seed=1, **k
    ),
    "top_k": lambda **k: layers.SampledSoftmax(60, 30, "top_k", seed=1, **k),
    "forest": lambda **k: layers.SelectiveSoftmax(
        60, 30, similarity="cosine", leaf_size=5, seed=1, **k
    ),
    "lsh": lambda **k: layers.LSHSoftmax(
        60, 30, scheme="label", num_hashes=3, num_tables=4, seed=1, **k
    ),
    "nce": lambda **k: layers.NoiseContrastive(
        60, 30, use_bias=True, seed=1, **k
    ),
    "dropmax": lambda **k: layers.DropMax(
        60, mode="posterior", num_sampled=30, sampler="uniform", seed=1, **k
    ),
    "projected": lambda **k: layers.ProjectedSoftmax(
        60, 4, 30, "uniform", l2=1e-3, seed=1, **k
    ),
}
PROCESS = """
import keras, numpy as np, sys, tensorflow as tf
import tfxclass
from tests.test_host_placement import HEADS

cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
random = np.random.default_rng(0)
x = random.normal(size=(64, 8)).astype("float32")
y = random.integers(0, 60, 64)


def train(make_head, **options):
    keras.utils.set_random_seed(1)
    head = make_head(**options)
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(8), head])
    model.compile(
        tfxclass.optimizers.LazyAdam(0.05, catch_up=True), loss=head.loss
    )
    quiet = {"batch_size": 16, "verbose": 0}
    losses = model.fit(x, y, epochs=3, shuffle=False, **quiet)
    found = [np.array(losses.history["loss"])]
    found += [np.array(model.evaluate(x, y, **quiet))]
    found += tfxclass.top_k(model, 5).predict(x, verbose=0)[:1]
    return model, head, found + [v.numpy() for v in model.variables]


def place(name):
    return name.rsplit("/", 1)[-1]


for name in sys.argv[1:]:
    with tf.device("CPU:1"):
        _, _, expected = train(HEADS[name])
        model, head, found = train(HEADS[name], placement="host")
        for a, b in zip(expected, found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        graph = tf.function(model.train_step).get_concrete_function(
            (tf.TensorSpec([16, 8]), tf.TensorSpec([16], tf.int64))
        ).graph
    home = {place(v.value.device) for v in head.trainable_variables}
    assert home == {"device:CPU:0"}, home
    slots = [
        v for v in model.optimizer.variables
        if v.shape[:1] == (60,) or v.shape == head.kernel.shape
    ]
    assert len(slots) >= 3
    assert {place(v.value.device) for v in slots} == {"device:CPU:0"}
    dense = model.layers[0].kernel
    assert place(dense.value.device) == "device:CPU:1"
    whole = [
        (o.name, o.device) for o in graph.get_operations()
        for t in o.inputs
        if t.shape == head.kernel.shape and "CPU:1" in o.device
    ]
    assert not whole, whole  # the matrix does not go to the device
    print("equal", name, flush=True)
"""


def test_training_equals_that_on_the_device():
    done = subprocess.run(
        [sys.executable, "-c", PROCESS, *HEADS],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.stdout.count("equal") == len(HEADS), done.stderr[-3000:]


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
