"""`calibrate`: temperature and thresholds, saved, exported, drawn."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.metrics.test_metrics import identity_head
from tests.support import reference
from tests.support.contract import DIM
from tests.support.contract import built
from tfxclass import calibration
from tfxclass import layers
from tfxclass.calibration.label_thresholds import Pairs
from tfxclass.calibration.label_thresholds import best_thresholds
from tfxclass.calibration.reliability import in_bins
from tfxclass.export.searches import ModelSearch

CLASSES, ROWS = 6, 1500


def true_model(loss, sharpness=1.0, classes=CLASSES):
    """Labels drawn by a head whose logits are `sharpness` times the model's."""
    random = np.random.default_rng(0)
    head = layers.FullSoftmax(
        classes, loss=loss, use_bias=True, activation="auto"
    )
    model = keras.Sequential([keras.Input([DIM], name="x"), head])
    head.kernel.assign(random.normal(size=(classes, DIM)))
    head.bias.assign(random.normal(size=classes))
    x = random.normal(size=(ROWS, DIM)).astype(np.float32)
    logits = sharpness * head.logits(x).numpy()
    if loss == "softmax":
        gumbel = random.gumbel(size=logits.shape)
        return model, x, (logits + gumbel).argmax(axis=1)
    has = random.random(logits.shape) < reference.sigmoid(logits)
    y = np.where(has, np.arange(classes), -1)
    return model, x, y


@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_temperature_of_the_truth_is_found(loss):
    model, x, y = true_model(loss, sharpness=0.4)
    head = model.layers[-1]
    logits = head.logits(x).numpy()
    found = tfxclass.calibrate(model, (x, y))
    # Labels are random: 0.15 is three standard errors.
    np.testing.assert_allclose(found.temperature, 1 / 0.4, rtol=0.15)
    assert found.loss < found.loss_before

    def mean_loss(temperature):
        labelled = (y >= 0).any(axis=1) if y.ndim == 2 else y >= 0
        losses = (
            reference.cross_entropy(logits / temperature, y)
            if loss == "softmax"
            else reference.one_vs_rest(logits / temperature, y, loss)
        )
        return losses.sum() / labelled.sum()

    np.testing.assert_allclose(
        [found.loss_before, found.loss],
        [mean_loss(1.0), mean_loss(found.temperature)],
        rtol=1e-5,
    )
    for near in (0.98, 1.02):
        assert mean_loss(near * found.temperature) > found.loss - 1e-6


@pytest.mark.parametrize("loss", ["softmax", "sigmoid", "squared_hinge"])
@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_temperature_is_in_all_answers(loss, similarity, tmp_path):
    head = built(
        layers.FullSoftmax(
            20,
            loss=loss,
            similarity=similarity,
            use_bias=similarity == "dot",
        )
    )
    head.answer_temperature = 2.5
    x = np.random.default_rng(1).normal(size=(5, DIM)).astype(np.float32)
    y, logits = np.arange(5), head.logits(x).numpy()
    plain = {"softmax": reference.softmax, "squared_hinge": reference.sigmoid}
    p = plain.get(loss, reference.sigmoid)(logits / 2.5)
    np.testing.assert_allclose(head(x), p, rtol=1e-5)
    ids, scores = head.top_k(x, 3)
    np.testing.assert_allclose(scores, -np.sort(-p)[:, :3], rtol=1e-5)
    ours = (
        head.top_k(x, 3, weights=head.export_weights())[1],
        ModelSearch(head, head.export_weights()).scores(x),
    )
    np.testing.assert_allclose(ours[0], scores, rtol=1e-5)
    np.testing.assert_allclose(ours[1], p, rtol=1e-5)
    # Losses are of the plain logits.
    expected = (
        reference.cross_entropy(logits, y)
        if loss == "softmax"
        else reference.one_vs_rest(logits, y, loss)
    )
    np.testing.assert_allclose(head.compute_loss(x, y), expected, rtol=1e-5)
    logits_head = built(layers.FullSoftmax(20, activation=None))
    logits_head.answer_temperature = 2
    np.testing.assert_array_equal(logits_head(x), logits_head.logits(x))


def test_calibrated_model_is_saved_and_exported(tmp_path):
    """As Keras file, SavedModel and ONNX; `predict` before is not kept."""
    model, x, y = true_model("sigmoid", sharpness=0.5, classes=30)
    before = model.predict(x[:50], verbose=0)
    found = tfxclass.calibrate(model, (x, y), thresholds="macro")
    after = model.predict(x[:50], verbose=0)
    assert np.abs(after - before).max() > 0.1
    best = tfxclass.top_k(model, 30, "calibrated")
    ids, scores = best.predict(x[:50], verbose=0)
    for row, own in zip(after, ids):
        kept = set(np.flatnonzero(row >= found.thresholds))
        assert set(own[own >= 0]) == kept
    path = str(tmp_path / "m.keras")
    model.save(path)
    loaded = keras.models.load_model(path)
    np.testing.assert_array_equal(loaded.predict(x[:50], verbose=0), after)
    folder = tfxclass.export.saved_model(
        loaded, tmp_path / "served", top_k=30, threshold="calibrated"
    )
    served = tf.saved_model.load(folder).signatures["serving_default"]
    answers = served(x=tf.constant(x[:50]))
    np.testing.assert_array_equal(answers["ids"], ids)
    np.testing.assert_allclose(answers["scores"], scores, rtol=1e-5)
    pytest.importorskip("tf2onnx")
    tfxclass.export.onnx(loaded, tmp_path / "onnx", top_k=5)


def test_a_class_that_is_never_an_answer_is_saved(tmp_path):
    """One whose probability is 1 in rows that do not have it."""
    head = layers.FullSoftmax(CLASSES, loss="sigmoid")
    model = keras.Sequential([keras.Input([DIM]), head])
    rows = np.random.default_rng(0).normal(size=(CLASSES, DIM))
    head.kernel.assign(np.where(np.arange(CLASSES)[:, None] == 2, 99.0, rows))
    x = np.abs(np.random.default_rng(1).normal(size=(50, DIM))).astype("f")
    found = tfxclass.calibrate(
        model, (x, np.zeros(50, int)), False, "micro", CLASSES, shrinkage=0
    )
    path = str(tmp_path / "m.keras")
    model.save(path)
    loaded = keras.models.load_model(path)
    assert head.activate(head.logits(x)).numpy()[:, 2].min() == 1
    assert found.thresholds[2] > 1
    np.testing.assert_array_equal(loaded.layers[-1].thresholds[:], found[3])
    ids, _ = tfxclass.top_k(loaded, 3, "calibrated").predict(x, verbose=0)
    assert 2 not in ids and 0 in ids


def make_pairs(seed, labels=3, rows=7, values=4):
    """Some pairs without a candidate; scores repeat."""
    random = np.random.default_rng(seed)
    truth = random.random((rows, labels)) < 0.4
    scores = random.integers(1, values + 1, truth.shape) / (values + 1)
    seen = random.random(truth.shape) < 0.8
    ids = np.broadcast_to(np.arange(labels), truth.shape)
    return Pairs(
        ids[seen],
        scores[seen].astype(np.float32),
        truth[seen],
        truth.sum(axis=0),
    )


def f1_of(pairs, thresholds, average):
    answers = pairs.scores >= np.asarray(thresholds)[pairs.ids]
    count = len(pairs.positives)
    made = np.bincount(pairs.ids[answers], minlength=count)
    hits = np.bincount(pairs.ids[answers & pairs.hits], minlength=count)
    total = made + pairs.positives
    if average == "micro":
        return 2 * hits.sum() / max(total.sum(), 1)
    each = [2 * h / t for h, t in zip(hits, total) if t]
    return sum(each) / max(len(each), 1)


@pytest.mark.parametrize("average", ["micro", "macro"])
@pytest.mark.parametrize("seed", range(8))
def test_thresholds_are_the_best_of_all(average, seed):
    """All cuts of three labels, tried out."""
    pairs = make_pairs(seed)
    thresholds, f1 = best_thresholds(pairs, average, shrinkage=0)
    np.testing.assert_allclose(f1, f1_of(pairs, thresholds, average))
    cuts = [0.1, 0.3, 0.5, 0.7, 0.9]
    # Macro-F1 over labels that occur; other answers would be counted.
    if average == "macro" and not pairs.positives.all():
        return
    tried = [
        f1_of(pairs, t, average) for t in itertools.product(cuts, repeat=3)
    ]
    np.testing.assert_allclose(f1, max(tried))


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_labels_of_few_rows_are_near_the_common_threshold(average):
    pairs = make_pairs(3, labels=30, rows=20, values=50)
    own, common, between = (
        best_thresholds(pairs, average, s)[0] for s in (0, 1e12, 10)
    )
    assert len(set(own)) > 10 and np.ptp(common) < 1e-6
    share = pairs.positives / (pairs.positives + 10)
    odds = share * np.log(own / (1 - own))
    odds += (1 - share) * np.log(common / (1 - common))
    np.testing.assert_allclose(between, reference.sigmoid(odds), rtol=1e-5)


def test_shrunk_thresholds_serve_other_rows_better():
    """Than each label's own and than one for all, on the mean of draws."""
    found = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        # Labels of other scales, so of other cuts, and nine rows for each.
        scale = np.linspace(0.9, 1.0, 40)
        truth = random.random((600, 40)) < 0.03
        noise = random.random(truth.shape)
        scores = scale * (0.4 * truth + 0.6 * noise)
        parts = []
        for rows in (slice(0, 300), slice(300, 600)):
            ids = np.broadcast_to(np.arange(40), truth[rows].shape)
            parts.append(
                Pairs(
                    ids.ravel(),
                    scores[rows].ravel().astype(np.float32),
                    truth[rows].ravel(),
                    truth[rows].sum(axis=0),
                )  # fmt: skip
            )
        found.append(
            [
                f1_of(
                    parts[1], best_thresholds(parts[0], "micro", s)[0], "micro"
                )
                for s in (0, 20, 1e12)
            ]
        )
    own, shrunk, common = np.mean(found, axis=0)
    assert shrunk > own and shrunk > common


def test_pairs_without_a_hit_and_without_pairs():
    none = Pairs(
        np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, bool),
        np.array([2, 0]),
    )  # fmt: skip
    thresholds, f1 = best_thresholds(none)
    assert f1 == 0 and np.all(thresholds == 0.5)
    wrong = Pairs(
        np.array([0, 0, 1]), np.array([0.3, 1.0, 0.9], np.float32),
        np.zeros(3, bool), np.array([5, 5]),
    )  # fmt: skip
    thresholds, f1 = best_thresholds(wrong, shrinkage=0)
    assert f1 == 0 and not np.any(wrong.scores >= thresholds[wrong.ids])


def test_reliability_by_hand():
    found = in_bins(
        np.array([0.1, 0.2, 0.9, 0.95, 1.0]), np.array([0, 1, 1, 1, 0]), 2
    )
    np.testing.assert_array_equal(found.counts, [2, 3])
    np.testing.assert_allclose(found.confidence, [0.15, 0.95])
    np.testing.assert_allclose(found.accuracy, [0.5, 2 / 3])
    expected = (2 * 0.35 + 3 * (0.95 - 2 / 3)) / 5
    np.testing.assert_allclose(found.expected_calibration_error, expected)


@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_reliability_of_a_model(loss):
    model, x, y = true_model(loss)
    found = calibration.reliability_of(model, (x, y), num_bins=5)
    each_row = 1 if loss == "softmax" else CLASSES
    rows = len(x) if y.ndim == 1 else (y >= 0).any(axis=1).sum()
    assert found.counts.sum() == rows * each_row
    # Of 1,500 rows and 5 bins, a bin's share is off by 0.03 or so.
    assert found.expected_calibration_error < 0.06


INVALID = {
    "logits": (
        lambda: layers.FullSoftmax(4, activation=None),
        {},
        "activation=None",
    ),
    "kind": (lambda: layers.Sparsemax(4), {}, "Received: Sparsemax"),
    "thresholds": (
        lambda: layers.FullSoftmax(4),
        {"thresholds": "samples"},
        "`thresholds` must be one of",
    ),
    "k": (lambda: layers.FullSoftmax(4), {"k": 0}, "`k` must be"),
    "shrinkage": (
        lambda: layers.FullSoftmax(4),
        {"thresholds": "micro", "shrinkage": -1.0},
        "`shrinkage` must be finite",
    ),
    "labels": (
        lambda: layers.FullSoftmax(4),
        {"data": (np.zeros((2, 3), "f"), np.full(2, -1))},
        "rows with labels",
    ),
    "data": (lambda: layers.FullSoftmax(4), {"data": 3}, "must be data with"),
    "lengths": (
        lambda: layers.FullSoftmax(4),
        {"data": (np.zeros((2, 3), "f"), np.zeros(5, int))},
        "arrays of the same length. Received: 2, 5 rows",
    ),
    "weights": (
        lambda: layers.FullSoftmax(4),
        {
            "data": tf.data.Dataset.from_tensors(
                (np.zeros((2, 3), "f"), np.zeros(2, int), np.ones(2))
            )
        },
        "`data` must give batches (x, y). Received: tuple of 3",
    ),
    "temperature": (
        lambda: layers.FullSoftmax(4),
        {"temperature": 2.0},
        "`temperature` must be True or False",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_use(name):
    make, options, part = INVALID[name]
    model = keras.Sequential([keras.Input([3]), make()])
    data = (np.zeros((2, 3), np.float32), np.zeros(2, int))
    with pytest.raises(ValueError) as error:
        tfxclass.calibrate(model, **{"data": data, **options})
    assert part in str(error.value)


def test_bad_values_of_heads():
    head = layers.FullSoftmax(4)
    for name, value, part in (
        (
            "answer_temperature",
            0.0,
            "`answer_temperature` must be finite and > 0",
        ),
        ("thresholds", [0.5], "1 numbers with num_classes=4"),
        ("thresholds", [0.5, 2.0, 0, 0], "in [0, 1]"),
    ):
        with pytest.raises(ValueError) as error:
            setattr(head, name, value)
        assert part in str(error.value)
    with pytest.raises(ValueError, match="has no `answer_temperature`"):
        layers.Sparsemax(4).answer_temperature = 2.0
    model = keras.Sequential([keras.Input([4]), identity_head()])
    with pytest.raises(ValueError, match="needs a head with thresholds"):
        tfxclass.top_k(model, 2, "calibrated")
    with pytest.raises(ValueError, match="`threshold` must be None"):
        tfxclass.top_k(model, 2, "own")


@pytest.mark.parametrize("thresholds", [None, "micro"])
def test_a_model_of_nan_is_refused(thresholds):
    model = keras.Sequential([keras.Input([3]), layers.FullSoftmax(4)])
    data = (np.full((2, 3), np.nan, np.float32), np.zeros(2, int))
    with pytest.raises(ValueError, match="finite logits.*nan"):
        tfxclass.calibrate(model, data, thresholds=thresholds)
