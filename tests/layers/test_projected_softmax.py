"""Projected softmax, exact, sampled and with a width for each group."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support import reference
from tests.support.cases import quick
from tests.support.contract import CLASSES
from tests.support.contract import DIM
from tests.support.contract import LONG
from tests.support.contract import STORED
from tests.support.contract import TOLERANCE
from tests.support.contract import HeadContract
from tests.support.contract import built
from tests.support.contract import data
from tfxclass import layers
from tfxclass import samplers

WIDTH = 5


def project(head, features):
    return np.asarray(features, np.float64) @ head.projection.numpy()


class ProjectedContract(HeadContract):
    is_random = True  # the projection

    def logits(self, head, features):
        return reference.head_logits(
            project(head, features), head.kernel.numpy()
        )


class TestProjectedSoftmax(ProjectedContract):
    slow_tests = LONG

    def make_head(self, num_classes=CLASSES, **changes):
        return layers.ProjectedSoftmax(num_classes, WIDTH, **changes)


@pytest.mark.slow
class TestSampledProjectedSoftmax(ProjectedContract):
    def make_head(self, num_classes=CLASSES, **changes):
        options = {"num_sampled": 30, "sampler": "uniform", "seed": 7}
        return layers.ProjectedSoftmax(
            num_classes, WIDTH, **{**options, **changes}
        )


class TestAdaptiveProjectedSoftmax(HeadContract):
    """It projects as ProjectedSoftmax, and has groups as others."""

    slow_tests = LONG + STORED
    is_random = True

    def make_head(self, num_classes=CLASSES, **changes):
        groups = {"group_sizes": [10, 20, 30], "projection_dims": [5, 2, 1]}
        if num_classes != CLASSES:
            groups = {"group_sizes": [num_classes], "projection_dims": [5]}
        return layers.AdaptiveProjectedSoftmax(
            num_classes, **{**groups, **changes}
        )

    def logits(self, head, features):
        projected = project(head, features)
        return np.concatenate(
            [
                projected[:, :m] / np.sqrt(m) @ kernel.numpy().T
                for m, kernel in zip(head.projection_dims, head.kernels)
            ],
            axis=1,
        )


@pytest.mark.parametrize("width", quick([1, DIM, 3 * DIM], [DIM]))
def test_inner_products_are_kept_on_average(width):
    """E[R R^T] = I, whatever the projected width: below, at and past dim."""
    total = np.zeros((DIM, DIM))
    draws = 400
    for seed in range(draws):
        head = layers.ProjectedSoftmax(2, width, seed=seed)
        *_, spec = head.weight_specs(DIM)
        projection = np.asarray(spec.initializer(spec.shape))
        total += projection @ projection.T
    # The variance of an entry is at most 2 / width.
    bound = 5 * np.sqrt(2 / width / draws)
    np.testing.assert_allclose(total / draws, np.eye(DIM), atol=bound)


def test_the_projection_is_no_weight_of_training_and_has_a_seed():
    first, second, other = (
        built(layers.ProjectedSoftmax(CLASSES, WIDTH, seed=seed))
        for seed in (1, 1, 2)
    )
    assert [w.name for w in first.trainable_variables] == ["kernel"]
    np.testing.assert_array_equal(first.projection, second.projection)
    assert np.abs(first.projection.numpy() - other.projection.numpy()).min() > 0


def test_sampling_all_classes_is_the_exact_loss():
    x, y = data(labels_wide=2)
    heads = [
        built(layers.ProjectedSoftmax(CLASSES, WIDTH, seed=1, **options))
        for options in (
            {"l2": 0.1},
            {"l2": 0.1, "sampler": "uniform", "num_sampled": CLASSES},
        )
    ]
    found = []
    for head in heads:
        features = tf.constant(x)
        with tf.GradientTape() as tape:
            tape.watch(features)
            loss = head.compute_loss(features, y, training=True)
        gradients = tape.gradient(loss, [features, head.kernel.value])
        found.append([loss, *map(tf.convert_to_tensor, gradients)])
    for exact, sampled in zip(*found):
        np.testing.assert_allclose(sampled, exact, **TOLERANCE)


@pytest.mark.parametrize("kind", ["exact", "adaptive"])
def test_penalty(kind):
    head = {
        "exact": lambda l2: layers.ProjectedSoftmax(CLASSES, WIDTH, l2=l2),
        "adaptive": lambda l2: TestAdaptiveProjectedSoftmax().make_head(l2=l2),
    }[kind]
    x, y = data()
    plain, penalized = built(head(0.0)), built(head(0.3))
    penalized.projection.assign(plain.projection)
    squares = sum(np.sum(w.numpy() ** 2) for w in plain.trainable_variables)
    np.testing.assert_allclose(
        penalized.compute_loss(x, y, training=True)
        - plain.compute_loss(x, y, training=True),
        0.15 * squares,
        rtol=1e-4,
    )
    # An evaluation is of the cross-entropy alone.
    np.testing.assert_allclose(
        penalized.compute_loss(x, y), plain.compute_loss(x, y), rtol=1e-6
    )


def test_sampled_penalty_is_right_on_average_and_row_sparse():
    head = built(
        layers.ProjectedSoftmax(
            CLASSES, WIDTH, num_sampled=20, sampler="uniform", l2=0.2, seed=3
        )
    )
    x, y = data(rows=4)
    penalties = []
    for _ in range(300):
        sample = head.sampler.sample(
            head.queries(x), tf.constant(y[:, None]), head.kernel
        )
        kernel, _ = head.sampled_rows(sample)
        penalties.append(float(head.sampled_penalty(kernel, sample)))
    expected = 0.1 * np.sum(head.kernel.numpy() ** 2)
    error = np.std(penalties) / np.sqrt(len(penalties))
    assert abs(np.mean(penalties) - expected) < 5 * error
    with tf.GradientTape() as tape:
        loss = head.compute_loss(x, y, training=True)
    gradient = tape.gradient(loss, head.kernel.value)
    assert isinstance(gradient, tf.IndexedSlices)
    assert len(gradient.indices) == 20  # gathered once


def test_sampled_penalty_where_each_row_has_its_classes(monkeypatch):
    x, y = data(rows=4)
    random = np.random.default_rng(0)
    labels = np.unique(y)
    ids = np.r_[labels, np.setdiff1d(np.arange(CLASSES), labels)[:9]]
    shape = len(y), len(ids)
    positions = np.searchsorted(labels, y)
    mask = random.random(shape) < 0.5
    mask[np.arange(len(y)), positions] = True
    counts = np.where(mask, -random.random(shape), 0.0).astype("f")
    sample = samplers.Sample(
        tf.constant(ids), tf.constant(counts), positions[:, None], mask=mask
    )
    losses = []
    for l2 in (0.2, 0.0):
        head = built(
            layers.ProjectedSoftmax(CLASSES, WIDTH, 30, "uniform", l2=l2)
        )
        head.kernel.assign(np.ones((CLASSES, WIDTH)))
        head.projection.assign(np.ones((DIM, WIDTH)))
        monkeypatch.setattr(head.sampler, "sample", lambda *args: sample)
        losses.append(head.compute_loss(x, y, training=True))
    expected = 0.1 * WIDTH * np.sum(mask * np.exp(-counts), axis=1)
    np.testing.assert_allclose(losses[0] - losses[1], expected, rtol=1e-4)


@pytest.mark.parametrize(
    "sampler",
    [
        samplers.TopKSampler(20, correct_fill=False),
        samplers.LSHSampler(20, correction="none"),
        samplers.LSHSampler(20, negatives="sample"),
    ],
)
def test_penalty_of_a_sum_that_is_not_estimated_is_refused(sampler):
    with pytest.raises(ValueError, match="`l2` is a sum over all classes"):
        layers.ProjectedSoftmax(CLASSES, WIDTH, sampler=sampler, l2=0.1)


def test_counts_make_groups_of_equal_shares():
    sizes = layers.split_by_frequency([8, 4, 2, 2, 2, 2, 2, 2], 4)
    assert sizes == [1, 1, 3, 3]
    head = layers.AdaptiveProjectedSoftmax(8, sizes)
    assert head.get_config()["group_sizes"] == head.group_sizes == sizes


ERRORS = {
    "width of zero": (layers.ProjectedSoftmax, {"projection_dim": 0}, "`proj"),
    "negative l2": (
        layers.ProjectedSoftmax,
        {"l2": -1.0},
        "`l2` must be finite and >= 0",
    ),
    "text as l2": (
        layers.ProjectedSoftmax,
        {"l2": "weak"},
        "`l2` must be finite and >= 0. Received: 'weak'",
    ),
    "l2 of cosine": (
        layers.ProjectedSoftmax,
        {"l2": 1.0, "similarity": "cosine"},
        "`l2` needs",
    ),
    "size without a sampler": (
        layers.ProjectedSoftmax,
        {"num_sampled": 10},
        "`num_sampled` needs a `sampler`",
    ),
    "empty group": (
        layers.AdaptiveProjectedSoftmax,
        {"group_sizes": [60, 0], "projection_dims": [4, 2]},
        "`group_sizes` must be a positive",
    ),
    "sizes that do not sum up": (
        layers.AdaptiveProjectedSoftmax,
        {"group_sizes": [30, 20], "projection_dims": [4, 2]},
        "50 classes in 2 groups",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    cls, arguments, message = ERRORS[name]
    with pytest.raises(ValueError, match=message):
        cls(CLASSES, **arguments)


def test_cosine_of_projected_features():
    head = built(
        layers.ProjectedSoftmax(
            CLASSES, WIDTH, similarity=layers.Cosine(scale=9.0), activation=None
        )
    )
    x, _ = data()
    expected = reference.head_logits(
        project(head, x), head.kernel.numpy(), None, "cosine", 9.0
    )
    np.testing.assert_allclose(head(x), expected, **TOLERANCE)


def test_a_saved_model_keeps_its_projection(tmp_path):
    head = layers.ProjectedSoftmax(CLASSES, WIDTH)
    model = keras.Sequential([keras.Input((DIM,)), head])
    x, _ = data()
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded.layers[-1].projection, head.projection)
    np.testing.assert_array_equal(loaded(x), model(x))
