"""The metrics that never make the full output, by hand and by NumPy."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support import reference
from tfxclass import layers
from tfxclass import metrics
from tfxclass import samplers

# Logits are features . rows; with the identity as class matrix the features
# are the logits.
LOGITS = np.log(
    [
        [0.5, 0.3, 0.15, 0.05],
        [0.1, 0.2, 0.3, 0.4],
        [0.3, 0.4, 0.2, 0.1],
    ]
).astype(np.float32)
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


def identity_head(**options):
    head = layers.FullSoftmax(4, **options)
    head.build((None, 4))
    head.kernel.assign(np.eye(4, dtype=np.float32))
    return head


def result_of(metric, head, labels, weights=None, training=False, x=LOGITS):
    labels = np.array(labels)
    output = head(x, training=training)
    head.loss(labels, output)
    metric.update_state(labels, output, weights)
    return float(metric.result())


BY_HAND = {
    # Best first: rows 0, 1, 2 are classes 0123, 3210, 1023.
    "accuracy_1": (metrics.TopKAccuracy, 1, [0, 2, 1], None, 2 / 3),
    "accuracy_2": (metrics.TopKAccuracy, 2, [3, 2, 0], None, 2 / 3),
    "accuracy_all": (metrics.TopKAccuracy, 4, [3, 0, 3], None, 1.0),
    "accuracy_multi": (
        metrics.TopKAccuracy,
        1,
        [[3, 0], [0, 1], [-1, 1]],
        None,
        2 / 3,
    ),
    "accuracy_unlabelled": (
        metrics.TopKAccuracy,
        1,
        [[0, -1], [-1, -1], [3, -1]],
        None,
        1 / 2,
    ),
    "accuracy_weighted": (
        metrics.TopKAccuracy,
        1,
        [0, 2, 1],
        [1.0, 2.0, 5.0],
        6 / 8,
    ),
    "precision_1": (
        metrics.PrecisionAtK,
        1,
        [[0, 1], [0, 1], [0, 1]],
        None,
        2 / 3,
    ),
    "precision_2": (
        metrics.PrecisionAtK,
        2,
        [[0, 1], [3, -1], [2, 3]],
        None,
        (1.0 + 0.5 + 0.0) / 3,
    ),
    "precision_repeated": (
        metrics.PrecisionAtK,
        2,
        [[0, 0], [3, 3], [2, 2]],
        None,
        (0.5 + 0.5 + 0.0) / 3,
    ),
    "precision_weighted": (
        metrics.PrecisionAtK,
        2,
        [[0, 1], [3, -1], [2, 3]],
        [0.0, 3.0, 1.0],
        3 * 0.5 / 4,
    ),
    "cumulative_1": (
        metrics.CumulativeProbability,
        1,
        [0, 0, 0],
        None,
        (0.5 + 0.4 + 0.4) / 3,
    ),
    "cumulative_2": (
        metrics.CumulativeProbability,
        2,
        [0, 0, 0],
        None,
        (0.8 + 0.7 + 0.7) / 3,
    ),
    "cumulative_more_than_all": (
        metrics.CumulativeProbability,
        9,
        [0, 0, 0],
        None,
        1.0,
    ),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name, training):
    """FullSoftmax computes all classes in training as well."""
    cls, k, labels, weights, expected = BY_HAND[name]
    head = identity_head()
    result = result_of(cls(head, k), head, labels, weights, training)
    np.testing.assert_allclose(result, expected, **TOLERANCE)


def test_bias_counts_in_every_metric():
    bias = np.log([0.1, 1.0, 4.0, 1.0]).astype(np.float32)
    head = identity_head(use_bias=True)
    head.bias.assign(bias)
    falling = -np.sort(-reference.softmax(LOGITS + bias), axis=1)
    cumulated = result_of(
        metrics.CumulativeProbability(head, 2), head, [0, 1, 2]
    )
    np.testing.assert_allclose(
        cumulated, falling[:, :2].sum(axis=1).mean(), **TOLERANCE
    )
    best = np.argmax(LOGITS + bias, axis=1)
    accuracy = result_of(metrics.TopKAccuracy(head), head, best)
    assert accuracy == 1.0


def test_several_batches_are_one_mean_over_rows():
    head = identity_head()
    metric = metrics.TopKAccuracy(head)
    result_of(metric, head, [0, 3, 1])
    result = result_of(metric, head, [3], x=LOGITS[:1])
    np.testing.assert_allclose(result, 3 / 4)
    metric.reset_state()
    assert float(metric.result()) == 0.0


def test_sampled_accuracy_ranks_among_the_classes_of_the_step():
    """Two classes a step, both labels: no other class may be better."""
    head = layers.SampledSoftmax(4, num_sampled=2, seed=1)
    head.build((None, 4))
    head.kernel.assign(np.eye(4, dtype=np.float32))
    labels = np.array([3, 3, 2])
    for training, expected in ((True, 2 / 3), (False, 1 / 3)):
        metric = metrics.TopKAccuracy(head, 1)
        result = result_of(metric, head, labels, training=training)
        np.testing.assert_allclose(result, expected)
    # Row 2: class 2 is third of all, but first of classes 2 and 3.
    labels = np.array([2, 3, 2])
    sampled = metrics.TopKAccuracy(head, 1)
    assert result_of(sampled, head, labels, training=True) == 1.0
    exact = metrics.TopKAccuracy(head, 1)
    np.testing.assert_allclose(result_of(exact, head, labels), 1 / 3)
    precision = metrics.PrecisionAtK(head, 2)
    result = result_of(precision, head, labels, training=True)
    assert result == 0.5


@pytest.mark.parametrize("kind", [layers.FullSoftmax, layers.Sparsemax])
@pytest.mark.parametrize("k", [1, 4, 30])
def test_gradient_energy_equals_numpy(k, kind):
    head = kind(12, seed=0)
    head.build((None, 6))
    x = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    labels = np.array([[3, -1], [5, 6], [-1, -1], [0, -1]])
    logits = x @ head.kernel.numpy().T
    gradient = reference.softmax(logits)
    if kind is layers.Sparsemax:
        gradient = head(x).numpy()
    gradient[0, 3] -= 1
    gradient[1, [5, 6]] -= 0.5
    gradient[3, 0] -= 1
    energy = gradient[[0, 1, 3]] ** 2
    best = np.argsort(-logits[[0, 1, 3]], axis=1)[:, :k]
    of_best = np.take_along_axis(energy, best, axis=1).sum(axis=1)
    expected = (of_best / energy.sum(axis=1)).mean()
    metric = metrics.NormalizedCumulativeGradient(head, k)
    np.testing.assert_allclose(
        result_of(metric, head, labels, x=x), expected, rtol=1e-5
    )


@pytest.mark.parametrize("kind", ["full", "selective"])
def test_in_fit_and_evaluate(kind):
    """tests/metrics/test_ranking_metrics.py has one for SampledSoftmax."""
    head = {
        "full": lambda: layers.FullSoftmax(30),
        "selective": lambda: layers.SelectiveSoftmax(
            30,
            seed=0,
            sampler=samplers.HashingForestSampler(
                20, num_trees=2, leaf_size=5, rebuild_interval=2, seed=0
            ),
        ),
    }[kind]()
    model = keras.Sequential([keras.Input([5]), head])
    model.compile(
        optimizer=tfxclass.optimizers.LazyAdam(0.05),
        loss=head.loss,
        weighted_metrics=[metrics.TopKAccuracy(head, 3)],
        metrics=[
            metrics.PrecisionAtK(head, 2),
            metrics.CumulativeProbability(head, 5),
        ],
    )
    random = np.random.default_rng(0)
    x = random.normal(size=(24, 5)).astype(np.float32)
    y = random.integers(-1, 30, (24, 2))
    weights = random.random(24).astype(np.float32)
    model.fit(x, y, batch_size=8, epochs=6, verbose=0)
    result = model.evaluate(
        x, y, sample_weight=weights, batch_size=7, verbose=0, return_dict=True
    )
    logits = reference.head_logits(x, head.kernel.numpy())
    best = reference.top_k(logits, 3)[0]
    hits = np.array(
        [[c in row for c in best_row] for row, best_row in zip(y, best)]
    )
    has = np.any(y >= 0, axis=1)
    top_3 = (hits.any(axis=1) * weights)[has].sum() / weights[has].sum()
    falling = -np.sort(-reference.softmax(logits), axis=1)
    np.testing.assert_allclose(result["accuracy_at_3"], top_3, rtol=1e-5)
    np.testing.assert_allclose(
        result["precision_at_2"], hits[has][:, :2].mean(), rtol=1e-5
    )
    np.testing.assert_allclose(
        result["cumulative_probability_5"],
        falling[has][:, :5].sum(axis=1).mean(),
        rtol=1e-5,
    )


METRICS = [
    metrics.TopKAccuracy,
    metrics.PrecisionAtK,
    metrics.CumulativeProbability,
    metrics.NormalizedCumulativeGradient,
]


@pytest.mark.parametrize("cls", METRICS)
def test_config_round_trip_through_json(cls):
    head = identity_head(name="products")
    metric = cls(head, k=3, name="mine")
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(metric)))
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is cls
    assert again.get_config() == metric.get_config()
    assert (again.head_name, again.k, again.name) == ("products", 3, "mine")


@pytest.mark.parametrize("cls", METRICS)
def test_invalid_k(cls):
    with pytest.raises(ValueError, match="`k` must be a positive integer"):
        cls("head", 0)


@pytest.mark.parametrize("head", [3, keras.Sequential()])
def test_what_is_no_head(head):
    with pytest.raises(ValueError, match="`head` must be a head of tfxclass"):
        metrics.TopKAccuracy(head, 2)


def test_a_missing_head_is_told_by_the_metric():
    with pytest.raises(ValueError, match=r"`head`.*TopKAccuracy\(head, "):
        metrics.TopKAccuracy(k=2)


@pytest.mark.parametrize("head", ["ours", None])
def test_an_accuracy_that_would_always_be_one(head):
    model = identity_head(name="ours")
    with pytest.raises(ValueError, match="`k` must be at most the number"):
        metric = metrics.TopKAccuracy(head or model, k=5)
        result_of(metric, model, [0, 1, 2])


def test_needs_the_output_of_the_head():
    metric = metrics.TopKAccuracy("nobody")
    with pytest.raises(ValueError) as error:
        metric.update_state(np.zeros(3, int), identity_head()(LOGITS))
    for part in ("TopKAccuracy", "'nobody'", "another head"):
        assert part in str(error.value)


def test_probabilities_are_no_labels():
    head = identity_head()
    output = head(LOGITS)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
        metrics.TopKAccuracy(head).update_state(
            tf.constant([0.0, 0.5, 2.0]), output
        )
