"""Recall, R-precision, MRR and F1 of heads: as the NumPy ones."""

import json

import keras
import numpy as np
import pytest

from tests.metrics.test_metrics import identity_head
from tests.metrics.test_metrics import result_of
from tests.support.contract import CLASSES
from tests.support.contract import built
from tests.support.contract import data
from tfxclass import layers
from tfxclass import metrics

MADE = {
    "recall_at_5": lambda head: metrics.RecallAtK(head, 5),
    "r_precision_at_5": lambda head: metrics.RPrecisionAtK(head, 5),
    "mean_reciprocal_rank": lambda head: metrics.MeanReciprocalRank(head),
    "micro_f1": lambda head: metrics.F1Score(head, 0.9),
    "macro_f1": lambda head: metrics.F1Score(head, 0.9, "macro"),
}


@pytest.fixture(scope="module")
def case():
    """A head, rows with up to three labels, and NumPy's measures of them."""
    head = built(layers.FullSoftmax(CLASSES, loss="sigmoid"))
    x, y = data(rows=50, labels_wide=3)
    y = np.array([[*dict.fromkeys(row), -1, -1][:3] for row in y])
    y[7] = -1
    ids, scores = (v.numpy() for v in head.top_k(x, CLASSES))
    # A rank of any class.
    ranking = metrics.ranking_scores(ids, y, (5, CLASSES))
    labelled = (y >= 0).any(axis=1)
    micro, macro = metrics.f1_scores(
        ids[labelled], scores[labelled], y[labelled], CLASSES, 0.9
    )
    expected = {"micro_f1": micro, "macro_f1": macro}
    return head, x, y, {**ranking, **expected}


@pytest.mark.parametrize("name", MADE)
def test_equals_the_function_of_answers(case, name):
    """In batches; once more from its config, after a reset."""
    head, x, y, expected = case
    metric = MADE[name](head)
    text = json.dumps(keras.saving.serialize_keras_object(metric))
    again = keras.saving.deserialize_keras_object(json.loads(text))
    for _ in range(2):
        for start in (0, 20, 40):
            rows = slice(start, start + 20)
            again.update_state(y[rows], head(x[rows]))
        np.testing.assert_allclose(
            float(again.result()), expected[name], rtol=1e-5
        )
        again.reset_state()
    assert again.name == metric.name


def test_of_a_sampled_step():
    """Ranks are those among the classes of the step, here all of them."""
    head = identity_head()
    for metric, labels, expected in (
        (metrics.RecallAtK(head, 2), [[0, 3], [3, -1], [2, 3]], 0.5),
        (metrics.MeanReciprocalRank(head), [1, 3, 3], (1 / 2 + 1 + 1 / 4) / 3),
    ):
        for training in (False, True):
            found = result_of(metric, head, labels, training=training)
            np.testing.assert_allclose(found, expected, rtol=1e-6)
            metric.reset_state()


def test_calibrated_thresholds():
    head = identity_head()
    head.thresholds = [0.6, 0.1, 0.9, 0.9]
    metric = metrics.F1Score(head, "calibrated")
    # Answers: 1; 1; 1.
    found = result_of(metric, head, [[0, 1], [1, -1], [2, 3]])
    np.testing.assert_allclose(found, 2 * 2 / (3 + 5), rtol=1e-6)


def test_weights_and_no_answers():
    head = identity_head()
    metric = metrics.F1Score(head, 0.45)
    found = result_of(metric, head, [0, 1, 2], [2.0, 1.0, 1.0])
    np.testing.assert_allclose(found, 2 * 2 / (2 + 4), rtol=1e-6)
    assert result_of(metrics.F1Score(head, 1.0), head, [0, 1, 2]) == 0.0


def test_bad_arguments():
    head = identity_head()
    with pytest.raises(ValueError, match="`average` must be one of"):
        metrics.F1Score(head, average="weighted")
    with pytest.raises(ValueError, match="`num_classes` must be"):
        metrics.F1Score("head", k=5)
    with pytest.raises(ValueError, match="`threshold` must be None"):
        result_of(metrics.F1Score(head, 2.0), head, [0, 1, 2])
