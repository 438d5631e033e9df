"""`placement="host"` on two logical devices; run by test_host_placement.py.

python -m tests.support.host_placement [HEAD ...]

The second device is in the place of a GPU.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from tests.support import helpers
from tests.support.lsh import lsh_sampler
from tests.support.mixing import MixingSampler
from tfxclass import layers

HEADS = {
    "uniform": lambda **k: layers.SampledSoftmax(
        60, 30, use_bias=True, seed=1, **k
    ),
    "top_k": lambda **k: layers.SampledSoftmax(60, 30, "top_k", seed=1, **k),
    "forest": lambda **k: layers.SelectiveSoftmax(
        60,
        similarity="cosine",
        sampler=tfxclass.samplers.HashingForestSampler(30, leaf_size=5, seed=1),
        seed=1,
        **k,
    ),
    "auto": lambda **k: layers.SampledSoftmax(
        60, sampler=MixingSampler(30, seed=1), **k
    ),
    "lsh": lambda **k: layers.LSHSoftmax(
        60,
        sampler=lsh_sampler(
            30, scheme="label", num_hashes=3, num_tables=4, seed=1
        ),
        seed=1,
        **k,
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


def train(make_head, **options):
    """The model and all numbers that it gives."""
    random = np.random.default_rng(0)
    x = random.normal(size=(64, 8)).astype(np.float32)
    y = random.integers(0, 60, 64)
    keras.utils.set_random_seed(1)
    head = make_head(**options)
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(8), head])
    model.compile(tfxclass.optimizers.LazyAdam(0.05), loss=head.loss)
    quiet = {"batch_size": 16, "verbose": 0}
    found = [np.array(helpers.fit(model, x, y, 16, epochs=3))]
    found += [np.array(model.evaluate(x, y, **quiet))]
    found += tfxclass.top_k(model, 5).predict(x, verbose=0)[:1]
    return model, found + [v.numpy() for v in model.variables]


def place(variable):
    return variable.value.device.rsplit("/", 1)[-1]


def whole_on_device(model):
    """Ops of a training step on the device that take the whole matrix."""
    batch = tf.TensorSpec([16, 8]), tf.TensorSpec([16], tf.int64)
    graph = tf.function(model.train_step).get_concrete_function(batch).graph
    shape = model.layers[-1].kernel.shape
    return [
        (op.name, op.device)
        for op in graph.get_operations()
        if "CPU:1" in op.device and any(x.shape == shape for x in op.inputs)
    ]


def check(make_head):
    with tf.device("CPU:1"):
        _, expected = train(make_head)
        model, found = train(make_head, placement="host")
        for ours, theirs in zip(expected, found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        whole = whole_on_device(model)
    assert not whole, whole
    dense, head = model.layers
    home = {place(v) for v in head.trainable_variables}
    assert home == {"device:CPU:0"}, home
    slots = [
        v
        for v in model.optimizer.variables
        if v.shape[:1] == (60,) or v.shape == head.kernel.shape
    ]
    assert len(slots) >= 2
    assert {place(v) for v in slots} == {"device:CPU:0"}
    assert place(dense.kernel) == "device:CPU:1"


def main(names):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    for name in names or HEADS:
        check(HEADS[name])
        print("equal:", name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
