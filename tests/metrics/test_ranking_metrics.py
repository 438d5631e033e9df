"""PSP@k and nDCG@k, by hand and by NumPy; ranks with ties and NaN."""

import json
import math

import keras
import numpy as np
import pytest

import tfxclass
from tests.metrics.test_metrics import LOGITS
from tests.metrics.test_metrics import TOLERANCE
from tests.metrics.test_metrics import identity_head
from tests.metrics.test_metrics import result_of
from tests.support import reference
from tfxclass import layers
from tfxclass import metrics

# Inverses 2, 4, 5, 10.
PROPENSITIES = [0.5, 0.25, 0.2, 0.1]
SECOND = 1 / math.log2(3)
THIRD = 1 / 2

# Best first: rows 0, 1, 2 of LOGITS are classes 0123, 3210, 1023.
NDCG_BY_HAND = {
    "first": (1, [0, 3, 1], None, 1.0),
    "second": (2, [1, 2, 0], None, SECOND),
    "not among them": (2, [2, 0, 3], None, 0.0),
    "all of two": (2, [[0, 1], [2, 3], [0, 1]], None, 1.0),
    "one of two": (2, [[1, 3]] * 3, None, (SECOND + 1 + 1) / (1 + SECOND) / 3),
    "fewer labels than k": (
        3,
        [[2, -1], [-1, 3], [0, 3]],
        None,
        (THIRD + 1 + SECOND / (1 + SECOND)) / 3,
    ),
    "k past all classes": (4, [3, 0, 3], None, 1 / math.log2(5)),
    "unlabelled": (2, [[1, -1], [-1, -1], [-1, -1]], None, SECOND),
    "repeated": (2, [[1, 1], [3, 3], [0, 0]], None, (2 * SECOND + 1) / 3),
    "weighted": (2, [1, 3, 3], [1.0, 2.0, 5.0], (SECOND + 2) / 8),
}

PSP_BY_HAND = {
    "all hit": (1, [0, 3, 1], None, 1.0),
    # Gains 2, 0, 4 of 2, 2, 4.
    "a rare one missed": (1, [0, 0, 1], None, 6 / 8),
    "the rare one is best": (1, [[0, 3]] * 3, None, (2 + 10 + 0) / 30),
    "two": (2, [[0, 3], [2, 1], [3, 2]], None, (2 + 5 + 0) / (12 + 9 + 15)),
    "fewer labels than k": (3, [[2, -1], [0, -1], [1, 3]], None, 9 / 21),
    "k past all classes": (4, [[0, 1], [2, 3], [0, 3]], None, 1.0),
    "unlabelled": (1, [[0, -1], [-1, -1], [3, -1]], None, 2 / 12),
    "repeated": (2, [[0, 0], [2, 2], [2, 2]], None, 7 / 12),
    "weighted": (1, [0, 0, 1], [1.0, 2.0, 5.0], 22 / 26),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", NDCG_BY_HAND)
def test_ndcg_by_hand(name, training):
    k, labels, weights, expected = NDCG_BY_HAND[name]
    head = identity_head()
    metric = metrics.NDCGAtK(head, k)
    result = result_of(metric, head, labels, weights, training)
    np.testing.assert_allclose(result, expected, **TOLERANCE)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", PSP_BY_HAND)
def test_psp_by_hand(name, training):
    k, labels, weights, expected = PSP_BY_HAND[name]
    head = identity_head()
    metric = metrics.PropensityScoredPrecisionAtK(head, PROPENSITIES, k)
    result = result_of(metric, head, labels, weights, training)
    np.testing.assert_allclose(result, expected, **TOLERANCE)


def test_no_labels_at_all():
    head = identity_head()
    labels = -np.ones((3, 2), int)
    for metric in (
        metrics.NDCGAtK(head, 2),
        metrics.PropensityScoredPrecisionAtK(head, PROPENSITIES, 2),
    ):
        assert result_of(metric, head, labels) == 0.0


def random_case(seed, rows=40, classes=60):
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, 5)).astype(np.float32)
    # Between 0 and 6 labels, some repeated.
    labels = random.integers(0, classes, (rows, 6))
    labels[np.arange(6) >= random.integers(0, 7, rows)[:, None]] = -1
    counts = random.integers(0, 500, classes)
    return features, labels, metrics.propensities(counts, 1000)


def made(cls, head, k, propensities):
    if cls is metrics.PropensityScoredPrecisionAtK:
        return cls(head, propensities, k)
    return cls(head, k)


ALL = [
    metrics.PrecisionAtK,
    metrics.PropensityScoredPrecisionAtK,
    metrics.NDCGAtK,
]


@pytest.mark.parametrize("k", [1, 3, 5, 60])
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_equals_numpy_over_several_batches(k, similarity):
    features, labels, p = random_case(k)
    weights = np.random.default_rng(k).random(40).astype(np.float32)
    head = layers.FullSoftmax(60, similarity=similarity, seed=1)
    head.build((None, 5))
    ids, _ = reference.top_k(
        reference.head_logits(features, head.kernel.numpy(), None, similarity),
        k,
    )
    expected = reference.ranking_metrics(ids, labels, k, p, weights)
    for cls, value in zip(ALL, expected):
        metric = made(cls, head, k, p)
        for part in (slice(0, 7), slice(7, 30), slice(30, 40)):
            result = result_of(
                metric, head, labels[part], weights[part], x=features[part]
            )
        np.testing.assert_allclose(result, value, rtol=1e-5)


def test_training_ranks_among_the_classes_of_the_step():
    features, labels, p = random_case(0)
    head = layers.SampledSoftmax(60, num_sampled=60, seed=1)
    head.build((None, 5))
    ids, _ = reference.top_k(
        reference.head_logits(features, head.kernel.numpy()), 5
    )
    expected = reference.ranking_metrics(ids, labels, 5, p)
    for cls, value in zip(ALL, expected):
        metric = made(cls, head, 5, p)
        result = result_of(metric, head, labels, training=True, x=features)
        np.testing.assert_allclose(result, value, rtol=1e-5)


def test_training_ranks_by_logits_without_their_correction():
    """A label that leads all classes is first, however few are drawn."""
    head = layers.SampledSoftmax(1000, num_sampled=12, seed=1)
    head.build((None, 1000))
    head.kernel.assign(3.0 * np.eye(1000))
    labels = np.arange(10)
    metric = metrics.TopKAccuracy(head, k=1)
    x = np.eye(1000, dtype=np.float32)[labels]
    assert result_of(metric, head, labels, training=True, x=x) == 1.0


@pytest.mark.parametrize("cls", ALL)
def test_equal_logits_have_ranks_of_their_own(cls):
    """Or two labels would both be first, and precision 2."""
    head = layers.SampledSoftmax(4, num_sampled=4, seed=1)
    head.build((None, 4))
    labels = np.array([[0, 1], [2, 3]])
    zeros = np.zeros((2, 4), np.float32)
    metric = made(cls, head, 1, np.ones(4))
    # Of 4 equal classes, of which 2 are labels, one alone is first.
    assert 0 <= result_of(metric, head, labels, training=True, x=zeros) <= 1
    metric = made(cls, head, 4, np.ones(4))
    assert result_of(metric, head, labels, training=True, x=zeros) <= 1


@pytest.mark.parametrize("cls", ALL)
def test_padding_is_no_hit_where_logits_are_nan(cls):
    head = identity_head()
    x = np.full_like(LOGITS, np.nan)
    labels = [[0, -1]] * 3
    metric = made(cls, head, 2, PROPENSITIES)
    assert result_of(metric, head, labels, x=x) == 0.0


NOT_FINITE = {
    "features": lambda model: _fill(model.layers[0].bias, np.nan),
    "infinite": lambda model: _fill(model.layers[0].bias, np.inf),
    "one class": lambda model: _fill(model.layers[-1].kernel, np.nan, 7),
}

HEADS_OF_SAMPLES = {
    "full": lambda **o: layers.FullSoftmax(20, **o),
    "sampled": lambda **o: layers.SampledSoftmax(20, 20, **o),
    "auto": lambda **o: layers.SampledSoftmax(20, 20, "auto", **o),
    "hinge": lambda **o: layers.SampledSoftmax(
        20, 20, loss="squared_hinge", **o
    ),
    "noise contrastive": lambda **o: layers.NoiseContrastive(20, 20, **o),
    "negatives": lambda **o: layers.NegativeSampling(20, 20, **o),
    "sharded": lambda **o: layers.ShardedSoftmax(
        20, sampler="uniform", num_sampled=20, **o
    ),
}


def _fill(variable, value, row=slice(None)):
    values = variable.numpy()
    values[row] = value
    variable.assign(values)


@pytest.mark.filterwarnings("ignore:.*read the whole output")
@pytest.mark.parametrize("name", HEADS_OF_SAMPLES)
def test_a_model_that_diverged_is_never_right(name):
    """NaN is neither greater nor less, so a rank by `>` would be the first."""
    random = np.random.default_rng(0)
    x = random.normal(size=(8, 4)).astype(np.float32)
    y = random.integers(0, 20, (8, 2))
    head = HEADS_OF_SAMPLES[name](seed=1)
    model = keras.Sequential([keras.Input([4]), keras.layers.Dense(4), head])
    # All classes: without a rank, no label is among them.
    measures = [metrics.TopKAccuracy(head, k=20)]
    if name == "sampled":
        # They read the same ranks, and each of them has its own measure.
        measures.append(metrics.MeanReciprocalRank(head))
        measures.append(metrics.RecallAtK(head, k=20))
    measures.append(metrics.F1Score(head, threshold=0.0))
    model.compile(
        tfxclass.optimizers.LazySGD(0.0), loss=head.loss, metrics=measures
    )
    finite = model.get_weights()
    for case, diverge in NOT_FINITE.items():
        for run in (model.train_on_batch, model.test_on_batch):
            model.set_weights(finite)
            diverge(model)
            model.reset_metrics()
            found = run(x, y, return_dict=True)
            assert not np.isfinite(found.pop("loss")), case
            assert set(found.values()) == {0.0}, (case, found)


def test_a_row_of_nan_that_does_not_count_changes_nothing():
    head = identity_head()
    x = np.array(LOGITS, np.float32)
    x[1] = np.nan
    metric = metrics.CumulativeProbability(head)
    result = result_of(metric, head, [0, -1, 1], x=x)
    assert np.isfinite(result)
    assert np.isnan(result_of(metric, head, [0, 2, 1], x=x))


class TestPropensities:
    def test_by_hand(self):
        # log N = 3, so C = 2 * 4^0.5 = 4; (N_l + b)^-a = 1/2, 1/4.
        p = metrics.propensities([1, 13], math.e**3, a=0.5, b=3)
        np.testing.assert_allclose(p, [1 / (1 + 4 / 2), 1 / (1 + 4 / 4)])

    def test_defaults_are_the_published_ones(self):
        counts = np.random.default_rng(0).integers(0, 5000, 50)
        expected = [
            reference.propensity(count, 45_000, 0.55, 1.5) for count in counts
        ]
        p = metrics.propensities(counts, 45_000)
        assert p.dtype == np.float64
        np.testing.assert_allclose(p, expected)

    def test_rise_with_the_count_within_0_and_1(self):
        p = metrics.propensities(np.arange(1000), 1000)
        assert np.all(np.diff(p) > 0) and 0 < p[0] and p[-1] < 1

    INVALID = {
        "negative": (([1, -1], 100), "`label_counts` must be finite and >= 0"),
        "rank": (([[1, 1]], 100), "`label_counts` must have shape"),
        "nan": (([math.nan], 100), "`label_counts` must be finite and >= 0"),
        "num_rows": (([1], 2), "`num_rows` must be at least 3"),
        "a": (([1], 100, 0.0), "`a` must be finite and > 0. Received: 0.0"),
        "b": (([1], 100, 0.5, -1), "`b` must be finite and > 0. Received: -1"),
    }

    @pytest.mark.parametrize("name", INVALID)
    def test_invalid(self, name):
        arguments, message = self.INVALID[name]
        with pytest.raises(ValueError, match=message):
            metrics.propensities(*arguments)


@pytest.mark.parametrize(
    "propensities", [[0.5, 0.0], [0.5, 1.5], [[0.5]], [math.nan]]
)
def test_psp_needs_propensities(propensities):
    with pytest.raises(
        ValueError, match="`propensities` must (be numbers in|have shape)"
    ):
        metrics.PropensityScoredPrecisionAtK("head", propensities)


def test_psp_needs_one_propensity_a_class():
    head = identity_head()
    metric = metrics.PropensityScoredPrecisionAtK(head, [0.5] * 3)
    with pytest.raises(ValueError, match="Received: 3 numbers with num_class"):
        result_of(metric, head, [0, 1, 2])


@pytest.mark.parametrize("cls", ALL)
def test_invalid_k(cls):
    with pytest.raises(ValueError, match="`k` must be a positive integer"):
        made(cls, "head", 0, PROPENSITIES)


@pytest.mark.parametrize("cls", ALL)
def test_config_round_trip_through_json(cls):
    metric = made(cls, identity_head(name="products"), 3, PROPENSITIES)
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(metric)))
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is cls and again.get_config() == metric.get_config()
    assert (again.head_name, again.k) == ("products", 3)


def test_in_fit_save_load_and_evaluate(tmp_path):
    features, labels, p = random_case(3)
    head = layers.SampledSoftmax(60, 40, seed=0)
    model = keras.Sequential([keras.Input([5]), head])
    model.compile(
        tfxclass.optimizers.LazyAdam(0.05),
        loss=head.loss,
        weighted_metrics=[made(cls, head, 3, p) for cls in ALL],
    )
    model.fit(features, labels, batch_size=8, epochs=3, verbose=0)
    weights = np.random.default_rng(1).random(40).astype(np.float32)
    ids, _ = reference.top_k(
        reference.head_logits(features, head.kernel.numpy()), 3
    )
    expected = reference.ranking_metrics(ids, labels, 3, p, weights)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    result = loaded.evaluate(
        features,
        labels,
        sample_weight=weights,
        batch_size=8,
        verbose=0,
        return_dict=True,
    )
    for name, value in zip(("precision", "psp", "ndcg"), expected):
        np.testing.assert_allclose(result[f"{name}_at_3"], value, rtol=1e-5)
