"""The dual of a slim class matrix, against its definition and its theorem."""

import importlib
import warnings

import keras
import numpy as np
import pytest
import scipy.optimize
import tensorflow as tf

import tfxclass
from tests.support import reference
from tfxclass import recovery
from tfxclass.recovery.sums import RecoverySums
from tfxclass.rows import blocks

CLASSES, DIM, ROWS = 13, 12, 96

# Told where it matters: test_the_dual_warns_of_long_steps.
pytestmark = pytest.mark.filterwarnings("ignore:The dual is a gradient step")


def dual(model, dataset=None, **options):
    return recovery.recover(
        model, dataset, method="dual", **{"verbose": 0, **options}
    )


def make_model(projection_dim=5, seed=0, **options):
    head = tfxclass.layers.ProjectedSoftmax(
        CLASSES, projection_dim, seed=seed, **options
    )
    model = keras.Sequential([keras.Input((DIM,)), head])
    rng = np.random.default_rng(seed)
    head.kernel.assign(rng.normal(size=head.kernel.shape))
    return model, head


def make_adaptive(seed=0):
    head = tfxclass.layers.AdaptiveProjectedSoftmax(
        CLASSES, group_sizes=[3, 4, 6], projection_dims=(6, 4, 1), seed=seed
    )
    model = keras.Sequential([keras.Input((DIM,)), head])
    rng = np.random.default_rng(seed)
    for kernel in head.kernels:
        kernel.assign(rng.normal(size=kernel.shape))
    return model, head


def data(seed=1, labels=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, DIM)).astype(np.float32)
    y = rng.integers(0, CLASSES, (ROWS, labels))
    if labels > 1:
        y[::3, 1:] = -1
        y[5] = -1
    return x, y[:, 0] if labels == 1 else y


def batches(*arrays, size=20):
    return tf.data.Dataset.from_tensor_slices(arrays).batch(size)


def probabilities(head, x):
    x = x.astype(np.float64) @ head.projection.numpy()
    if isinstance(head, tfxclass.layers.AdaptiveProjectedSoftmax):
        logits = [
            x[:, :m] / np.sqrt(m) @ kernel.numpy().T
            for m, kernel in zip(head.projection_dims, head.kernels)
        ]
        return reference.softmax(np.concatenate(logits, axis=1))
    bias = None if head.bias is None else head.bias.numpy()
    return reference.softmax(
        reference.head_logits(x, head.kernel.numpy(), bias)
    )


def duals(head, x, y):
    """`(Y - P)^T X` as its docstring says, in float64."""
    p = probabilities(head, x)
    target = np.zeros_like(p)
    for row, labels in enumerate(y):
        ids = reference.distinct_labels(labels)
        if not ids:
            p[row] = 0
        for c in ids:
            target[row, c] = 1 / len(ids)
    return target - p


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("use_bias", [False, True])
def test_recover_is_the_definition(labels, use_bias):
    model, head = make_model(use_bias=use_bias)
    if use_bias:
        head.bias.assign(np.linspace(-1, 1, CLASSES))
    x, y = data(labels=labels)
    full = dual(model, batches(x, y), l2=0.3)
    factor = 1 / 0.3 / ROWS
    expected = factor * duals(head, x, y).T @ x
    found = full.layers[-1]
    np.testing.assert_allclose(found.kernel, expected, rtol=2e-5, atol=2e-6)
    if use_bias:
        np.testing.assert_array_equal(found.bias, head.bias)


def test_adaptive_projection_is_recovered_by_the_definition():
    model, head = make_adaptive()
    x, y = data(labels=3)
    full = dual(model, batches(x, y), l2=0.3)
    expected = duals(head, x, y).T @ x / 0.3 / ROWS
    found = full.layers[-1].kernel
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


def test_several_blocks(monkeypatch):

    model, head = make_model()
    x, y = data()
    one = dual(model, batches(x, y), l2=1.0)
    monkeypatch.setattr(blocks, "block_size", lambda *_: tf.constant(7))
    many = dual(model, batches(x, y), l2=1.0)
    np.testing.assert_allclose(
        one.layers[-1].kernel, many.layers[-1].kernel, rtol=1e-5, atol=1e-6
    )


def test_weights_count_rows_that_often():
    model, head = make_model()
    x, y = data()
    weight = np.ones(ROWS, np.float32)
    weight[::2], weight[1::4] = 2.0, 0.0
    expected = (duals(head, x, y) * weight[:, None]).T @ x
    for given in (weight, weight[:, None]):
        sums = RecoverySums(head)
        sums.add(x, y, given)
        np.testing.assert_allclose(sums.kernel, expected, rtol=2e-5, atol=2e-5)


def slim_gradient(model, x, y, weight):
    """Of what Keras minimises, by the slim class rows."""
    head = model.layers[-1]
    model.compile("sgd", loss=head.loss)
    with tf.GradientTape() as tape:
        output = model(x, training=True)
        loss = model.compute_loss(x, y, output, weight, training=True)
    return tape.gradient(loss, head.kernel.value).numpy()


@pytest.mark.filterwarnings("ignore:.* trains with sample weights")
@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_at_the_optimum_with_weights_nothing_is_left(scale):
    """n is the sum of the weights: Keras scales l2 by their mean, too."""
    l2 = 1e-2
    x, y = data(labels=3)
    x[:, 5:] = 0.0
    weight = scale * np.linspace(0.2, 1.8, ROWS).astype(np.float32)
    model, head = make_model(l2=l2)
    slim = x.astype(np.float64) @ head.projection.numpy()
    head.kernel.assign(minimize(slim, y, l2, weight))
    gradient = slim_gradient(model, x, y, weight)
    assert np.abs(gradient).max() < 1e-6 * scale
    sums = RecoverySums(head)
    sums.add(x, y, weight)
    assert sums.total_weight == pytest.approx(scale * ROWS)
    # Features of rank r <= m: the rows are recovered from what they show.
    np.testing.assert_allclose(
        sums.dual(l2) @ head.projection.numpy(), head.kernel, atol=1e-4
    )


def test_the_dual_is_a_gradient_step_from_the_lifted_matrix():
    """W = V R^T - grad F(V R^T) / l2, F the objective in full width."""
    _, head = make_model()
    x, y = data(labels=3)
    weight = np.linspace(0.5, 2.0, ROWS)
    sums = RecoverySums(head)
    sums.add(x, y, weight)
    l2 = 0.7
    lifted = head.kernel.numpy() @ head.projection.numpy().T.astype(float)
    logits = x @ lifted.T
    gradient = (reference.softmax(logits) - target_matrix(y)) * weight[:, None]
    gradient[np.all(y < 0, axis=1)] = 0
    gradient = gradient.T @ x / weight.sum() + l2 * lifted
    expected = lifted - gradient / l2
    error = np.linalg.norm(sums.dual(l2) - expected)
    assert error < 1e-6 * np.linalg.norm(expected)


def target_matrix(y):
    """Each row's labels with equal shares, `[rows, CLASSES]`."""
    target = np.zeros((len(y), CLASSES))
    for row, labels in enumerate(y):
        ids = reference.distinct_labels(labels)
        target[row, ids] = 1 / max(len(ids), 1)
    return target


def test_the_dual_warns_of_long_steps():
    _, head = make_model()
    x, y = data()
    sums = RecoverySums(head)
    sums.add(x, y)
    top = np.linalg.eigvalsh(x.T.astype(float) @ x / ROWS)[-1]
    message = rf"1/l2 = 1e\+03 from .* above 2/L = {4 / top:.3g} may"
    with pytest.warns(UserWarning, match=message):
        sums.dual(1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sums.dual(1.01 * top / 4)


def test_weights_that_are_all_zero():
    _, head = make_model()
    sums = RecoverySums(head)
    sums.add(*data(), np.zeros(ROWS))
    with pytest.raises(ValueError, match="sum > 0. Received: 0.0, of 96"):
        sums.dual(0.1)


def test_features_that_are_all_zero_limit_no_step():
    _, head = make_model()
    x, y = data()
    sums = RecoverySums(head)
    sums.add(0 * x, y)
    assert not sums.dual(1e-9).any()


def test_fit_goes_on_from_the_recovered_model():
    model, head = make_model(l2=1e-2)
    x, y = data()
    full = dual(model, batches(x, y))
    full.compile("adam", loss=full.layers[-1].loss)
    history = full.fit(x, y, epochs=3, verbose=0).history["loss"]
    assert history[-1] < history[0]


ERRORS = {
    "l2 of zero": ({"l2": 0.0}, "must be finite and > 0"),
    "the head's l2 of zero": ({}, "must be finite and > 0"),
    "negative": ({"l2": -1.0}, "must be finite and > 0"),
    "num_sampled": ({"l2": 1.0, "num_sampled": 0}, "`num_sampled` must be"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    options, message = ERRORS[name]
    model, _ = make_model()
    with pytest.raises(ValueError, match=message):
        dual(model, batches(*data()), **options)


def test_numbers_that_are_not_finite_leave_the_sums_alone():
    _, head = make_model()
    x, y = data()
    sums = RecoverySums(head)
    sums.add(x, y)
    before = sums.kernel.copy()
    bad = np.where(np.arange(ROWS)[:, None] == 4, np.nan, x)
    with pytest.raises(ValueError, match="The features.*row 4 of batch 1"):
        sums.add(bad, y)
    with pytest.raises(ValueError, match="or sample weights"):
        sums.add(x, y, np.full(ROWS, np.inf))
    rows = head.kernel.numpy()
    head.kernel.assign(np.where(rows == rows[2], np.nan, rows))
    with pytest.raises(ValueError, match="The logits"):
        sums.add(x, y)
    np.testing.assert_array_equal(sums.kernel, before)
    assert sums.num_batches == 1


def test_other_heads_are_refused():
    x, y = data()
    for head in (
        tfxclass.layers.FullSoftmax(CLASSES),
        tfxclass.layers.ProjectedSoftmax(CLASSES, 4, similarity="cosine"),
    ):
        model = keras.Sequential([keras.Input((DIM,)), head])
        with pytest.raises(ValueError, match="must end in a ProjectedSoftmax"):
            dual(model, batches(x, y), l2=1.0)


def minimize(x, y, l2, weight=None):
    """Minimum of mean cross-entropy + l2 / 2 |W|^2, [classes, dim]."""
    target = target_matrix(y.reshape(len(x), -1))
    labelled = target.sum(axis=1)
    weight = np.ones(len(x)) if weight is None else weight.astype(np.float64)
    n = weight.sum()
    weight = weight * labelled

    def objective(flat):
        w = flat.reshape(CLASSES, -1)
        logits = x @ w.T
        p = reference.softmax(logits)
        losses = reference.logsumexp(logits) - (logits * target).sum(axis=1)
        loss = weight @ losses / n + l2 / 2 * (w * w).sum()
        slopes = (p - target) * weight[:, None]
        return loss, (slopes.T @ x / n + l2 * w).ravel()

    start = np.zeros(CLASSES * x.shape[1])
    found = scipy.optimize.minimize(
        objective,
        start,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-9},
    )
    return found.x.reshape(CLASSES, -1)


def recovered(x, y, projection, slim_l2, **options):
    """From the slim problem solved to optimality."""
    slim = minimize(x @ projection, y, slim_l2)
    head = tfxclass.layers.ProjectedSoftmax(CLASSES, projection.shape[1])
    model = keras.Sequential([keras.Input((x.shape[1],)), head])
    head.projection.assign(projection)
    head.kernel.assign(slim)
    dataset = batches(x.astype(np.float32), y)
    full = dual(model, dataset, **options)
    return full.layers[-1].kernel.numpy()


def low_rank_problem(rank, dim, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, rank)) @ rng.normal(size=(rank, dim))
    return x / np.sqrt(rank), rng.integers(0, CLASSES, ROWS)


def relative_error(found, optimum):
    return np.linalg.norm(found - optimum) / np.linalg.norm(optimum)


def test_without_projection_the_optimum_is_recovered():
    # The optimum is a fixed point.
    x, y = low_rank_problem(rank=3, dim=8)
    l2 = 1e-2
    found = recovered(x, y, np.eye(8), l2, l2=l2)
    assert relative_error(found, minimize(x, y, l2)) < 1e-4


@pytest.mark.slow
def test_theorem_1_error_falls_with_the_projected_width():
    """Features of rank r: |W' - W| <= e / (1 - e) |W|, e ~ sqrt(r log r / m).

    With chance 1 - delta, for e = sqrt(4 (r + 1) log(2 r / delta) / m), as in
    the dual random projection that the theorem rests on (Zhang et al., COLT
    2013). It needs E[R R^T] = I: entries of variance 1 / m, so a factor of
    1 / sqrt(m) before standard normal ones; 1 / m, as the paper has it in one
    place, would shrink every logit by sqrt(m).
    """
    rank, dim, l2, delta = 3, 30, 1e-2, 0.1
    x, y = low_rank_problem(rank, dim)
    optimum = minimize(x, y, l2)
    widths = np.array([100, 300, 900])
    errors = []
    for width in widths:
        draws = np.random.default_rng(width)
        errors.append(
            np.median(
                [
                    relative_error(
                        recovered(
                            x,
                            y,
                            draws.normal(size=(dim, width)) / np.sqrt(width),
                            l2,
                            l2=l2,
                        ),
                        optimum,
                    )
                    for _ in range(3)
                ]
            )
        )
    e = np.sqrt(4 * (rank + 1) * np.log(2 * rank / delta) / widths)
    assert np.all(np.array(errors) <= np.where(e < 1, e / (1 - e), np.inf))
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    assert -0.75 < slope < -0.3


@pytest.mark.parametrize("make", [make_model, make_adaptive])
def test_lifted_model_answers_as_the_slim_one(make):
    model, _ = make()
    x, _ = data()
    full = recovery.recover(model, method="lift")
    assert full.layers[-1].kernel.shape == (CLASSES, DIM)
    np.testing.assert_allclose(full(x), model(x), rtol=2e-5, atol=1e-7)


def test_the_dual_needs_data():
    model, _ = make_model(l2=0.1)
    x, y = data()
    for dataset, found in (
        (None, "NoneType"),
        (batches(x), "TensorSpec"),
        (batches(x, y).unbatch(), "elements"),
        (batches(x, {"head": y}), "elements"),
    ):
        with pytest.raises(ValueError, match=f"batches. Received: .*{found}"):
            dual(model, dataset)
    with pytest.raises(ValueError, match="`method` must be one of"):
        recovery.recover(model, method="primal")


class Rows(keras.utils.PyDataset):
    """Batches of 20 rows, the last one shorter."""

    def __init__(self, *arrays):
        super().__init__()
        self.arrays = arrays

    def __len__(self):
        return -(-len(self.arrays[0]) // 20)

    def __getitem__(self, i):
        return tuple(x[20 * i : 20 * (i + 1)] for x in self.arrays)


@pytest.mark.parametrize("weighed", [False, True])
@pytest.mark.parametrize("kind", ["tuple", "list", "pydataset"])
def test_recover_takes_what_fit_takes(kind, weighed, monkeypatch):
    monkeypatch.setattr(
        importlib.import_module("tfxclass.recovery.recover"), "_BATCH", 20
    )
    model, head = make_model(l2=0.1)
    arrays = data(labels=3)
    if weighed:
        arrays += (np.linspace(0.5, 2.0, ROWS).astype(np.float32),)
    given = {"tuple": arrays, "list": list(arrays), "pydataset": Rows(*arrays)}
    kernels = [
        dual(model, d).get_weights()[-1]
        for d in (batches(*arrays), given[kind])
    ]
    np.testing.assert_array_equal(*kernels)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        (np.zeros((4, DIM)), "ndarray"),
        ((np.zeros((4, DIM)),), "1 arrays"),
        ((np.zeros((4, DIM)), np.zeros(3, int)), "3, 4 rows"),
        (None, "NoneType"),
    ],
)
def test_recover_from_no_data(given, part):
    model, _ = make_model(l2=0.1)
    with pytest.raises(ValueError, match="`dataset` must.*" + part):
        dual(model, given)
