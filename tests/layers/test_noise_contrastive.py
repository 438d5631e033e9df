"""Noise contrastive estimation, and what negative sampling shares with it."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.support import reference
from tests.support.cases import check_refused
from tests.support.contract import BATCH
from tests.support.contract import CLASSES
from tests.support.contract import DIM
from tests.support.contract import LONG
from tests.support.contract import STORED
from tests.support.contract import TOLERANCE
from tests.support.contract import HeadContract
from tests.support.contract import built
from tests.support.contract import data
from tfxclass import layers
from tfxclass import losses
from tfxclass import samplers
from tfxclass.core.one_vs_rest import one_vs_rest_loss
from tfxclass.core.targets import take_columns
from tfxclass.layers import noise_losses

SAMPLED = 40
# Sums over some dozen logistic losses.
SUMS = {"rtol": 2e-5, "atol": 1e-5}


class TestNoiseContrastive(HeadContract):
    """It stores and answers as SampledSoftmax."""

    slow_tests = LONG + STORED
    is_random = True

    def make_head(self, num_classes=CLASSES, **changes):
        options = {"num_sampled": SAMPLED, "seed": 7, **changes}
        return layers.NoiseContrastive(num_classes, **options)


HEADS = [layers.NoiseContrastive, layers.NegativeSampling]
each_head = pytest.mark.parametrize("cls", HEADS)


def negative_sampling_loss(logits, targets, label_logits):
    """What `NegativeSampling` computes without a margin and a calibration."""
    return one_vs_rest_loss(logits, targets)


each_loss = pytest.mark.parametrize(
    "loss", [noise_losses.noise_contrastive_loss, negative_sampling_loss]
)


def counts(power=1.0):
    return 1.0 / np.arange(1, CLASSES + 1) ** power


SAMPLERS = {
    "uniform": lambda n: samplers.UniformSampler(n, seed=1),
    "log_uniform": lambda n: samplers.LogUniformSampler(n, seed=1),
    "frequency": lambda n: samplers.FrequencySampler(n, counts(), seed=1),
    "forest": lambda n: samplers.HashingForestSampler(
        n, num_trees=2, leaf_size=5, rebuild_interval=1, seed=1
    ),
}


class Recorded:
    """What a head's sampler gave last."""

    def __init__(self, head):
        self.inner = head.sampler.sample
        head.sampler.sample = self

    def __call__(self, *args):
        self.sample = self.inner(*args)
        return self.sample


def labels_of(name):
    x, y = data(seed=4, labels_wide=None if name == "single" else 2)
    if name == "two":
        y = np.stack([y[:, 0] % 30, y[:, 1] % 30 + 30], axis=1)
    return x, y


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", ["single", "two"])
def test_loss_and_gradients_are_those_of_tf_nn_nce_loss(sampler, name):
    head = built(
        layers.NoiseContrastive(
            CLASSES,
            sampler=SAMPLERS[sampler](SAMPLED),
            log_normalizer=0.5,
            use_bias=True,
        )
    )
    recorded = Recorded(head)
    x, y = labels_of(name)
    if sampler == "forest":  # candidates of an index, too
        head.sampler.rebuild(head.kernel)
    features = tf.constant(x)
    upstream = data(seed=8)[0][:, 0]
    sources = [features, head.kernel.value, head.bias.value]
    with tf.GradientTape() as tape:
        tape.watch(features)
        ours = head.compute_loss(features, y, training=True)
    grads = tape.gradient(ours, sources, output_gradients=upstream)
    sample = recorded.sample
    expected_count = sample.target_log_expected_count
    if expected_count is None:
        expected_count = tf.zeros_like(sample.positions, tf.float32)
    num_true = 1 if y.ndim == 1 else 2
    labels = tf.constant(y.reshape(BATCH, num_true))
    with tf.GradientTape() as tape:
        tape.watch(features)
        theirs = tf.nn.nce_loss(
            weights=head.kernel.value,
            biases=head.bias.value - 0.5,
            labels=labels,
            inputs=features,
            num_sampled=SAMPLED,
            num_classes=CLASSES,
            num_true=num_true,
            sampled_values=(
                sample.ids,
                tf.exp(expected_count),
                tf.exp(sample.log_expected_count),
            ),
            remove_accidental_hits=True,
        )
    their_grads = tape.gradient(theirs, sources, output_gradients=upstream)
    np.testing.assert_allclose(ours, theirs, **SUMS)
    for a, b in zip(grads, their_grads):
        np.testing.assert_allclose(
            tf.convert_to_tensor(a), tf.convert_to_tensor(b), **SUMS
        )


@each_head
def test_training_loss_equals_numpy(cls):
    head = built(cls(CLASSES, SAMPLED, sampler="log_uniform", seed=2))
    recorded = Recorded(head)
    x, y = data(labels_wide=3)
    y[1] = -1
    result = head.compute_loss(x, y, training=True)
    sample = recorded.sample
    logits = reference.head_logits(x, head.kernel.numpy()[sample.ids.numpy()])
    columns = sample.positions.numpy()
    if cls is layers.NegativeSampling:
        expected = reference.negative_sampling(logits, columns)
    else:
        shifted = logits - math.log(CLASSES)
        of_targets = np.take_along_axis(shifted, np.maximum(columns, 0), 1)
        expected = reference.noise_contrastive(
            shifted - sample.log_expected_count.numpy(),
            of_targets - sample.target_log_expected_count.numpy(),
            columns,
        )
    np.testing.assert_allclose(result, expected, **SUMS)


@each_head
@pytest.mark.parametrize("sampler", ["uniform", "log_uniform"])
def test_all_classes_sampled_is_the_binary_loss_over_all(cls, sampler):
    head = built(cls(CLASSES, CLASSES, sampler=sampler, seed=2))
    x, y = data()
    logits = reference.head_logits(x, head.kernel.numpy())
    if cls is layers.NoiseContrastive:
        logits -= math.log(CLASSES)
    of_labels = logits[np.arange(BATCH), y]
    expected = reference.softplus(logits).sum(axis=1) - of_labels
    np.testing.assert_allclose(
        head.compute_loss(x, y, training=True), expected, **SUMS
    )


@each_loss
def test_gradient_by_finite_differences(loss):
    random = np.random.default_rng(0)
    logits = 3 * random.normal(size=(4, 9))
    labels = np.array([[2, 5, -1], [0, -1, -1], [-1, -1, -1], [8, 0, 3]])
    targets = losses.as_targets(labels, 9)
    upstream = random.normal(size=4)
    given = tf.constant(logits, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(given)
        result = loss(given, targets, take_columns(given, targets.ids))
    gradient = tape.gradient(
        result, given, output_gradients=tf.constant(upstream, tf.float32)
    ).numpy()

    def in_numpy(x):
        if loss is negative_sampling_loss:
            return upstream @ reference.negative_sampling(x, labels)
        own = np.take_along_axis(x, np.maximum(labels, 0), 1)
        return upstream @ reference.noise_contrastive(x, own, labels)

    np.testing.assert_allclose(
        upstream @ result.numpy(), in_numpy(logits), rtol=1e-5
    )
    for _ in range(6):
        direction = random.normal(size=logits.shape)
        expected = reference.numeric_gradient(in_numpy, logits, direction)
        np.testing.assert_allclose(
            np.sum(gradient * direction), expected, rtol=1e-4, atol=1e-4
        )


@each_loss
def test_great_logits_are_safe(loss):
    logits = tf.constant([[1e4, -1e4, 0.0], [-1e4, 1e4, float("-inf")]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        targets = losses.as_targets([1, 1], 3)
        result = loss(logits, targets, take_columns(logits, targets.ids))
    # Row 0: the label at -1e4 and a negative at 1e4, and softplus(0).
    np.testing.assert_allclose(
        result, [2e4 + math.log(2), 0.0], rtol=1e-6, atol=1e-6
    )
    gradient = tape.gradient(result, logits).numpy()
    np.testing.assert_allclose(
        gradient, [[1.0, -1.0, 0.5], [0.0, 0.0, 0.0]], atol=1e-6
    )


@each_head
def test_gradient_names_the_sampled_rows_alone(cls):
    head = built(cls(CLASSES, SAMPLED, seed=2))
    x, y = data()

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = head.compute_loss(x, y, training=True)
        gradient = tape.gradient(loss, head.kernel.value)
        assert isinstance(gradient, tf.IndexedSlices)
        assert gradient.values.shape.as_list() == [SAMPLED, DIM]
        return gradient.indices

    indices = step().numpy()
    assert len(set(indices)) == SAMPLED and set(y) <= set(indices)


@each_head
def test_margin_is_taken_off_the_target(cls):
    heads = [
        built(
            cls(
                CLASSES,
                CLASSES,
                similarity=layers.Cosine(scale=8.0, margin=margin),
                seed=2,
            )
        )
        for margin in (0.0, 0.25)
    ]
    x, y = data()
    plain, less = [
        head.compute_loss(x, y, training=True).numpy() for head in heads
    ]
    own = reference.head_logits(
        x, heads[0].kernel.numpy(), similarity="cosine", scale=8.0
    )[np.arange(BATCH), y]
    if cls is layers.NoiseContrastive:
        own -= math.log(CLASSES)
    moved = reference.softplus(2.0 - own) - reference.softplus(-own)
    np.testing.assert_allclose(less - plain, moved, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_learns_log_odds_without_normalising():
    """NCE's promise: s - log Z becomes the log odds of the label, whatever
    the noise."""
    random = np.random.default_rng(0)
    law = random.dirichlet(np.full(12, 0.8))
    y = random.choice(12, 60_000, p=law)
    seen = np.bincount(y, minlength=12) / len(y)
    for sampler in ("uniform", "log_uniform"):
        head = layers.NoiseContrastive(
            12, 9, sampler=sampler, kernel_initializer="zeros", seed=1
        )
        head.build((None, 1))
        optimizer = tf.keras.optimizers.Adam(0.02)
        optimizer.build([head.kernel])
        x = tf.ones([6, 1])

        @tf.function
        def step(labels, head=head, optimizer=optimizer):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(
                    head.compute_loss(x, labels, training=True)
                )
            gradient = tape.gradient(loss, head.kernel.value)
            optimizer.apply([tf.convert_to_tensor(gradient)], [head.kernel])

        for start in range(0, 12_000, 6):
            step(y[start : start + 6])
        odds = np.exp(head.kernel.numpy()[:, 0]) / 12
        probabilities = odds / (1 + odds)
        # The last steps of 0.02 wander.
        np.testing.assert_allclose(probabilities, seen, atol=0.03)


def test_ranks_by_the_raw_logits_in_training():
    """The labels' columns have no correction and the others would have."""
    head = built(layers.NoiseContrastive(CLASSES, SAMPLED, seed=2))
    x, y = data()
    recorded = Recorded(head)
    ranking = head.compute_step(x, y, training=True).ranking
    expected = reference.head_logits(
        x, head.kernel.numpy()[recorded.sample.ids.numpy()]
    )
    np.testing.assert_allclose(ranking.logits, expected, **TOLERANCE)


INVALID = {
    "log_normalizer": (
        lambda: layers.NoiseContrastive(9, 4, log_normalizer=math.inf),
        ["`log_normalizer` must be finite", "inf"],
    ),
    "sampler": (
        lambda: layers.NegativeSampling(9, 4, sampler="nearest"),
        ["`sampler` must be one of", "'nearest'"],
    ),
    "num_sampled_twice": (
        lambda: layers.NegativeSampling(
            9, 4, sampler=samplers.UniformSampler(5)
        ),
        ["num_sampled=4", "sampler of 5"],
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_use(name):
    check_refused(*INVALID[name])


@each_head
def test_more_labels_than_places(cls):
    head = built(cls(CLASSES, 3, seed=2))
    loss = head.compute_loss(data()[0], np.arange(BATCH), training=True)
    assert np.all(np.isfinite(loss))
    assert float(head.measured["overflow_labels"]) == BATCH


@each_head
def test_num_sampled_is_at_most_the_classes(cls):
    assert built(cls(5, 100)).num_sampled == 5
