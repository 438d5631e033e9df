"""Softmax cross-entropies against NumPy in float64."""

import functools
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume
from hypothesis import given
from hypothesis import strategies as st

import tfxclass
from tests.support import reference
from tfxclass import losses
from tfxclass.ops import norms
from tfxclass.rows import blocks
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.rows.loss import cross_entropy


def linear_cross_entropy(
    queries, kernel, targets, bias=None, normalize=False, margin=None
):
    """Cross-entropy over all classes, a block at a time, `[batch]`."""
    rows = ClassRows(kernel, bias, normalize)
    return cross_entropy([(queries, rows)], targets, margin=margin)


# float32 sums over some thousand classes.
TOLERANCE = {"rtol": 2e-5, "atol": 2e-5}
DIM = 6
LABELS = {
    "single": [3, 0, 2, 1],
    "multi": [[3, 1], [0, 2], [2, 3], [1, 0]],
    "padded": [[3, -1, 1], [-1, -1, 2], [0, 1, 2], [3, -1, -1]],
    "repeated": [[3, 3, 1], [2, 2, 2], [0, 1, 0], [-1, 1, 1]],
    "unlabelled": [[-1, -1], [0, 1], [-1, -1], [2, -1]],
}
MARGINS = {
    "none": (None, None),
    "cosface": (
        functools.partial(losses.cosface, margin=0.35, scale=16.0),
        lambda logit: 16.0 * reference.cosface(logit / 16.0, 0.35),
    ),
    "arcface": (
        functools.partial(losses.arcface, margin=0.5, scale=16.0),
        lambda logit: 16.0 * reference.arcface(logit / 16.0, 0.5),
    ),
}


def labels_of(name, num_classes, seed=0):
    """The table's labels, spread over all classes, ends included."""
    random = np.random.default_rng(seed)
    spread = np.concatenate(
        [[0, num_classes - 1], random.permutation(num_classes - 2)[:2] + 1]
    )
    labels = np.array(LABELS[name])
    return np.where(labels >= 0, spread[labels], -1).astype(np.int64)


def case(num_classes, seed=0, batch=4):
    random = np.random.default_rng(seed)
    queries = random.normal(size=(batch, DIM)).astype(np.float32)
    kernel = random.normal(size=(num_classes, DIM)).astype(np.float32)
    bias = random.normal(size=num_classes).astype(np.float32)
    return queries, kernel, bias


def upstream_of(batch, seed=5):
    return np.random.default_rng(seed).normal(size=batch).astype(np.float32)


def check_gradient(gradient, function, x, seed=7):
    """`gradient` against finite differences in float64, in some directions."""
    random = np.random.default_rng(seed)
    gradient = np.asarray(gradient, np.float64)
    x = np.asarray(x, np.float64)
    for _ in range(4):
        # A few coordinates, so that one that is wrong is not drowned.
        direction = random.normal(size=x.shape)
        direction *= random.random(x.shape) < max(0.02, 4 / x.size)
        expected = reference.numeric_gradient(function, x, direction)
        result = np.sum(gradient * direction)
        np.testing.assert_allclose(result, expected, rtol=2e-4, atol=2e-4)


def twin_gradient(queries, kernel, bias, labels, upstream, normalize, adjust):
    """Gradients by TensorFlow's own differentiation, all in float64."""
    as64 = functools.partial(tf.constant, dtype=tf.float64)
    inputs = [as64(queries), as64(kernel), as64(bias)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        rows = inputs[1]
        if normalize:
            rows = tf.math.l2_normalize(rows, axis=1)
        logits = tf.matmul(inputs[0], rows, transpose_b=True) + inputs[2]
        total = 0.0
        for i, labels_of_row in enumerate(np.atleast_2d(labels.T).T):
            ids = reference.distinct_labels(labels_of_row)
            if not ids:
                continue
            at = tf.gather(logits[i], ids)
            moved = at if adjust is None else adjust(at)
            row = tf.tensor_scatter_nd_update(
                logits[i], np.array(ids)[:, None], moved
            )
            loss = tf.reduce_logsumexp(row) - tf.reduce_mean(moved)
            total += float(upstream[i]) * loss
    return [g.numpy() for g in tape.gradient(total, inputs)]


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("margin", MARGINS)
def test_softmax_cross_entropy(name, margin):
    logits = tf.constant(8 * np.random.default_rng(1).normal(size=(4, 37)))
    logits = tf.cast(logits, tf.float32)
    labels = labels_of(name, 37)
    ours, adjust = MARGINS[margin]
    upstream = upstream_of(4)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        loss = losses.softmax_cross_entropy(
            logits, losses.as_targets(labels, 37), ours
        )
    np.testing.assert_allclose(
        loss, reference.cross_entropy(logits, labels, adjust), **TOLERANCE
    )
    check_gradient(
        tape.gradient(loss, logits, output_gradients=upstream),
        lambda x: upstream @ reference.cross_entropy(x, labels, adjust),
        logits,
    )


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize(
    ("normalize", "with_bias"), [(False, True), (True, False), (True, True)]
)
@pytest.mark.parametrize(
    ("margin", "block_logits"),
    [("none", 1 << 21), ("none", 1), ("cosface", 4 * 1500), ("arcface", 1)],
)
def test_linear_cross_entropy(
    monkeypatch, name, normalize, with_bias, margin, block_logits
):
    monkeypatch.setattr(blocks, "BLOCK_LOGITS", block_logits)
    num_classes = 2503
    queries, kernel, bias = case(num_classes)
    labels = labels_of(name, num_classes)
    ours, _ = MARGINS[margin]
    upstream = upstream_of(4)
    inputs = [tf.constant(x) for x in (queries, kernel, bias)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = linear_cross_entropy(
            inputs[0],
            inputs[1],
            losses.as_targets(labels, num_classes),
            bias=inputs[2] if with_bias else None,
            normalize=normalize,
            margin=ours,
        )
    rows = reference.normalized(kernel) if normalize else kernel
    logits = queries.astype(np.float64) @ rows.T.astype(np.float64)
    if with_bias:
        logits += bias
    expected = reference.cross_entropy(logits, labels, MARGINS[margin][1])
    np.testing.assert_allclose(loss, expected, **TOLERANCE)
    gradients = tape.gradient(loss, inputs, output_gradients=upstream)
    twins = twin_gradient(
        queries,
        kernel,
        bias if with_bias else 0 * bias,
        labels,
        upstream,
        normalize,
        ours,
    )
    for gradient, twin in list(zip(gradients, twins))[: 2 + with_bias]:
        np.testing.assert_allclose(gradient, twin, **TOLERANCE)


@given(
    seed=st.integers(0, 10**6),
    batch=st.integers(0, 6),
    num_classes=st.integers(1, 40),
    width=st.integers(1, 4),
)
def test_any_labels(seed, batch, num_classes, width):
    random = np.random.default_rng(seed)
    labels = random.integers(-1, num_classes, size=(batch, width))
    assume(set(labels.flat) != {0, 1})  # They look like one-hot rows.
    queries, kernel, _ = case(num_classes, seed, batch)
    loss = linear_cross_entropy(
        queries, tf.constant(kernel), losses.as_targets(labels, num_classes)
    )
    expected = reference.cross_entropy(
        reference.head_logits(queries, kernel), labels
    )
    np.testing.assert_allclose(loss, expected, **TOLERANCE)


def test_finite_differences_agree_with_the_twin():
    """The float64 twin of these tests against NumPy alone."""
    queries, kernel, bias = case(12)
    labels, upstream = labels_of("padded", 12), upstream_of(4)
    margin, adjust = MARGINS["arcface"]
    twins = twin_gradient(queries, kernel, bias, labels, upstream, True, margin)

    def loss_of(kernel):
        logits = queries @ reference.normalized(kernel).T + bias
        return upstream @ reference.cross_entropy(logits, labels, adjust)

    check_gradient(twins[1], loss_of, kernel)


def test_as_targets_pads_weighs_and_drops_repeats():
    targets = losses.as_targets([[4, 4, 1], [-1, 2, -1], [-1, -1, -1]], 5)
    assert targets.ids.numpy().tolist() == [
        [4, -1, 1],
        [-1, 2, -1],
        [-1, -1, -1],
    ]
    assert targets.weights.numpy().tolist() == [
        [0.5, 0.0, 0.5],
        [0.0, 1.0, 0.0],
        [0.0, 0.0, 0.0],
    ]
    assert targets.is_labelled.numpy().tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
def test_labels_of_any_integer_type(dtype):
    targets = losses.as_targets(np.array([0, 3], dtype), 4)
    assert targets.ids.dtype == tf.int64
    assert targets.ids.numpy().tolist() == [[0], [3]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_floats_that_are_whole_are_ids(dtype):
    for labels in ([3, 0, 9, -1], [[3, -1], [0, 1], [9, 2], [-1, -1]]):
        targets = losses.as_targets(np.array(labels, dtype), 10)
        expected = losses.as_targets(labels, 10)
        assert targets.ids.numpy().tolist() == expected.ids.numpy().tolist()


@pytest.mark.parametrize(
    ("dtype", "num_classes"), [("float16", 2049), ("float32", 2**24 + 1)]
)
def test_floats_of_too_many_classes(dtype, num_classes):
    labels = np.array([1, 2], dtype)
    with pytest.raises(ValueError, match=f"{dtype} with num_classes="):
        losses.as_targets(labels, num_classes)
    assert losses.as_targets(labels, num_classes - 1).ids.shape == (2, 1)


def test_ids_past_the_integers_of_float32():
    targets = losses.as_targets([16_777_217], 20_000_000)
    assert int(targets.ids[0, 0]) == 16_777_217


BAD_LABELS = {
    "float": (
        np.array([1.0, 2.5]),
        tf.errors.InvalidArgumentError,
        ["must be integer class ids", "dtype=float64", "argmax", "2.5"],
    ),
    "nan": (
        np.array([1.0, np.nan], "float32"),
        tf.errors.InvalidArgumentError,
        ["must be integer class ids", "missing labels are -1", "nan"],
    ),
    "float_one_hot": (
        np.eye(2, dtype="float32"),
        tf.errors.InvalidArgumentError,
        ["one-hot"],
    ),
    "bool": (np.array([True]), ValueError, ["must be integer", "bool"]),
    "rank_0": (np.array(3), ValueError, ["[batch, p]", "shape ()"]),
    "rank_3": (
        np.zeros((2, 1, 1), int),
        ValueError,
        ["[batch, p]", "shape (2, 1, 1)"],
    ),
    "too_great": (
        np.array([0, 10]),
        tf.errors.InvalidArgumentError,
        ["ids from 0 to 9", "num_classes=10", "10"],
    ),
    "negative": (
        np.array([[0, -2]]),
        tf.errors.InvalidArgumentError,
        ["-1 for padding", "-2"],
    ),
}


@pytest.mark.parametrize("name", BAD_LABELS)
@pytest.mark.parametrize("in_function", [False, True])
def test_bad_labels(name, in_function):
    labels, kind, parts = BAD_LABELS[name]

    def ids_of():
        return losses.as_targets(labels, 10).ids

    with pytest.raises(kind) as error:
        tf.function(ids_of)() if in_function else ids_of()
    for part in parts:
        assert part in str(error.value)


def test_margins_take_the_target_down_and_only_down():
    logits = tf.constant([np.linspace(-24, 24, 201)], tf.float32)
    for margin, scalar in (
        (losses.cosface, reference.cosface),
        (losses.arcface, reference.arcface),
    ):
        moved = margin(logits, margin=0.4, scale=24.0).numpy()
        expected = [24 * scalar(x / 24, 0.4) for x in logits.numpy()[0]]
        # arccos loses half of the digits near 1.
        np.testing.assert_allclose(moved[0], expected, rtol=1e-4, atol=1e-3)
        assert np.all(moved <= logits.numpy())
        assert np.all(np.diff(moved[0]) > 0)


def test_gradient_of_arcface_is_finite_at_the_ends():
    logits = tf.constant([[-16.0, 16.0, 0.0]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        moved = losses.arcface(logits, margin=0.5, scale=16.0)
    assert np.all(np.isfinite(tape.gradient(moved, logits)))


EXTREME = {"great": 1e4, "low": -1e4, "minus_infinity": -float("inf")}


@pytest.mark.parametrize("name", EXTREME)
@pytest.mark.parametrize("labels", [[1, 1], [[1, -1], [2, 1]]])
def test_extreme_bias_of_a_class_that_is_no_label(name, labels):
    """Class 0 is also where padding is gathered from."""
    queries, kernel, bias = case(5, batch=2)
    bias[0] = EXTREME[name]
    labels = np.array(labels)
    inputs = [tf.constant(x) for x in (queries, kernel, bias)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = linear_cross_entropy(
            inputs[0], inputs[1], losses.as_targets(labels, 5), bias=inputs[2]
        )
    logits = reference.head_logits(queries, kernel, bias)
    expected = reference.cross_entropy(logits, labels)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    for gradient in tape.gradient(loss, inputs):
        assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("labels", [[1, 2], [[1, -1], [2, 3]]])
def test_nan_features_give_a_nan_loss_of_their_row_alone(labels):
    queries, kernel, _ = case(3000, batch=2)
    queries[0, 1] = float("nan")
    targets = losses.as_targets(labels, 3000)
    loss = linear_cross_entropy(queries, tf.constant(kernel), targets)
    assert np.isnan(loss[0]) and np.isfinite(loss[1])


def test_zero_rows_and_queries_under_cosine():
    queries, kernel, _ = case(2503)
    kernel[[0, 1500]] = 0.0
    queries[1] = 0.0
    inputs = [tf.constant(queries), tf.constant(kernel)]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = linear_cross_entropy(
            *inputs, losses.as_targets([0, 1, 2, 1500], 2503), normalize=True
        )
    logits = queries @ reference.normalized(kernel).T
    expected = reference.cross_entropy(logits, [[0], [1], [2], [1500]])
    np.testing.assert_allclose(loss, expected, **TOLERANCE)
    for gradient in tape.gradient(loss, inputs):
        assert np.all(np.isfinite(gradient))


SCALE = 64.0


def cosine_gradients(length):
    """Of the loss by features and class rows of that length, `[batch, DIM]`."""
    queries, kernel, _ = case(50)
    inputs = [
        tf.constant(length * reference.normalized(x), tf.float32)
        for x in (queries, kernel)
    ]
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = linear_cross_entropy(
            SCALE * norms.normalize(inputs[0]),
            inputs[1],
            losses.as_targets([0, 1, 2, 3], 50),
            normalize=True,
        )
    return tape.gradient(loss, inputs)


@pytest.mark.parametrize("length", [0.0, 1e-20, 1e-9])
def test_gradients_of_vectors_without_a_direction_are_bounded(length):
    """A unit logit gradient has at most length 2, and those here SCALE times
    that, over the least norm."""
    bound = 2 * SCALE / norms.EPSILON**0.5
    for gradient in cosine_gradients(length):
        assert np.all(np.linalg.norm(gradient, axis=1) <= bound)


@pytest.mark.parametrize("training", [True, False])
def test_zero_features_of_a_cosine_head(training):
    head = tfxclass.layers.FullSoftmax(
        50, similarity=tfxclass.layers.Cosine(scale=SCALE)
    )
    features = tf.Variable(np.zeros((4, DIM), np.float32))
    head.build(features.shape)
    with tf.GradientTape() as tape:
        loss = head.compute_loss(features, [0, 1, 2, 3], training=training)
    bound = 2 * SCALE / norms.EPSILON**0.5
    lengths = np.linalg.norm(tape.gradient(loss, features), axis=1)
    assert np.all((0 < lengths) & (lengths <= bound))


@pytest.mark.parametrize("length", [1e-5, 0.9e-3, 1.1e-3, 0.1, 3.0])
def test_streamed_gradient_of_rows_of_any_length(length):
    """Both sides of the least norm, against TensorFlow's own gradient."""
    queries, kernel, _ = case(50)
    rows = tf.constant(length * reference.normalized(kernel), tf.float32)
    queries, labels = tf.constant(SCALE * queries), [0, 1, 2, 3]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(rows)
        found = linear_cross_entropy(
            queries, rows, losses.as_targets(labels, 50), normalize=True
        )
        logits = tf.matmul(queries, norms.normalize(rows), transpose_b=True)
        expected = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels, logits
        )
    np.testing.assert_allclose(found, expected, **TOLERANCE)
    scale = SCALE / max(length, 1e-3)
    # A logit, of DIM products with a unit row, is off by up to (DIM + 2) eps of
    # its query's norm; a probability by half of that, on either side. A row's
    # gradient sums probabilities times queries, here of norms by SCALE.
    sizes = np.linalg.norm(queries, axis=1) / SCALE
    eps = np.finfo(np.float32).eps
    each = (DIM + 2) * SCALE * sizes + 2 * (DIM + len(sizes))
    np.testing.assert_allclose(
        tape.gradient(found, rows) / scale,
        tape.gradient(expected, rows) / scale,
        atol=eps * np.sum(sizes * each),
    )


def test_normalize_and_its_inverse_norms_agree():
    vectors = np.random.default_rng(0).normal(size=(6, DIM))
    vectors *= [[0.0], [1e-7], [0.99e-3], [1.01e-3], [1.0], [1e6]]
    vectors = tf.constant(vectors, tf.float32)
    found = norms.normalize(vectors)
    np.testing.assert_allclose(
        found, vectors * norms.inverse_norms(vectors)[:, None], rtol=1e-6
    )
    np.testing.assert_allclose(
        np.linalg.norm(found[-2:], axis=1), 1.0, rtol=1e-6
    )


def penalty(source):
    """The squared norm of a gradient, differentiated once more."""
    queries, kernel, bias = map(tf.constant, case(3000))
    inputs = {"queries": queries, "kernel": kernel, "bias": bias}
    with tf.GradientTape() as outer:
        outer.watch(inputs)
        with tf.GradientTape() as inner:
            inner.watch(inputs)
            loss = linear_cross_entropy(
                queries, kernel, losses.as_targets([0, 1, 2, 3], 3000), bias
            )
        gradient = inner.gradient(loss, inputs[source])
        norm = tf.reduce_sum(gradient**2)
    return outer.gradient(norm, queries)


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
@pytest.mark.parametrize("source", ["queries", "kernel", "bias"])
def test_second_order_gradients_are_refused(source, wrap):
    with pytest.raises(ValueError, match="first-order gradients only"):
        wrap(penalty)(source)


def test_the_same_in_a_function_with_unknown_batch():
    queries, kernel, _ = case(2503)
    labels = labels_of("padded", 2503)

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, DIM]),
            tf.TensorSpec([None, None], tf.int64),
        ]
    )
    def traced(queries, labels):
        targets = losses.as_targets(labels, 2503)
        return linear_cross_entropy(queries, tf.constant(kernel), targets)

    eager = linear_cross_entropy(
        queries, tf.constant(kernel), losses.as_targets(labels, 2503)
    )
    np.testing.assert_allclose(traced(queries, labels), eager, rtol=1e-6)
    assert traced(queries[:0], labels[:0]).shape == [0]


MEMORY = """
import resource
import tensorflow as tf
from tfxclass import losses
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.rows.loss import cross_entropy

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def step(classes):
    queries = tf.random.stateless_normal([256, 32], [1, 2])
    kernel = tf.random.stateless_normal([classes, 32], [3, 4])
    with tf.GradientTape() as tape:
        tape.watch([queries, kernel])
        targets = losses.as_targets(tf.range(256), classes)
        loss = cross_entropy([(queries, ClassRows(kernel))], targets)
    return tape.gradient(loss, [queries, kernel])

step(20_000)
before = peak()
step(200_000)
print("grown", peak() - before)
"""


@pytest.mark.slow
def test_memory_is_far_below_the_matrix_of_logits():
    """[256, 200,000] logits take 195 MiB, and their gradient as much again.

    The class matrix and its gradient are 24 MiB each, twice that while they are
    made; the library behind the products (oneDNN or Eigen) has its own buffers.
    """
    done = subprocess.run(
        [sys.executable, "-c", MEMORY],
        capture_output=True,
        text=True,
        check=True,
    )
    grown = float(done.stdout.split("grown")[1])
    assert grown < 195, f"{grown:.0f} MiB"
