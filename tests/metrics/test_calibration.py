"""Expected calibration error, by hand and by NumPy."""

import json

import keras
import numpy as np
import pytest

from tests.support.contract import CLASSES
from tests.support.contract import built
from tests.support.contract import data
from tests.support.contract import make_model
from tests.support.reference import head_logits
from tests.support.reference import softmax
from tfxclass import layers
from tfxclass import metrics


def identity_head(**options):
    head = layers.FullSoftmax(4, **options)
    head.build((None, 4))
    head.kernel.assign(np.eye(4, dtype=np.float32))
    return head


def update(metric, head, probabilities, labels, weights=None):
    output = head(np.log(probabilities).astype(np.float32))
    metric.update_state(np.array(labels), output, weights)


def calibration_error(probabilities, is_hit, bins, weights=None):
    """Bin by bin, as it is defined."""
    confidence = np.max(probabilities, axis=1)
    weights = np.ones(len(is_hit)) if weights is None else np.array(weights)
    total = 0.0
    for b in range(bins):
        inside = (confidence >= b / bins) & (confidence < (b + 1) / bins)
        if b == bins - 1:
            inside |= confidence == 1.0
        if weights[inside].sum():
            gap = np.average(confidence[inside], weights=weights[inside])
            gap -= np.average(is_hit[inside], weights=weights[inside])
            total += weights[inside].sum() * abs(gap)
    return total / weights.sum()


def test_by_hand():
    """Two rows of 0.7, one right, and one of 0.4, wrong: two bins of five."""
    head = identity_head()
    metric = metrics.ExpectedCalibrationError(head, num_bins=5)
    rows = [[0.7, 0.1, 0.1, 0.1], [0.1, 0.7, 0.1, 0.1], [0.2, 0.2, 0.2, 0.4]]
    update(metric, head, rows, [0, 0, 0])
    # (2 x |0.7 - 0.5| + 1 x |0.4 - 0|) / 3
    np.testing.assert_allclose(metric.result(), 0.8 / 3, rtol=1e-5)
    metric.reset_state()
    assert float(metric.result()) == 0.0


@pytest.mark.parametrize("bins", [1, 4, 15])
@pytest.mark.parametrize("weighted", [False, True])
def test_batches_equal_numpy(bins, weighted):
    random = np.random.default_rng(bins)
    rows = random.dirichlet(np.full(4, 0.5), 60)
    labels = np.stack([random.integers(0, 4, 60), np.full(60, -1)], axis=1)
    labels[::4, 1] = (labels[::4, 0] + 1) % 4  # several labels
    labels[7] = -1  # counts for nothing
    weights = random.uniform(0.1, 2.0, 60) if weighted else np.ones(60)
    head = identity_head()
    metric = metrics.ExpectedCalibrationError(head, bins)
    for part in np.split(np.arange(60), 3):
        given = weights[part] if weighted else None
        update(metric, head, rows[part], labels[part], given)
    hits = (rows.argmax(axis=1)[:, None] == labels).any(axis=1)
    weights[7] = 0.0
    expected = calibration_error(rows, hits, bins, weights)
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-4)


def test_certain_and_right_is_calibrated():
    head = identity_head()
    metric = metrics.ExpectedCalibrationError(head)
    output = head(100 * np.eye(4, dtype=np.float32))
    metric.update_state(np.arange(4), output)
    assert float(metric.result()) < 1e-6


def test_in_evaluate():
    head = built(layers.FullSoftmax(CLASSES))
    model = make_model(
        head, metrics=[metrics.ExpectedCalibrationError(head, 10)]
    )
    x, y = data()
    model.fit(x, y, batch_size=5, epochs=3, verbose=0)
    found = model.evaluate(x, y, batch_size=5, verbose=0, return_dict=True)
    features = model.layers[0](x).numpy()
    rows = softmax(head_logits(features, head.kernel.numpy()))
    expected = calibration_error(rows, rows.argmax(axis=1) == y, 10)
    np.testing.assert_allclose(
        found["expected_calibration_error"], expected, rtol=1e-4
    )


def test_config_round_trip_through_json():
    head = identity_head(name="products")
    metric = metrics.ExpectedCalibrationError(head, 7, name="mine")
    text = json.dumps(keras.saving.serialize_keras_object(metric))
    again = keras.saving.deserialize_keras_object(json.loads(text))
    assert again.get_config() == metric.get_config()
    assert (again.head_name, again.num_bins) == ("products", 7)


def test_invalid_use():
    with pytest.raises(ValueError, match="`num_bins` must be a positive"):
        metrics.ExpectedCalibrationError("head", 0)
    head = identity_head(activation=None, name="plain")
    metric = metrics.ExpectedCalibrationError(head)
    with pytest.raises(ValueError, match="'plain' with activation=None"):
        update(metric, head, np.full((2, 4), 0.25), [0, 1])
