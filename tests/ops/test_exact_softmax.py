"""The exact softmax in two passes, and optimizer steps class by class."""

import collections
import functools
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support.cases import quick
from tests.support.error_bounds import EPSILON
from tfxclass.ops import exact_softmax
from tfxclass.ops.library import ops
from tfxclass.rows import class_gradients
from tfxclass.rows import exact_blocks
from tfxclass.rows import loss as rows_loss
from tfxclass.rows.blocks import Blocks
from tfxclass.rows.class_matrix import ClassRows

layers, optimizers = tfxclass.layers, tfxclass.optimizers
CLASSES, DIM, BATCH = 777, 20, 70


def drawn(seed, batch, classes, dim, width, normalize=False, dtype="float32"):
    """Arguments of the ops, float32 arrays, and the rows as they count."""
    random = np.random.default_rng(seed)

    def floats(*shape):
        return random.normal(size=shape).astype(np.float32)

    ids = np.stack(
        [random.permutation(max(classes, width))[:width] for _ in range(batch)]
    )
    ids = np.where((random.random(ids.shape) < 0.7) & (ids < classes), ids, -1)
    kernel = tf.cast(floats(classes, dim), dtype)
    rows = np.asarray(tf.cast(kernel, tf.float64))
    if normalize:
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    values = floats(batch, width)
    return floats(batch, dim), kernel, floats(classes), ids, values, rows


SIZES = [(1, 1, 1, 1), (33, 50, 7, 2), (300, 700, 40, 1), (5, 260, 130, 3)]
# Widths that GPUs compute in blocks.
WIDTHS = [(6, 150, dim, 2) for dim in (8, 128, 200, 768, 1024)]


@pytest.fixture(params=[None, 1024, 64], ids=["op", "one block", "blocks"])
def block(request):
    """By the op, in a block of all classes, in blocks of 64."""
    return request.param


def sums(
    queries, kernel, bias, ids, deltas, epsilon, block, narrow=False, kept=0
):
    """What `sums` returns, by the op or in blocks."""
    if block is not None:
        rows = ClassRows(kernel, bias, epsilon > 0)
        blocks = Blocks(tf.constant(queries), rows, size=block)
        return exact_blocks.sums(blocks, ids, deltas, True, narrow)
    return exact_softmax.sums(
        queries,
        kernel,
        bias,
        ids,
        deltas,
        epsilon=epsilon,
        wants_rows=True,
        kept_bytes=kept,
        bfloat16_products=narrow,
    )


def gradient_of(*inputs, block, **options):
    kind = exact_softmax.ClassGradient
    kind = kind if block is None else exact_blocks.BlockGradient
    return kind(*inputs, block=block, **options)


def assert_sums(found, queries, rows, bias, ids, deltas, rounding=0.0):
    """What `sums` returned is what NumPy finds for these numbers.

    Args:
        rounding: float, relative error of a weight in the sum of the rows.
    """
    top, total, of_rows = map(np.asarray, found[:3])
    logits = queries.astype(np.float64) @ rows.T + bias
    batch, targets = np.nonzero(ids >= 0)[0], ids[ids >= 0]
    logits[batch, targets] += deltas[ids >= 0]
    weights = np.exp(logits - top[:, None])
    sums = weights.sum(axis=1)
    # An exponential is off by its logit's error and 3 roundings; the terms are
    # added one by one at worst.
    size_of = np.abs(queries) @ np.abs(rows).T + np.abs(bias)
    of_logit = (2 * queries.shape[1] + 8) * EPSILON * size_of.max(axis=1)
    bound = (of_logit + (len(rows) + 8) * EPSILON) * sums
    assert np.all(np.abs(total - sums) <= bound)
    weights[batch, targets] = 0
    bound = (bound + rounding * sums)[:, None] * np.abs(rows).max()
    assert np.all(np.abs(of_rows - weights @ rows) <= bound + 1e-30)


@pytest.mark.parametrize("size", [*SIZES, *WIDTHS])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_are_those_of_numpy(size, normalize, dtype, block):
    queries, kernel, bias, ids, deltas, rows = drawn(0, *size, normalize, dtype)
    epsilon = 1e-6 if normalize else 0.0
    found = sums(queries, kernel, bias, ids, deltas, epsilon, block)
    assert_sums(found, queries, rows, bias, ids, deltas)


def test_sums_where_all_logits_are_infinite(block):
    """Masked classes, in all blocks or in the first ones; and a NaN."""
    queries = tf.constant([[1.0, 0.0], [0.0, 1.0]])
    kernel = tf.ones([150, 2])
    deltas, ids = tf.zeros([2, 1]), tf.fill([2, 1], tf.constant(-1, tf.int64))

    def found(bias):
        bias = bias.astype(np.float32)
        return sums(queries, kernel, bias, ids, deltas, 0.0, block)

    bias = np.full(150, -np.inf)
    top, total, rows, *_ = found(bias)
    assert np.all(top == -np.inf)
    np.testing.assert_array_equal(total, [0, 0])
    np.testing.assert_array_equal(rows, np.zeros((2, 2)))
    bias[140:] = 2.0
    top, total, rows, *_ = found(bias)
    np.testing.assert_allclose(top, [3, 3])
    np.testing.assert_allclose(total, [10, 10])
    np.testing.assert_allclose(rows, np.full((2, 2), 10.0))
    bias[70] = np.nan
    assert np.all(np.isnan(found(bias)[1]))


@pytest.mark.parametrize("size", [*SIZES, *WIDTHS])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(
    ("block", "most"), [(None, 0), (None, 2**30), (1024, 0), (64, 0)]
)
def test_gradients_are_those_of_numpy(size, normalize, block, most):
    queries, kernel, bias, ids, values, rows = drawn(1, *size, normalize)
    epsilon = 1e-6 if normalize else 0.0
    first = sums(queries, kernel, bias, ids, values, epsilon, block, kept=most)
    kept = first[3:]
    assert any(map(len, kept)) == (most > 0)
    random = np.random.default_rng(2)
    factor = random.normal(size=size[0]).astype(np.float32)
    logits = queries.astype(np.float64) @ rows.T + bias
    logsumexp = np.log(np.exp(logits).sum(axis=1))
    uniform = 0.25
    gradient = gradient_of(
        queries,
        bias,
        ids,
        values,
        logsumexp.astype(np.float32),
        factor,
        uniform,
        epsilon,
        block=block,
        kept=kept,
    )
    of_kernel, of_bias = gradient.dense(kernel)
    expected = factor[:, None] * np.exp(logits - logsumexp[:, None])
    batch, targets = np.nonzero(ids >= 0)[0], ids[ids >= 0]
    expected[batch, targets] = values[ids >= 0]
    expected -= uniform * factor[:, None]
    sizes = np.abs(expected) + np.abs(factor)[:, None]
    # As above; the log-sum-exp is rounded to float32.
    of_logit = 2 * size[2] + 8 + np.abs(logsumexp).max()
    relative = (of_logit * (1 + np.abs(logits).max()) + size[0]) * EPSILON
    np.testing.assert_array_less(
        np.abs(of_bias - expected.sum(axis=0)),
        relative * sizes.sum(axis=0) + 1e-30,
    )
    of_rows = expected.T @ queries
    bound = relative * (sizes.T @ np.abs(queries))
    if normalize:
        norms = np.linalg.norm(kernel, axis=1, keepdims=True)
        along = (of_rows * rows).sum(axis=1, keepdims=True)
        of_rows = (of_rows - along * rows) / norms
        bound = 4 * size[2] * bound.max(axis=1, keepdims=True) / norms
    assert np.all(np.abs(of_kernel - of_rows) < bound + 1e-30)


@pytest.mark.parametrize("batch", [32, 33])
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("most", [0, 2**20])
def test_what_pads_a_batch_gives_no_nan(batch, narrow, most):
    """An exponential past float32, and a row that is not finite."""
    kernel = np.zeros((4, 3), np.float32)
    kernel[1, 0] = -np.inf
    queries = np.ones((batch, 3), np.float32)
    bias = np.array([0, 0, 89.3, 266.7], np.float32)
    given = queries, bias, np.full((batch, 1), -1), np.zeros((batch, 1), "f4")
    *_, exponentials, shifts = sums(
        given[0], kernel, *given[1:], 0.0, None, narrow, most
    )
    gradient = exact_softmax.ClassGradient(
        *given,
        np.full(batch, 266.7, np.float32),
        np.ones(batch, np.float32),
        bfloat16_products=narrow,
        kept=[exponentials, shifts],
    )
    of_kernel, of_bias = gradient.dense(kernel)
    expected = np.array([0, 0, 0, batch])
    np.testing.assert_allclose(of_bias, expected, rtol=1e-5)
    np.testing.assert_allclose(
        of_kernel, np.repeat(expected[:, None], 3, 1), rtol=1e-5
    )


needs_amx = pytest.mark.skipif(
    not exact_softmax.multiplies_bfloat16(),
    reason="products are float32 on processors without AMX",
)


SMALL_STACK = """
import ctypes
import numpy as np
from tfxclass.ops import exact_softmax

class Stack(ctypes.Structure):
    _fields_ = [("place", ctypes.c_void_p), ("flags", ctypes.c_int),
                ("size", ctypes.c_size_t)]

room = ctypes.create_string_buffer(8192)
stack = Stack(ctypes.addressof(room), 0, len(room))
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(stack), None) == 0
print(exact_softmax.multiplies_bfloat16())
"""


@needs_amx
def test_where_linux_refuses_amx_all_know_it():
    """It does where a thread has a small alternate stack of signals."""
    done = subprocess.run(
        [sys.executable, "-c", SMALL_STACK], capture_output=True, text=True
    )
    assert done.stdout.split() == ["False"], done.stderr


def rounded(numbers):
    return np.asarray(tf.cast(tf.cast(numbers, "bfloat16"), "float64"))


@pytest.mark.parametrize("size", [(33, 150, 7, 2), *WIDTHS])
@pytest.mark.parametrize("normalize", [False, True])
def test_bfloat16_products_of_blocks(size, normalize):
    """Logits are exact; other factors and sums have eight bits."""
    queries, kernel, bias, ids, values, rows = drawn(
        3, *size, normalize, "bfloat16"
    )
    queries = rounded(queries / np.sqrt(size[2])).astype(np.float32)
    epsilon = 1e-6 if normalize else 0.0
    found = sums(queries, kernel, bias, ids, values, epsilon, 64, narrow=True)
    # A weight, its row where that is normalized, and a block's sum are rounded;
    # TensorFlow rounds sums to two units of the last place on a CPU.
    assert_sums(found, queries, rows, bias, ids, values, 2**-6)
    logits = queries.astype(np.float64) @ rows.T + bias
    logsumexp = np.log(np.exp(logits).sum(axis=1))
    factor = np.random.default_rng(4).normal(size=size[0]).astype(np.float32)
    gradient = gradient_of(
        tf.constant(queries),
        bias,
        ids,
        values,
        logsumexp.astype(np.float32),
        factor,
        epsilon=epsilon,
        bfloat16_products=True,
        block=64,
    )
    of_kernel, of_bias = gradient.dense(kernel)
    expected = factor[:, None] * np.exp(logits - logsumexp[:, None])
    expected[np.nonzero(ids >= 0)[0], ids[ids >= 0]] = values[ids >= 0]
    bound = 2**-8 * np.abs(expected).sum(axis=0)
    assert np.all(np.abs(of_bias - expected.sum(axis=0)) <= bound)
    of_rows = expected.T @ queries
    bound = 2**-6 * (np.abs(expected).T @ np.abs(queries))
    if normalize:
        stored = np.asarray(tf.cast(kernel, "float64"))
        norms = np.linalg.norm(stored, axis=1, keepdims=True)
        along = (of_rows * rows).sum(axis=1, keepdims=True)
        of_rows = (of_rows - along * rows) / norms
        bound = 2 * np.linalg.norm(bound, axis=1, keepdims=True) / norms
    assert np.all(np.abs(of_kernel - of_rows) <= bound + 1e-30)


@needs_amx
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sums_of_bfloat16_products(size, normalize, dtype):
    queries, kernel, bias, ids, deltas, _ = drawn(3, *size, dtype=dtype)
    plain = np.asarray(tf.cast(kernel, "float64"))
    norms = np.linalg.norm(plain, axis=1, keepdims=True) if normalize else 1.0
    found = exact_softmax.sums(
        queries,
        kernel,
        bias,
        ids,
        deltas,
        epsilon=1e-6 if normalize else 0.0,
        wants_rows=True,
        bfloat16_products=True,
    )
    rows = rounded(kernel) / norms
    # A weight, over its row's norm, is rounded to eight bits, too.
    assert_sums(found, rounded(queries), rows, bias, ids, deltas, 2**-8)


@needs_amx
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_of_bfloat16_products(size, dtype):
    queries, kernel, bias, ids, values, _ = drawn(3, *size, dtype=dtype)
    logits = rounded(queries) @ rounded(kernel).T + bias
    logsumexp = np.log(np.exp(logits).sum(axis=1))
    factor = np.random.default_rng(4).normal(size=size[0]).astype(np.float32)
    gradient = exact_softmax.ClassGradient(
        queries,
        bias,
        ids,
        values,
        logsumexp.astype(np.float32),
        factor,
        bfloat16_products=True,
    )
    of_kernel, _ = gradient.dense(kernel)
    expected = factor[:, None] * np.exp(logits - logsumexp[:, None])
    expected[np.nonzero(ids >= 0)[0], ids[ids >= 0]] = values[ids >= 0]
    bound = 2**-8 * (np.abs(expected).T @ np.abs(queries))
    error = np.abs(of_kernel - expected.T @ rounded(queries))
    assert np.all(error <= bound + 1e-30)


@needs_amx
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_mixed_policy_multiplies_bfloat16(similarity):
    """A loss of one class is 0: logits of targets are rounded like others."""
    options = {"similarity": layers.Cosine(scale=20)}
    head = layers.FullSoftmax(
        1, dtype="mixed_bfloat16", **(options if similarity == "cosine" else {})
    )
    x = tf.random.normal([9, DIM])
    head.build(x.shape)
    with tf.GradientTape() as tape:
        loss = head.compute_loss(x, tf.zeros([9], tf.int64))
    np.testing.assert_allclose(loss, np.zeros(9), atol=2**-18)
    gradient = tf.convert_to_tensor(tape.gradient(loss, head.kernel))
    np.testing.assert_allclose(gradient, np.zeros([1, DIM]), atol=2**-8)


@needs_amx
@pytest.mark.parametrize(
    "head",
    [
        functools.partial(layers.FullSoftmax, 400),
        functools.partial(layers.ShardedSoftmax, 400),
        functools.partial(layers.AdaptiveSoftmax, 400, [100, 200]),
        functools.partial(
            layers.DifferentiatedSoftmax, 400, [(100, 12), (300, 8)]
        ),
    ],
)
def test_mixed_policy_stays_near_float32(head):
    x, y = tf.random.normal([50, DIM], seed=1), 8 * tf.range(50, dtype=tf.int64)
    found = []
    for policy in ("float32", "mixed_bfloat16"):
        keras.utils.set_random_seed(0)
        made = head(dtype=policy)
        made.build(x.shape)
        with tf.GradientTape() as tape:
            loss = made.compute_loss(x, y)
        found.append([loss, *tape.gradient(loss, made.trainable_weights)])
    for plain, mixed in zip(
        *map(lambda n: map(tf.convert_to_tensor, n), found)
    ):
        scale = np.max(np.abs(plain))
        # Sums of products of two roundings of 2^-9.
        np.testing.assert_allclose(mixed, plain, atol=2**-6 * scale)
        assert np.any(np.asarray(mixed) != np.asarray(plain))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("queries` must have rank", {"queries": np.zeros(3, np.float32)}),
        (
            "queries` must have 1",
            {
                "queries": np.zeros((2, 0), np.float32),
                "kernel": np.zeros((3, 0), np.float32),
            },
        ),
        ("kernel must have shape", {"kernel": np.zeros((3, 5), np.float32)}),
        ("targets", {"targets": np.zeros((3, 1), np.int64)}),
        ("deltas", {"deltas": np.zeros((2, 2), np.float32)}),
        ("bias` must be one", {"bias": [np.zeros(3, np.float32)] * 2}),
        ("bias", {"bias": [np.zeros(4, np.float32)]}),
        ("epsilon", {"epsilon": -1.0}),
    ],
)
def test_bad_arguments(name, changes):
    arguments = {
        "queries": np.zeros((2, 4), np.float32),
        "kernel": np.zeros((3, 4), np.float32),
        "bias": [],
        "targets": np.zeros((2, 1), np.int64),
        "deltas": np.zeros((2, 1), np.float32),
        "epsilon": 0.0,
        "wants_rows": True,
    }
    with pytest.raises(tf.errors.InvalidArgumentError, match=name):
        ops.tfxclass_exact_softmax(**{**arguments, **changes})


def test_what_was_kept_of_another_batch_is_refused():
    queries, kernel, bias, ids, values, _ = drawn(0, 33, 50, 7, 1)
    numbers = np.zeros(33, np.float32)
    for kept in (
        [np.ones(5)] * 2,
        [np.ones(64 * 50), np.ones(3)],
        [np.ones(1)],
    ):
        gradient = exact_softmax.ClassGradient(
            *(queries, bias, ids, values, numbers, numbers),
            kept=[x.astype(np.float32) for x in kept],
        )
        with pytest.raises(tf.errors.InvalidArgumentError, match="kept"):
            gradient.dense(kernel)


def trained(optimizer, steps=5, eager=False, width=1, **options):
    """Losses and weights of some steps of a small model."""
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    x = random.normal(size=(BATCH, DIM)).astype(np.float32)
    y = random.integers(0, CLASSES, (BATCH, width))
    head = layers.FullSoftmax(CLASSES, **options)
    model = keras.Sequential([keras.Input((DIM,)), keras.layers.Dense(DIM)])
    model.add(head)
    model.compile(optimizer, loss=head.loss, run_eagerly=eager)
    losses = [model.train_on_batch(x, y) for _ in range(steps)]
    return losses, [v.numpy() for v in model.trainable_variables], model


@pytest.fixture
def taken(monkeypatch):
    """The promises that optimizers have taken."""
    found = []
    take = class_gradients.take

    def spy(*args):
        promise = take(*args)
        found.extend([] if promise is None else [promise])
        return promise

    monkeypatch.setattr(class_gradients, "take", spy)
    return found


# Rounding moves the step of a tiny gradient by no more than this lets it.
BROAD = {"epsilon": 1e-3}
PAIRS = {
    "adam": (optimizers.LazyAdam, keras.optimizers.Adam, BROAD),
    "amsgrad": (
        optimizers.LazyAdam,
        keras.optimizers.Adam,
        {"amsgrad": True, **BROAD},
    ),
    "adamw": (
        optimizers.LazyAdamW,
        keras.optimizers.AdamW,
        {"weight_decay": 0.1, **BROAD},
    ),
    "sgd": (optimizers.LazySGD, keras.optimizers.SGD, {}),
    "momentum": (
        optimizers.LazySGD,
        keras.optimizers.SGD,
        {"momentum": 0.9, "nesterov": True},
    ),
    "adagrad": (optimizers.LazyAdagrad, keras.optimizers.Adagrad, {}),
}


@functools.cache
def dense_run(rule, **head):
    """`trained` by an optimizer of Keras, once for both ways of ours."""
    _, dense, options = PAIRS[rule]
    return trained(dense(0.01, **options), **head)


def assert_same_run(ours, kerass):
    np.testing.assert_allclose(ours[0], kerass[0], rtol=1e-5)
    for a, b in zip(ours[1], kerass[1]):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5)


def go_the_way_of_gpus(monkeypatch):
    """In blocks of 100 classes."""
    monkeypatch.setattr("tfxclass.rows.exact.on_gpu", lambda device: True)
    monkeypatch.setattr("tfxclass.rows.blocks.BLOCK_LOGITS", 0)
    monkeypatch.setattr("tfxclass.rows.blocks.LEAST_BLOCK", 100)


@pytest.fixture(params=["op", "blocks"])
def way(request, monkeypatch):
    """The way of a CPU or of a GPU."""
    if request.param == "blocks":
        go_the_way_of_gpus(monkeypatch)


@pytest.mark.parametrize("rule", quick(PAIRS, ["adamw", "momentum"]))
def test_steps_by_class_are_dense_steps(rule, taken, way):
    lazy, _, options = PAIRS[rule]
    head = {"use_bias": True, "width": 2}
    ours = trained(lazy(0.01, **options), **head)
    assert taken
    assert_same_run(ours, dense_run(rule, **head))


CLASS_WEIGHTS = tfxclass.losses.LossOptions(class_weight={3: 2.0, 5: 0.5})


@pytest.mark.parametrize(
    "head",
    [
        {"similarity": layers.Cosine(margin=0.2)},
        # Slow: tests/losses/test_losses.py has the sums of both margins.
        pytest.param(
            {"similarity": layers.Cosine(margin=0.2, margin_type="arcface")},
            marks=pytest.mark.slow,
        ),
        {"loss_options": CLASS_WEIGHTS, "use_bias": True},
    ],
    ids=["cosface", "arcface", "weights"],
)
def test_heads_by_class(head, taken, way):
    ours = trained(optimizers.LazyAdam(0.01, **BROAD), **head)
    assert taken
    assert_same_run(ours, dense_run("adam", **head))


@pytest.mark.parametrize(
    "options",
    [
        {"clipnorm": 0.01},
        {"global_clipnorm": 0.01},
        {"clipvalue": 1e-4},
        {"gradient_accumulation_steps": 2},
        {"loss_scale_factor": 8.0},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_needs_the_whole_gradient_gets_it(options, taken):
    # Eagerly: what is taken is decided in Python, while a step is traced.
    steps = {"eager": True, "steps": 2}
    ours = trained(optimizers.LazyAdam(0.01, **options), **steps)
    assert not taken
    expected = trained(keras.optimizers.Adam(0.01, **options), **steps)
    assert_same_run(ours, expected)


class Halved(optimizers.LazySGD):
    """Half of each gradient, where Keras would have one say so."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(gradient / 2, variable, learning_rate)


def test_a_subclass_sees_each_gradient(taken):
    ours = trained(Halved(0.5))
    assert not taken
    assert_same_run(ours, trained(keras.optimizers.SGD(0.25)))


def test_group_of_a_multi_optimizer_steps_by_class(taken):
    def optimizer(lazy):
        first = keras.optimizers.SGD(0.1)
        second = lazy(0.01)
        return lambda model: optimizers.MultiOptimizer(
            [(first, model.layers[0]), (second, model.layers[1])]
        )

    def weights(make):
        model = trained(keras.optimizers.SGD(0.0), steps=1)[2]
        taken.clear()
        model.compile(make(model), loss=model.layers[-1].loss)
        x = np.ones((BATCH, DIM), np.float32)
        losses = [model.train_on_batch(x, np.arange(BATCH)) for _ in range(3)]
        return losses, [v.numpy() for v in model.trainable_variables]

    dense = weights(optimizer(keras.optimizers.Adam))
    ours = weights(optimizer(optimizers.LazyAdam))
    assert taken
    assert_same_run(ours, dense)


def step_of(head, optimizer, change):
    """A custom step that calls change(gradients, variables) in between."""
    x = tf.ones([4, DIM]) * tf.range(4.0)[:, None]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(head.compute_loss(x, tf.range(4), True))
        variables = head.trainable_variables
        grads = change(tape.gradient(loss, variables), variables)
        optimizer.apply(grads, variables)

    optimizer.build(head.trainable_variables)
    step()
    return head.kernel.numpy()


def after_writing(grads, variables):
    """As sharpness-aware steps: the gradient is of the rows before."""
    variables[0].assign_sub(0.5 * tf.ones_like(variables[0]))
    return grads


def tripled(grads, variables):
    del variables
    return [3 * gradient for gradient in grads]


@pytest.mark.parametrize("change", [after_writing, tripled])
def test_a_changed_kernel_or_gradient_is_a_dense_step(change, taken):
    def run(optimizer):
        head = layers.FullSoftmax(50, seed=1, kernel_initializer="ones")
        head.build((None, DIM))
        return step_of(head, optimizer, change)

    ours = run(optimizers.LazySGD(0.1))
    assert not taken
    dense = run(keras.optimizers.SGD(0.1))
    np.testing.assert_allclose(ours, dense, rtol=1e-5, atol=1e-6)


def test_gradients_that_are_applied_twice(taken):
    def run(make):
        head = layers.FullSoftmax(50, kernel_initializer="ones")
        head.build((None, DIM))
        first, second = make(0.1), make(0.1)
        second.build(head.trainable_variables)

        def change(grads, variables):
            second.apply(grads, variables)
            return grads

        return step_of(head, first, change)

    ours, dense = run(optimizers.LazySGD), run(keras.optimizers.SGD)
    assert len(taken) == 1
    np.testing.assert_allclose(ours, dense, rtol=1e-5, atol=1e-6)


def test_head_adam_by_block_is_head_adam_by_class(monkeypatch, taken):
    """One scale of the gradients for all blocks of a step."""
    by_class = trained(optimizers.HeadAdam(0.001), use_bias=True)
    go_the_way_of_gpus(monkeypatch)
    by_block = trained(optimizers.HeadAdam(0.001), use_bias=True)
    assert len(taken) == 2
    assert_same_run(by_block, by_class)


class Computed:
    """Shapes of the tensors that steps on the way of GPUs compute.

    Attributes:
        products: list of the shapes of matrix products.
        gradients: list of the shapes of dense gradients of class vectors.
    """

    def __init__(self, monkeypatch):
        self.products, self.gradients = [], []
        kind = exact_blocks.BlockGradient
        matmul, dense = tf.matmul, kind.dense

        def seen_matmul(a, b, **options):
            return self._seen(matmul(a, b, **options), self.products)

        def seen_gradients(gradient, kernel):
            of_kernel, of_bias = dense(gradient, kernel)
            return self._seen(of_kernel, self.gradients), of_bias

        go_the_way_of_gpus(monkeypatch)
        monkeypatch.setattr(tf, "matmul", seen_matmul)
        monkeypatch.setattr(kind, "dense", seen_gradients)

    def _seen(self, tensor, shapes):
        def see(array):
            shapes.append(array.shape)
            return array

        # It has no state: a graph leaves it out where nobody reads the tensor.
        found = tf.numpy_function(see, [tensor], tensor.dtype, stateful=False)
        return tf.ensure_shape(found, tensor.shape)

    def step(self, optimizer, dim):
        """A step with 300 classes and a batch of 6."""
        head = layers.FullSoftmax(300)
        head.build((None, dim))
        optimizer.build(head.trainable_variables)
        x, y = tf.random.normal([6, dim]), tf.range(6)

        @tf.function
        def train():
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = head.compute_loss(x, y, training=True)
            of_x, of_kernel = tape.gradient(loss, [x, head.kernel])
            optimizer.apply([of_kernel], head.trainable_variables)
            return of_x

        train()


@pytest.mark.parametrize("dim", [128, 768, 4096])
def test_a_step_has_four_products_at_any_width(dim, monkeypatch):
    """Of each of three blocks, and no gradient of all class vectors."""
    computed = Computed(monkeypatch)
    computed.step(optimizers.HeadAdam(), dim)
    logits, features, class_vectors = (6, 100), (6, dim), (100, dim)
    expected = {logits: 6, features: 3, class_vectors: 3}
    assert collections.Counter(computed.products) == expected
    assert not computed.gradients


def test_the_dense_gradient_is_computed_for_others(monkeypatch):
    computed = Computed(monkeypatch)
    computed.step(keras.optimizers.Adam(), DIM)
    assert len(computed.products) == 12
    assert computed.gradients == [(300, DIM)]


@pytest.mark.parametrize(
    ("way", "dtype"),
    [
        ("op", "bfloat16"),
        ("blocks", "float32"),
        pytest.param("op", "float32", marks=pytest.mark.slow),
        pytest.param("blocks", "bfloat16", marks=pytest.mark.slow),
    ],
    indirect=["way"],
)
def test_resumed_run_goes_on_bit_for_bit(dtype, tmp_path, taken, way):
    head = {"kernel_dtype": dtype, "use_bias": True}
    small = {"second_moment": "row", "slot_dtype": "bfloat16"}
    options = small if dtype == "bfloat16" else {}
    optimizer = optimizers.LazyAdam(0.01, **options)
    model = trained(optimizer, steps=2, **head)[2]
    assert taken
    path = str(tmp_path / "model.keras")
    model.save(path)
    other = keras.models.load_model(path)
    x, y = np.ones((BATCH, DIM), np.float32), np.arange(BATCH)[:, np.newaxis]
    for _ in range(2):
        assert model.train_on_batch(x, y) == other.train_on_batch(x, y)
    for a, b in zip(model.weights, other.weights):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_mixed_policy_and_eager_steps():
    dense = trained(optimizers.LazyAdam(0.01), eager=True)
    assert_same_run(trained(optimizers.LazyAdam(0.01)), dense)
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    try:
        losses = trained(optimizers.LazyAdam(0.01))[0]
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    # Features are rounded to 8 bits: a logit moves by 2^-8 of its terms.
    np.testing.assert_allclose(losses, dense[0], rtol=2**-6)


def test_evaluation_sums_no_rows_but_has_gradients():
    head = layers.FullSoftmax(60, seed=0)
    head.build((None, DIM))
    x, y = tf.random.normal([9, DIM]), tf.range(9)

    @tf.function
    def late():
        return tf.gradients(head.compute_loss(x, y), [x])[0]

    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = head.compute_loss(x, y)
    np.testing.assert_allclose(tape.gradient(loss, x), late(), atol=1e-6)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_blocks_of_tensorflow_give_the_same(similarity, monkeypatch):
    """The way of GPUs; both are float32 sums of the same terms."""
    head = layers.FullSoftmax(
        60,
        similarity=similarity,
        seed=0,
        loss_options=tfxclass.losses.LossOptions(label_smoothing=0.1),
    )
    head.build((None, DIM))
    x, y = tf.random.normal([9, DIM]), tf.reshape(tf.range(18), [9, 2])

    def results():
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = head.compute_loss(x, y, training=True)
        return loss, *tape.gradient(loss, [x, head.kernel.value])

    ours = results()
    monkeypatch.setattr(rows_loss.placement, "has_gpu", lambda: True)
    for a, b in zip(ours, results()):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5)


def test_memory_of_a_step_by_class_is_estimated_without_the_gradient():
    def gradient_bytes(optimizer, **options):
        head = layers.FullSoftmax(1000, **options)
        return tfxclass.estimate(head, 16, 2, optimizer).gradient_bytes

    matrix = 4 * 1000 * 16
    options = tfxclass.losses.LossOptions(class_counts=np.ones(1000))
    assert gradient_bytes(optimizers.LazyAdam()) == 0
    assert gradient_bytes(optimizers.LazyAdam(), loss_options=options) > matrix
    assert gradient_bytes(optimizers.LazyAdam(clipnorm=1.0)) > matrix
    assert gradient_bytes(optimizers.LocalSGD()) >= matrix
    assert gradient_bytes(keras.optimizers.Adam()) == 3 * matrix


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_exponentials_are_kept_where_they_fit(similarity, monkeypatch):
    """Fewer bytes give the same training, as `keep_exponentials` does."""
    given = []
    sums = exact_softmax.sums

    def spy(*args, **options):
        given.append(options["kept_bytes"])
        return sums(*args, **options)

    monkeypatch.setattr(exact_softmax, "sums", spy)
    options = {"similarity": similarity, "keep_exponentials": True}
    kept, kept_weights, model = trained(optimizers.LazyAdam(), **options)
    head = layers.FullSoftmax.from_config(model.layers[-1].get_config())
    assert head.keep_exponentials
    monkeypatch.setattr(layers.FullSoftmax, "kept_bytes", 0)
    plain, weights, _ = trained(optimizers.LazyAdam(), similarity=similarity)
    assert given == [sys.maxsize, 0]
    np.testing.assert_allclose(kept, plain, rtol=1e-5)
    for found, expected in zip(kept_weights, weights):
        # Steps of 0.001, whose direction a rounding may turn.
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_kept_exponentials_are_in_the_plan():
    def bytes_of(**options):
        head = layers.FullSoftmax(1_000_000, **options)
        return tfxclass.estimate(head, 8, 256).activation_bytes

    assert bytes_of(keep_exponentials=True) == 4 * 256 * 1_000_000
    assert bytes_of() < 2**25
    with pytest.raises(ValueError, match="`keep_exponentials`"):
        layers.FullSoftmax(9, keep_exponentials="yes")
