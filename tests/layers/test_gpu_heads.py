"""Training with the ops of the GPU: equal to training with the CPU's ops.

The GPU is emulated; tests marked `gpu` use a real one, and compare with a
process that does not see it.

Where a step draws classes, all of them are active, so that both draw the same.
"""

import functools
import os
import pickle
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support import emulated_gpu
from tests.support.cases import quick
from tfxclass import layers
from tfxclass import optimizers
from tfxclass import samplers
from tfxclass import trees

CLASSES, DIM, BATCH = 24, 8, 12

HEADS = {
    "full": lambda: layers.FullSoftmax(CLASSES, use_bias=True),
    "margin": lambda: layers.FullSoftmax(
        CLASSES, similarity=layers.Cosine(margin=0.2)
    ),
    "sampled": lambda: layers.SampledSoftmax(CLASSES, CLASSES, use_bias=True),
    "selective": lambda: layers.SelectiveSoftmax(CLASSES, CLASSES),
    "lsh": lambda: layers.LSHSoftmax(CLASSES, CLASSES),
    "projected": lambda: layers.ProjectedSoftmax(CLASSES, projection_dim=4),
    "binary tree": lambda: layers.HierarchicalSoftmax(CLASSES, tree="balanced"),
    "wide tree": lambda: layers.HierarchicalSoftmax(
        CLASSES, tree=trees.balanced(CLASSES, arity=5)
    ),
    "label tree": lambda: layers.HierarchicalSoftmax(
        CLASSES, tree="balanced", multi_label="plt"
    ),
}
QUICK = ["full", "selective", "lsh", "binary tree"]
HALF = {
    "full": lambda **o: layers.FullSoftmax(CLASSES, use_bias=True, **o),
    "cosine": lambda **o: layers.FullSoftmax(
        CLASSES, similarity=layers.Cosine(margin=0.2, scale=8.0), **o
    ),
    "sampled": lambda **o: layers.SampledSoftmax(CLASSES, CLASSES, **o),
}
OPTIMIZERS = {
    "sgd": lambda: optimizers.LazySGD(0.1, momentum=0.9, nesterov=True),
    "adagrad": lambda: optimizers.LazyAdagrad(0.1),
    "adam": lambda: optimizers.LazyAdam(0.01),
    "adamw": lambda: optimizers.LazyAdamW(0.01, weight_decay=0.1),
    "row moments": lambda: optimizers.LazyAdam(0.01, second_moment="row"),
}


def take_ways_of_a_gpu(patch):
    """In blocks of 10 classes, of which the last one has fewer."""
    patch.setattr("tfxclass.rows.exact.on_gpu", lambda device: True)
    patch.setattr("tfxclass.rows.blocks.BLOCK_LOGITS", 0)
    patch.setattr("tfxclass.rows.blocks.LEAST_BLOCK", 10)


@pytest.fixture(autouse=True)
def rows_on_a_gpu(monkeypatch):
    """The ways of a GPU, for both sides of a comparison."""
    take_ways_of_a_gpu(monkeypatch)


def trained(make_head, make_optimizer):
    """`(losses, weights, top_k)` after three epochs."""
    keras.utils.set_random_seed(3)
    head = make_head()
    model = keras.Sequential(
        [keras.Input((DIM,)), keras.layers.Dense(DIM), head]
    )
    model.compile(make_optimizer(), loss=head.loss)
    random = np.random.default_rng(1)
    x = random.normal(size=(3 * BATCH, DIM)).astype("float32")
    y = random.integers(0, CLASSES, (3 * BATCH, 2))
    y[::4, 1] = -1
    history = model.fit(
        x, y, batch_size=BATCH, epochs=3, shuffle=False, verbose=0
    )
    found = tfxclass.top_k(model, k=3).predict(x, verbose=0)
    return history.history["loss"], model.get_weights(), found


def check(make_head, make_optimizer, ops, rtol=1e-3, atol=1e-4):
    losses, weights, found = trained(make_head, make_optimizer)
    emulated_gpu.used.clear()
    with emulated_gpu.patched():
        again = trained(make_head, make_optimizer)
    assert {"Tfxclass>" + op for op in ops} <= emulated_gpu.used
    check_equal(again, (losses, weights, found), rtol, atol)


def check_equal(again, expected, rtol, atol):
    losses, weights, found = expected
    # Sums in another order, over nine steps.
    np.testing.assert_allclose(again[0], losses, rtol=rtol / 10)
    for a, b in zip(again[1], weights):
        np.testing.assert_allclose(
            a.astype("float32"), b.astype("float32"), rtol=rtol, atol=atol
        )
    np.testing.assert_array_equal(again[2][0], found[0])


HALF_TOLERANCE = {"rtol": 2.0**-7, "atol": 2.0**-9}


def half(name):
    """`(make_head, make_optimizer)` of a head of `HALF`."""
    make = functools.partial(HALF[name], kernel_dtype="bfloat16", seed=3)

    def adam():
        if name != "sampled":
            return optimizers.LazyAdam(0.01)
        return optimizers.LazyAdam(
            0.01, second_moment="row", slot_dtype="bfloat16"
        )

    return make, adam


OPS = {
    "full": [
        "SoftmaxBlockStats",
        "SoftmaxBlockGrad",
        "LazyAdamUpdate",
        "TopKBlock",
    ],
    "margin": ["SoftmaxBlockStats", "SoftmaxBlockGrad", "LazyAdamUpdate"],
    "sampled": ["ActiveClasses", "LazyAdamUpdate"],
    "selective": ["ForestQuery", "ForestAdvance", "ActiveClasses"],
    "lsh": ["LshQuery", "LshAdvance", "ActiveClasses"],
    "projected": ["SoftmaxBlockStats"],
    "binary tree": ["TreePathLoss", "TreePathGrad", "LazyAdamUpdate"],
    "wide tree": ["TreePathLoss", "TreePathGrad", "LazyAdamUpdate"],
    "label tree": ["TreePathLoss", "TreePathGrad", "LazyAdamUpdate"],
    "half full": ["SoftmaxBlockStats", "SoftmaxBlockGrad", "LazyAdamUpdate"],
    "half cosine": ["SoftmaxBlockStats", "SoftmaxBlockGrad", "LazyAdamUpdate"],
    "half sampled": ["ActiveClasses", "LazyAdamUpdate"],
}


@pytest.mark.parametrize("name", quick(HEADS, QUICK))
def test_heads(name):
    check(HEADS[name], OPTIMIZERS["adamw"], OPS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name):
    rule = {"sgd": "Sgd", "adagrad": "Adagrad"}.get(name, "Adam")
    check(HEADS["sampled"], OPTIMIZERS[name], [f"Lazy{rule}Update"])


@pytest.mark.parametrize("name", quick(HALF, ["full"]))
def test_rows_in_bfloat16(name):
    """As the CPU's, but where a number of a row is rounded the other way."""
    check(*half(name), OPS["half " + name], **HALF_TOLERANCE)


@pytest.mark.slow
def test_fewer_classes_than_all():
    """Other classes are drawn: no equality, but the loss falls as well."""
    with emulated_gpu.patched():
        losses, *_ = trained(
            lambda: layers.SampledSoftmax(
                CLASSES, sampler=samplers.LogUniformSampler(20, seed=1)
            ),
            lambda: optimizers.LazyAdam(0.05),
        )
    assert losses[-1] < 0.9 * losses[0]


ON_A_GPU = {
    **{name: (make, OPTIMIZERS["adam"]) for name, make in HEADS.items()},
    **{
        f"sampled, {name}": (HEADS["sampled"], make)
        for name, make in OPTIMIZERS.items()
    },
    **{f"half {name}": half(name) for name in HALF},
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name, tmp_path):
    """As a process trains that does not see the GPU."""
    path = tmp_path / "trained.pickle"
    script = (
        "from tests.layers import test_gpu_heads\n"
        f"test_gpu_heads.write_trained({name!r}, {str(path)!r})"
    )
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, timeout=300
    )
    # Products of the full 23 bits, as the CPU's.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        again = trained(*ON_A_GPU[name])
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(True)
    tolerance = {"rtol": 1e-3, "atol": 1e-4}
    if name.startswith("half"):
        tolerance = HALF_TOLERANCE
    check_equal(again, pickle.loads(path.read_bytes()), **tolerance)


def write_trained(name, path):
    """What `trained` returns, as a file; for a process without a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        take_ways_of_a_gpu(patch)
        with open(path, "wb") as f:
            pickle.dump(trained(*ON_A_GPU[name]), f)
