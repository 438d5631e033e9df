"""The training loss of DropMax: values, gradients, extremes, arguments."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support import reference
from tests.support.cases import check_refused
from tests.support.cases import quick
from tests.support.contract import BATCH
from tests.support.contract import CLASSES
from tests.support.contract import TOLERANCE
from tests.support.contract import built
from tests.support.contract import data
from tests.support.dropmax_cases import MODES
from tests.support.dropmax_cases import SUMS
from tests.support.dropmax_cases import affine
from tests.support.dropmax_cases import draws_of
from tests.support.dropmax_cases import each_mode
from tests.support.dropmax_cases import expected_logits
from tests.support.dropmax_cases import loss_in_numpy
from tests.support.dropmax_cases import make_head
from tests.support.dropmax_cases import retain_logits
from tfxclass import layers
from tfxclass.losses.dropmax import draws_of_block


@each_mode
@pytest.mark.parametrize("num_samples", [1, 3])
@pytest.mark.parametrize("labels_wide", [None, 3])
def test_training_loss_equals_numpy(mode, num_samples, labels_wide):
    head = built(make_head(mode, num_samples=num_samples, temperature=0.5))
    x, y = data(labels_wide=labels_wide)
    if labels_wide:
        y[2] = -1
    draws = draws_of(head)
    if mode == "attention":
        draws = draws[:1]
    expected = loss_in_numpy(head, x, y, draws)
    result = head.compute_loss(x, y, training=True)
    np.testing.assert_allclose(result, expected, **SUMS)


@each_mode
def test_gradients_by_finite_differences(mode):
    """Through the masks as well; but not into rho through the posterior."""
    head = built(make_head(mode, num_samples=2, temperature=0.5))
    draws = draws_of(head)
    if mode == "attention":
        draws = draws[:1]
    x, y = data()
    upstream = np.random.default_rng(1).normal(size=BATCH)
    variables = head.trainable_variables
    with tf.GradientTape() as tape:
        losses = head.compute_loss(x, y, training=True)
    gradients = tape.gradient(
        losses,
        [v.value for v in variables],
        output_gradients=tf.constant(upstream, tf.float32),
    )
    kernels = {v.name: v.numpy().astype(np.float64) for v in variables}
    frozen = kernels.get("retain_kernel"), kernels.get("retain_bias")

    def loss(changed):
        """As the head's, the posterior's rho held where it is."""
        held = Held(head, {**kernels, **changed}, frozen)
        return upstream @ held.losses(x, y, draws)

    for variable, gradient in zip(variables, gradients):
        start = kernels[variable.name]
        direction = np.random.default_rng(2).normal(size=start.shape)
        expected = reference.numeric_gradient(
            lambda value, name=variable.name: loss({name: value}),
            start,
            direction,
        )
        result = np.sum(tf.convert_to_tensor(gradient).numpy() * direction)
        np.testing.assert_allclose(result, expected, rtol=2e-3, atol=2e-3)


class Held:
    """The loss in NumPy of given weights."""

    def __init__(self, head, weights, frozen):
        self.head, self.weights, self.frozen = head, weights, frozen

    def losses(self, x, y, draws):
        head, weights = self.head, self.weights
        x = np.asarray(x, np.float64)
        retain = retain_logits(head, x)
        residual = None
        if head.retain is not None:
            retain = x @ weights["retain_kernel"].T + weights["retain_bias"]
        if head.posterior is not None:
            r = x @ weights["posterior_kernel"].T + weights["posterior_bias"]
            before = x @ self.frozen[0].T + self.frozen[1]
            # q's logit is before + r, as a residual to what retain is now.
            residual = before + r - retain
        options = {
            "temperature": head.temperature,
            "residual": residual,
            "kl": head.kl_weight,
            "auxiliary": 0.0,
            "entropy": head.entropy_weight,
        }
        logits = x @ weights["kernel"].T
        losses = reference.dropmax_loss(
            head.mode, logits, retain, draws, y[:, None], **options
        )
        if head.posterior is not None:
            terms = reference.dropmax_terms(retain, y[:, None], r)
            losses += head.auxiliary_weight * terms["auxiliary"]
        return losses


@each_mode
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_great_logits_are_finite(mode, size):
    head = make_head(mode, num_classes=4)
    head.build((None, 1))
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    for variable in head.trainable_variables:
        shape = (4,) if len(variable.shape) == 1 else (4, 1)
        variable.assign(size / 2 * signs.reshape(shape))
    head.kernel.assign(2 * head.kernel)
    x = tf.constant([[1.0], [1.0], [1.0], [1.0], [-1.0]])
    y = np.array([0, 1, 2, 3, 0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        losses = head.compute_loss(x, y, training=True)
    sources = [x, *(v.value for v in head.trainable_variables)]
    for gradient in tape.gradient(losses, sources):
        assert np.all(np.isfinite(tf.convert_to_tensor(gradient)))
    assert np.all(np.isfinite(losses))
    assert np.all(np.isfinite(head.compute_loss(x, y)))
    np.testing.assert_allclose(np.sum(head(x), axis=1), 1.0, rtol=1e-5)
    if mode != "attention":
        head.predict_samples = 5
        np.testing.assert_allclose(np.sum(head(x), axis=1), 1.0, rtol=1e-5)


@each_mode
@pytest.mark.parametrize("num_classes", [1, 2])
def test_few_classes(mode, num_classes):
    head = built(make_head(mode, num_classes=num_classes))
    x, _ = data()
    y = np.arange(BATCH) % num_classes
    draws = draws_of(head)
    losses = head.compute_loss(x, y, training=True)
    np.testing.assert_allclose(losses, loss_in_numpy(head, x, y, draws), **SUMS)
    output = reference.softmax(expected_logits(head, x))
    np.testing.assert_allclose(head(x), output, **TOLERANCE)


def test_random_of_one_is_the_softmax():
    head = built(make_head("random", retain_probability=1.0))
    full = built(layers.FullSoftmax(CLASSES))
    full.kernel.assign(head.kernel)
    x, y = data()
    np.testing.assert_allclose(
        head.compute_loss(x, y, training=True),
        full.compute_loss(x, y),
        **TOLERANCE,
    )


def test_a_step_draws_anew_and_each_row_for_itself():
    """Rows of one block, of several, and of another step."""
    head = built(make_head("random", num_samples=2))
    seeds = [head.next_seed() for _ in range(2)]
    shape = [2, BATCH, CLASSES]
    blocks = [
        draws_of_block(seeds[0], 0, shape),
        draws_of_block(seeds[0], BATCH, shape),
        draws_of_block(seeds[1], 0, shape),
    ]
    drawn = np.stack(blocks)
    assert drawn.shape == (3, *shape)
    assert len(np.unique(drawn)) > 0.99 * drawn.size
    assert np.all(drawn > 0) and np.all(drawn < 1)


# The modes share the blocks, and these two have the most terms.
@pytest.mark.parametrize("mode", quick(MODES, ["adaptive", "posterior"]))
@pytest.mark.parametrize("numbers", quick([1, 5 * CLASSES], [5 * CLASSES]))
def test_blocks_of_rows_change_nothing(mode, numbers, monkeypatch):
    """Of one row, and of two rows of two masks, a batch of 16."""
    head = built(make_head(mode, num_samples=2, use_bias=True))
    draws_of(head)
    x, y = data(labels_wide=2)
    y[3] = -1
    features = tf.constant(x)
    sources = [features, *(v.value for v in head.trainable_variables)]
    upstream = tf.constant(
        np.random.default_rng(1).normal(size=BATCH), "float32"
    )
    arguments = head, features, y, sources, upstream
    expected = gradients(*arguments)
    monkeypatch.setattr("tfxclass.losses.dropmax.BLOCK_NUMBERS", numbers)
    found = tf.function(lambda: gradients(*arguments))()
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def gradients(head, features, labels, sources, upstream):
    with tf.GradientTape() as tape:
        tape.watch(features)
        losses = head.compute_loss(features, labels, training=True)
    found = tape.gradient(losses, sources, upstream)
    return [losses, *map(tf.convert_to_tensor, found)]


def test_second_order_gradients_are_refused():
    head = built(make_head("posterior"))
    x, y = data()
    features = tf.constant(x)
    with tf.GradientTape() as outer:
        outer.watch(features)
        with tf.GradientTape() as tape:
            tape.watch(features)
            losses = head.compute_loss(features, y, training=True)
        gradient = tape.gradient(losses, features)
    with pytest.raises(ValueError, match="first-order gradients only"):
        outer.gradient(gradient, features)


def test_cosine_with_a_margin():
    """rho reads the scaled unit features; the margin is on the label."""
    options = {"num_samples": 1, "kl_weight": 0.0, "entropy_weight": 0.0}
    plain, head = (
        built(make_head("attention", similarity=similarity, **options))
        for similarity in (
            layers.Cosine(scale=5.0),
            layers.Cosine(scale=5.0, margin=0.2),
        )
    )
    x, y = data()
    queries = 5 * reference.normalized(x)
    logits = reference.head_logits(x, head.kernel.numpy(), None, "cosine", 5)
    retain = affine(head.retain, queries)
    logits += np.log(reference.sigmoid(retain))
    for one, margin in ((plain, 0.0), (head, 1.0)):
        moved = logits.copy()
        moved[np.arange(BATCH), y] -= margin
        np.testing.assert_allclose(
            one.compute_loss(x, y, training=True),
            reference.cross_entropy(moved, y),
            rtol=1e-4,
        )
        np.testing.assert_allclose(
            one.compute_loss(x, y),
            reference.cross_entropy(logits, y),
            rtol=1e-4,
        )


INVALID = {
    "mode": (lambda: layers.DropMax(9, "none"), ["`mode`", "'none'"]),
    "num_samples": (
        lambda: layers.DropMax(9, mode_options={"num_samples": 0}),
        ["`num_samples` must be a positive integer", "0"],
    ),
    "temperature": (
        lambda: layers.DropMax(9, mode_options={"temperature": 0.0}),
        ["`temperature` must be finite and > 0", "0.0"],
    ),
    "kl_weight": (
        lambda: layers.DropMax(9, mode_options={"kl_weight": -1.0}),
        ["`kl_weight` must be finite and >= 0", "-1.0"],
    ),
    "auxiliary_weight": (
        lambda: layers.DropMax(
            9, "posterior", mode_options={"auxiliary_weight": float("nan")}
        ),
        ["`auxiliary_weight`", "nan"],
    ),
    "auxiliary_weight_of_adaptive": (
        lambda: layers.DropMax(9, mode_options={"auxiliary_weight": 1.0}),
        ["`auxiliary_weight` must be None", "mode='adaptive'", "1.0"],
    ),
    "kl_weight_of_random": (
        lambda: layers.DropMax(
            9,
            "random",
            mode_options={"retain_probability": 0.5, "kl_weight": 0.5},
        ),
        ["`kl_weight` must be None", "mode='random'", "0.5"],
    ),
    "entropy_weight_of_random": (
        lambda: layers.DropMax(
            9,
            "random",
            mode_options={"retain_probability": 0.5, "entropy_weight": 0.0},
        ),
        ["`entropy_weight` must be None", "mode='random'", "0.0"],
    ),
    "entropy_weight": (
        lambda: layers.DropMax(
            9, mode_options={"entropy_weight": float("inf")}
        ),
        ["`entropy_weight`", "inf"],
    ),
    "retain_probability": (
        lambda: layers.DropMax(
            9, "random", mode_options={"retain_probability": 0.0}
        ),
        ["`retain_probability` must be in (0, 1]", "0.0"],
    ),
    "retain_probability_missing": (
        lambda: layers.DropMax(9, "random"),
        ['for mode="random"', "retain_probability=None"],
    ),
    "retain_probability_given": (
        lambda: layers.DropMax(9, mode_options={"retain_probability": 0.5}),
        ['for mode="random"', "mode='adaptive'"],
    ),
    "predict_samples": (
        lambda: layers.DropMax(9, mode_options={"predict_samples": 0}),
        ["`predict_samples` must be a positive integer", "0"],
    ),
    "predict_samples_of_attention": (
        lambda: layers.DropMax(
            9, "attention", mode_options={"predict_samples": 3}
        ),
        ["`predict_samples` must be None", "3"],
    ),
    "num_sampled": (
        lambda: layers.DropMax(9, num_sampled=3),
        ["`num_sampled` needs a `sampler`", "num_sampled=3"],
    ),
    "sampler": (
        lambda: layers.DropMax(9, sampler="nearest", num_sampled=3),
        ["`sampler` must be one of", "'nearest'"],
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_use(name):
    check_refused(*INVALID[name])
