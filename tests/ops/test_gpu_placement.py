"""Where class matrices lie on a machine with a GPU (which is made up here)."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tfxclass import layers
from tfxclass import losses
from tfxclass import samplers
from tfxclass import trees
from tfxclass.ops import class_tree
from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.rows import blocks
from tfxclass.rows.class_matrix import ClassRows

HEADS = {
    "full": lambda: layers.FullSoftmax(30),
    "sampled": lambda: layers.SampledSoftmax(30, 20, use_bias=True),
    "auto": lambda: layers.SampledSoftmax(30, 20, sampler="auto"),
    "uniform": lambda: layers.SampledSoftmax(30, 20, sampler="uniform"),
    "selective": lambda: layers.SelectiveSoftmax(30, 20),
    "lsh": lambda: layers.LSHSoftmax(30, 20),
    "hierarchical": lambda: layers.HierarchicalSoftmax(30, tree="balanced"),
    "projected": lambda: layers.ProjectedSoftmax(30, projection_dim=4),
    "adaptive": lambda: layers.AdaptiveSoftmax(30, cutoffs=[10]),
    "dropmax": lambda: layers.DropMax(30),
    "sparsemax": lambda: layers.Sparsemax(30),
}


@pytest.fixture
def gpu(monkeypatch):
    """A process with a GPU; sets the CUDA that the ops were built with."""
    monkeypatch.setattr(placement, "has_gpu", lambda: True)
    placement.warn_once.cache_clear()

    def with_ops_of(cuda):
        monkeypatch.setattr(library, "cuda_version", lambda: cuda)

    yield with_ops_of
    placement.warn_once.cache_clear()


def trained(head):
    model = keras.Sequential([keras.Input((8,)), head])
    model.compile(tfxclass.optimizers.LazyAdam(0.01), loss=head.loss)
    x = np.random.default_rng(0).normal(size=(12, 8)).astype("float32")
    model.fit(x, np.arange(12), batch_size=6, epochs=1, verbose=0)
    return model


def is_on_host(variable):
    return "CPU:0" in variable.value.device


@pytest.mark.parametrize("name", quick(HEADS, ["selective"]))
def test_without_cuda_ops_rows_stay_on_the_host(gpu, name):
    gpu(None)
    with pytest.warns(UserWarning, match="built without CUDA. Fix: install"):
        head = HEADS[name]()
        trained(head)
    assert all(is_on_host(weight) for weight in head.trainable_weights)
    assert head.rows_device is not None
    with warnings.catch_warnings():  # once is enough
        warnings.simplefilter("error")
        trained(HEADS[name]())


def test_with_cuda_ops_rows_lie_where_the_step_is(gpu):
    gpu("12.5")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        head = layers.SelectiveSoftmax(30, 20)
        trained(head)
    assert head.rows_device is None
    assert head.sampler.index.device == head.kernel.value.device


def test_a_sampler_without_gpu_ops_keeps_rows_on_the_host(gpu):
    gpu("12.5")
    head = layers.SampledSoftmax(
        30, sampler=samplers.KMeansSampler(20, num_groups=4)
    )
    with pytest.warns(UserWarning, match="sampler of .* has ops for CPUs"):
        trained(head)
    assert head.rows_device is not None
    assert "CPU" in head.sampler.index.device


@pytest.mark.parametrize("head", [layers.SampledSoftmax, layers.ShardedSoftmax])
def test_an_index_on_the_host_reads_no_rows_on_a_gpu(gpu, head, monkeypatch):
    """Under a strategy, which keeps class vectors on its GPUs."""
    gpu("12.5")
    device = "/job:localhost/replica:0/task:0/device:GPU:0"
    monkeypatch.setattr(placement, "device_of", lambda variable: device)
    head = head(30, sampler=samplers.KMeansSampler(20, num_groups=4))
    with (
        pytest.warns(UserWarning, match="sampler of .* has ops for CPUs"),
        pytest.raises(ValueError, match="KMeansSampler, has its index in hos"),
    ):
        head.build((None, 8))


def test_a_sharded_head_keeps_its_rows_with_its_index(gpu):
    gpu("12.5")
    sampler = samplers.KMeansSampler(20, num_groups=4)
    head = layers.ShardedSoftmax(30, sampler=sampler)
    with pytest.warns(UserWarning, match="sampler of .* has ops for CPUs"):
        trained(head)
    assert all(is_on_host(weight) for weight in head.trainable_weights)


def test_rows_in_bfloat16_stay_on_the_host_for_an_index_alone(gpu):
    gpu("12.5")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        head = layers.SampledSoftmax(
            30, 20, sampler="uniform", kernel_dtype="bfloat16"
        )
        trained(head)
    assert head.rows_device is None
    head = layers.SelectiveSoftmax(30, 20, kernel_dtype="bfloat16")
    with pytest.warns(UserWarning, match="an index of class rows in bfloat16"):
        trained(head)
    assert head.rows_device is not None


def test_blocks_of_logits_are_larger_on_a_gpu(gpu):
    queries, kernel = tf.zeros([4096, 8]), tf.zeros([30, 8])
    here = blocks.Blocks(queries, ClassRows(kernel))
    on_host = blocks.Blocks(queries, ClassRows(kernel, device="CPU:0"))
    assert int(here.size) == 16 * int(on_host.size) == 16384
    head = layers.FullSoftmax(1_000_000)
    assert head.activation_bytes(4096, 8) == 8 * (4096 + 8) * 16384


def sparsemax_of(logits):
    targets = losses.as_targets(np.arange(5), 40)
    return losses.sparsemax_loss(logits, targets), losses.sparsemax(logits)


def probabilities_of_a_tree(logits):
    tree = trees.balanced(41)
    return class_tree.log_probabilities(logits, tree.nodes(False), 41, False)


@pytest.mark.parametrize("of", [sparsemax_of, probabilities_of_a_tree])
@pytest.mark.parametrize("device", [None, "GPU:0", "CPU:0"])
def test_ops_for_cpus_only_have_stock_ops_on_a_gpu(gpu, of, device):
    logits = np.random.default_rng(0).normal(size=(5, 40)).astype("float32")

    def values_and_gradient(logits):
        # A graph may name a device that is not here.
        with placement.on(device):
            logits = tf.identity(logits)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            values = of(logits)
        return values, tape.gradient(values, logits)

    expected = tf.nest.flatten(values_and_gradient(tf.constant(logits)))
    gpu("12.5")
    traced = tf.function(values_and_gradient).get_concrete_function(
        tf.TensorSpec(logits.shape)
    )
    ops = {each.type for each in traced.graph.get_operations()}
    assert any("fxclass" in op for op in ops) == (device == "CPU:0")
    if device != "GPU:0":
        found = tf.nest.flatten(traced(logits))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def compared(function):
    """Types of what conditions of loops compare, in a traced function."""
    graph = tf.function(function).get_concrete_function().graph.as_graph_def()
    functions = graph.library.function
    nodes = [*graph.node, *(x for f in functions for x in f.node_def)]
    conditions = {x.attr["cond"].func.name for x in nodes if "While" in x.op}
    return {
        tf.as_dtype(node.attr["T"].type)
        for function in functions
        if function.signature.name in conditions
        for node in function.node_def
        if node.op == "Less"
    }


LOOPS = {
    "evaluation": (layers.FullSoftmax, {}),
    "smoothing": (
        layers.FullSoftmax,
        {"loss_options": tfxclass.losses.LossOptions(label_smoothing=0.1)},
    ),
    "one-vs-rest": (layers.FullSoftmax, {"loss": "sigmoid"}),
    "top-k": (layers.FullSoftmax, {}),
    "dropmax": (layers.DropMax, {}),
}


@pytest.mark.parametrize("name", LOOPS)
def test_no_loop_over_blocks_counts_on_a_gpu(gpu, name, monkeypatch):
    """TensorFlow keeps int32 in the memory of the host."""
    gpu("12.5")
    monkeypatch.setattr(blocks, "LEAST_BLOCK", 10)
    monkeypatch.setattr("tfxclass.rows.exact.on_gpu", lambda device: True)
    monkeypatch.setattr(blocks, "BLOCK_LOGITS", 0)
    make, options = LOOPS[name]
    head = make(30, **options)
    head.build((None, 8))
    x = tf.zeros([12, 8])

    def run():
        if name in ("top-k", "dropmax"):
            return head.top_k(x, 3)
        return head.compute_loss(x, tf.range(12))

    assert compared(run) == {tf.int32}


def test_float64_is_refused_on_a_gpu(monkeypatch):
    monkeypatch.setattr(placement, "on_gpu", lambda device: "CPU" in device)
    variable = keras.Variable(np.ones((4, 2)), dtype="float64")
    rows = tf.IndexedSlices(tf.ones([1, 2], tf.float64), [1], [4, 2])
    message = "float64 rows on a CPU only.*CPU:0.*tf.device"
    with pytest.raises(ValueError, match=message):
        tfxclass.optimizers.LazyAdam().apply([rows], [variable])


def test_no_gpu_no_warning(monkeypatch):
    monkeypatch.setattr(placement, "has_gpu", lambda: False)
    monkeypatch.setattr(library, "cuda_version", lambda: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        head = layers.SampledSoftmax(30, 20)
        trained(head)
    assert head.rows_device is None


@pytest.mark.gpu
@pytest.mark.parametrize("name", HEADS)
def test_a_step_on_a_gpu(name, tmp_path):
    """Training, evaluation, prediction, top-k; and the same from a file."""
    assert library.cuda_version() is not None, "build the ops with nvcc"
    head = HEADS[name]()
    model = trained(head)
    assert "GPU" in head.weights[0].value.device
    x = np.random.default_rng(1).normal(size=(4, 8)).astype("float32")
    assert np.isfinite(model.evaluate(x, tf.range(4), verbose=0))
    scores = model.predict(x, verbose=0)
    found = tfxclass.top_k(model, k=3).predict(x, verbose=0)
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.models.load_model(path)
    np.testing.assert_allclose(again.predict(x, verbose=0), scores, rtol=1e-4)
    same = tfxclass.top_k(again, k=3).predict(x, verbose=0)
    np.testing.assert_array_equal(same[0], found[0])
    again.fit(x, tf.range(4), verbose=0)
