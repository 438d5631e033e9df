"""Sparsemax, its loss and its head."""

import os

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from tests.support import reference
from tests.support.cases import check_refused
from tests.support.contract import BATCH
from tests.support.contract import CLASSES
from tests.support.contract import DIM
from tests.support.contract import LONG
from tests.support.contract import TOLERANCE
from tests.support.contract import HeadContract
from tests.support.contract import built
from tests.support.contract import data
from tests.support.processes import run_code
from tfxclass import layers
from tfxclass import losses
from tfxclass.layers import sparsemax as sparsemax_layer
from tfxclass.ops import library
from tfxclass.rows import blocks

DATA = os.path.join(os.path.dirname(__file__), "..", "data")


class TestSparsemax(HeadContract):
    slow_tests = LONG

    def make_head(self, num_classes=CLASSES, **changes):
        return layers.Sparsemax(num_classes, **changes)

    def probabilities(self, logits):
        return reference.sparsemax(logits)

    def losses(self, logits, labels):
        return reference.sparsemax_loss(logits, labels)


@pytest.mark.parametrize("spread", ["narrow", "middle", "wide"])
def test_equals_tensorflow_addons(spread):
    recorded = np.load(os.path.join(DATA, "tfa_sparsemax.npz"))
    logits, targets, probabilities, their_losses, gradients = (
        recorded[f"{kind}_{spread}"]
        for kind in (
            "logits",
            "targets",
            "probabilities",
            "losses",
            "gradients",
        )
    )
    assert np.any(probabilities == 0) or spread == "narrow"
    tolerance = {"rtol": 2e-5, "atol": 2e-5}
    given = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(given)
        result = losses.sparsemax_loss(
            given, losses.as_targets(targets.argmax(axis=1), targets.shape[1])
        )
    np.testing.assert_allclose(
        losses.sparsemax(logits), probabilities, **tolerance
    )
    # Theirs subtracts squares of logits from each other in float32.
    squares = np.square(logits, dtype=np.float64).max()
    np.testing.assert_allclose(
        result, their_losses, rtol=2e-5, atol=2e-5 + 1e-6 * squares
    )
    np.testing.assert_allclose(
        tape.gradient(result, given), gradients, **tolerance
    )


# Binary fractions, so that ties are ties and shifts are exact.
ROWS = st_numpy.arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 200)),
    elements=st.integers(-4096, 4096).map(lambda x: x / 1024),
)


@given(logits=ROWS, shift=st.sampled_from([0.0, 1e4, -1e4]))
def test_is_the_projection_on_the_simplex(logits, shift):
    result = losses.sparsemax(tf.constant(logits + shift, tf.float32)).numpy()
    np.testing.assert_allclose(
        result, reference.sparsemax(logits), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(result.sum(axis=1), 1.0, rtol=1e-5)
    # Order is kept, and equals are equal.
    for row, p in zip(logits, result):
        order = np.argsort(row, kind="stable")
        assert np.all(np.diff(p[order]) >= 0)
        assert np.all(np.diff(p[order])[np.diff(row[order]) == 0] == 0)


LABELS = {
    "single": np.array([3, 0, 2, 1]),
    "multi": np.array([[3, 1], [0, 2], [2, 3], [1, 0]]),
    "padded": np.array([[3, -1, 1], [-1, -1, 2], [0, 1, 2], [-1, -1, -1]]),
    "repeated": np.array([[3, 3, 1], [2, 2, 2], [0, 1, 0], [-1, 1, 1]]),
}


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("spread", [0.1, 1.0, 30.0])
def test_loss_and_gradient(name, spread):
    random = np.random.default_rng(0)
    labels = LABELS[name]
    logits = spread * random.normal(size=(4, 11))
    upstream = random.normal(size=4)
    given = tf.constant(logits, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(given)
        result = losses.sparsemax_loss(given, losses.as_targets(labels, 11))
    np.testing.assert_allclose(
        result, reference.sparsemax_loss(logits, labels), rtol=1e-5, atol=1e-5
    )
    gradient = tape.gradient(
        result, given, output_gradients=tf.constant(upstream, tf.float32)
    )
    q = np.zeros((4, 11))
    for i, row in enumerate(labels):
        for c in (ids := reference.distinct_labels(row)):
            q[i, c] = 1 / len(ids)
    expected = upstream[:, None] * (reference.sparsemax(logits) - q)
    expected[q.sum(axis=1) == 0] = 0
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5)
    for _ in range(4):
        direction = random.normal(size=logits.shape)
        slope = reference.numeric_gradient(
            lambda z: upstream @ reference.sparsemax_loss(z, labels),
            logits,
            direction,
        )
        np.testing.assert_allclose(
            np.sum(gradient * direction), slope, rtol=1e-4, atol=1e-4
        )


def test_gradient_of_the_activation():
    random = np.random.default_rng(1)
    logits, upstream = random.normal(size=(2, 5, 9))
    given = tf.constant(logits, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(given)
        result = losses.sparsemax(given)
    gradient = tape.gradient(
        result, given, output_gradients=tf.constant(upstream, tf.float32)
    )
    for _ in range(4):
        direction = random.normal(size=logits.shape)
        slope = reference.numeric_gradient(
            lambda z: np.sum(upstream * reference.sparsemax(z)),
            logits,
            direction,
        )
        np.testing.assert_allclose(
            np.sum(gradient * direction), slope, rtol=1e-4, atol=1e-4
        )


def test_great_logits_are_safe():
    logits = tf.constant([[1e4, 1e4, -1e4], [-1e4, 1e4, 0.0], [1e4, 0.0, -1e4]])
    result = losses.sparsemax_loss(logits, losses.as_targets([0, 0, 0], 3))
    # Halves of two at the top: 1/2 (1/2 + 1) + tau' - 0 with tau' = -1/2.
    np.testing.assert_allclose(result, [0.25, 2e4, 0.0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(
        losses.sparsemax(logits), [[0.5, 0.5, 0], [0, 1, 0], [1, 0, 0]]
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infinite_and_nan_logits(dtype):
    infinity = float("inf")
    logits = tf.constant(
        [
            [0.5, -infinity, 0.0],
            [infinity, 0.0, 1.0],
            [-infinity, -infinity, -infinity],
            [0.0, float("nan"), 9.0],
        ],
        dtype,
    )
    result = losses.sparsemax(logits).numpy()
    np.testing.assert_allclose(result[0], [0.75, 0.0, 0.25])
    assert np.all(np.isnan(result[1:]))
    if dtype == "float64":
        return
    loss = losses.sparsemax_loss(logits, losses.as_targets([1, 0, 0, 0], 3))
    assert np.isposinf(loss[0]) and np.all(np.isnan(loss[1:]))


@pytest.mark.parametrize("axis", range(-3, 3))
def test_along_an_axis(axis):
    random = np.random.default_rng(3)
    logits = 2 * random.normal(size=(3, 4, 5))
    turned = np.moveaxis(logits, axis, -1)
    rows = reference.sparsemax(turned.reshape(-1, turned.shape[-1]))
    expected = np.moveaxis(rows.reshape(turned.shape), -1, axis)
    result = losses.sparsemax(logits, axis)
    assert result.dtype == tf.float64
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-14)
    of_any_rank = tf.function(
        lambda x: losses.sparsemax(x, axis),
        input_signature=[tf.TensorSpec(None, tf.float32)],
    )
    result = of_any_rank(tf.constant(logits, tf.float32))
    np.testing.assert_allclose(result, expected, **TOLERANCE)


def test_definition_in_float64():
    """max(z - tau, 0) with one tau a row, and a sum of 1, to 1e-15."""
    random = np.random.default_rng(4)
    logits = 10.0 ** random.uniform(-3, 2, size=(40, 1))
    logits = logits * random.normal(size=(40, 17))
    p = losses.sparsemax(logits).numpy()
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-13)
    for row, of_row in zip(logits, p):
        taus = row[of_row > 0] - of_row[of_row > 0]
        np.testing.assert_allclose(taus, taus[0], rtol=1e-11, atol=1e-12)
        assert np.all(row[of_row == 0] <= taus[0] + 1e-12)


def test_gradient_in_float64_along_an_axis():
    random = np.random.default_rng(5)
    logits, upstream, direction = random.normal(size=(3, 4, 6))
    given = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(given)
        result = losses.sparsemax(given, axis=0)
    gradient = tape.gradient(
        result, given, output_gradients=tf.constant(upstream)
    )
    slope = reference.numeric_gradient(
        lambda z: np.sum(upstream * reference.sparsemax(z.T).T),
        logits,
        direction,
    )
    np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-6)


def test_other_types():
    logits = tf.constant([[1.0, 1.5, -1.0]])
    for dtype in ("float16", "bfloat16"):
        result = losses.sparsemax(tf.cast(logits, dtype))
        assert result.dtype.name == dtype
        np.testing.assert_array_equal(
            tf.cast(result, tf.float32), [[0.25, 0.75, 0]]
        )
    assert losses.sparsemax([[1, 3]]).dtype == tf.float32
    assert losses.sparsemax(np.zeros([0, 3])).shape == (0, 3)


@pytest.mark.parametrize("axis", [2, -3, 0.5])
def test_no_such_axis(axis):
    check_refused(
        lambda: losses.sparsemax(tf.zeros([2, 3]), axis),
        ["`axis`", "(2, 3)", str(axis)],
    )


def test_other_ranks():
    random = np.random.default_rng(2)
    logits = random.normal(size=(2, 3, 4, 7)).astype(np.float32)
    expected = reference.sparsemax(logits.reshape(-1, 7)).reshape(logits.shape)
    result = losses.sparsemax(logits)
    assert result.shape == logits.shape
    np.testing.assert_allclose(result, expected, **TOLERANCE)
    np.testing.assert_allclose(
        losses.sparsemax(logits[0, 0, 0]), expected[0, 0, 0], **TOLERANCE
    )


INVALID_LOGITS = {
    "rank_1": (tf.zeros([3]), "rank 2"),
    "no_class": (tf.zeros([2, 0]), "must have a class. Received: shape (2, 0)"),
}


@pytest.mark.parametrize("name", INVALID_LOGITS)
def test_invalid_logits_of_the_op(name):
    logits, part = INVALID_LOGITS[name]
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)) as error:
        library.ops.tfxclass_sparsemax_threshold(logits)
    assert part in str(error.value)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_margin_is_taken_off_the_target_in_training(similarity):
    options = {"similarity": similarity}
    if similarity == "cosine":
        options["similarity"] = layers.Cosine(scale=8.0, margin=0.3)
    head = built(layers.Sparsemax(CLASSES, **options))
    x, y = data()
    logits = reference.head_logits(
        x, head.kernel.numpy(), similarity=similarity, scale=8.0
    )
    evaluated = head.compute_loss(x, y)
    np.testing.assert_allclose(
        evaluated, reference.sparsemax_loss(logits, y), **TOLERANCE
    )
    if similarity == "cosine":
        logits[np.arange(BATCH), y] -= 8.0 * 0.3
    trained = head.compute_loss(x, y, training=True)
    np.testing.assert_allclose(
        trained, reference.sparsemax_loss(logits, y), **TOLERANCE
    )


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("spread", [1e-4, 0.01, 3.0])
def test_top_k_in_blocks_where_the_support_is_wide(
    similarity, spread, monkeypatch
):
    """At the narrowest spread nearly all classes are in the support."""
    monkeypatch.setattr(blocks, "BLOCK_LOGITS", 1)
    num_classes = 2500
    options = {} if similarity == "cosine" else {"use_bias": True}
    head = layers.Sparsemax(num_classes, similarity=similarity, **options)
    head.build((None, DIM))
    random = np.random.default_rng(0)
    head.kernel.assign(random.normal(size=(num_classes, DIM)))
    bias = None
    if similarity == "dot":
        head.kernel.assign(spread * head.kernel)
        bias = spread * random.normal(size=num_classes)
        bias[7] = -np.inf
        head.bias.assign(bias)
    if similarity == "cosine":
        head.cosine = layers.Cosine(scale=spread)
    x, _ = data()
    logits = reference.head_logits(
        x, head.kernel.numpy(), bias, similarity, head.logit_scale
    )
    expected = -np.sort(-reference.sparsemax(logits), axis=1)
    weights = head.export_weights()
    export = tf.function(lambda x: head.top_k(x, 9, weights=weights))
    for _, scores in (head.top_k(x, 9), export(x)):
        np.testing.assert_allclose(
            scores, expected[:, :9], rtol=1e-4, atol=2e-6
        )
    wide = (reference.sparsemax(logits) > 0).sum(axis=1).max()
    assert (wide > sparsemax_layer._SUPPORT) == (spread < 3.0)


def test_top_k_in_an_export_has_stock_ops_only():
    head = built(layers.Sparsemax(100))
    weights = head.export_weights()
    traced = tf.function(
        lambda x: head.top_k(x, 3, weights=weights),
        [tf.TensorSpec([None, DIM])],
    ).get_concrete_function()
    graph = traced.graph.as_graph_def()
    nodes = [n.op for n in graph.node]
    nodes += [n.op for f in graph.library.function for n in f.node_def]
    assert not [op for op in nodes if "fxclass" in op]
    assert any("If" in op for op in nodes)


THREADS = """
import sys
import numpy as np
import tensorflow as tf
tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
from tfxclass import losses
logits = np.random.default_rng(0).normal(size=(64, 20_000))
loss = losses.sparsemax_loss(
    tf.constant(logits, tf.float32), losses.as_targets(np.arange(64), 20_000)
)
print("sum", loss.numpy().tobytes().hex())
"""


def test_same_result_with_one_thread_and_two():
    lines = [run_code(THREADS, count) for count in ("1", "2")]
    assert "sum" in lines[0]
    assert lines[0] == lines[1]
