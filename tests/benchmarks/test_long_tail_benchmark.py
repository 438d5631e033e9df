"""The comparison of losses for long tails, on tiny data."""

import numpy as np
import pytest

from benchmarks import long_tail
from benchmarks import measure
from benchmarks.comparison import sets
from tests.support.benchmark_sets import generated_rows
from tfxclass.metrics import propensities

# A script of benchmarks, which no user runs.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data():
    return generated_rows(num_classes=40)


def test_the_table_has_means_over_seeds(tmp_path, monkeypatch, capsys):
    """Results are made up here. What has one is not trained again."""
    trained = []

    def train(folder, loss, seed):
        trained.append((loss, seed))
        scores = {"P@1": 0.5 + seed / 10, "PSP@1": 0.25, "F1 1-5": 0.1}
        return {"cpu_s": 3.0, "scores": scores}

    monkeypatch.setattr(measure, "ask", train)
    for name in ("CACHE", "RESULTS"):
        monkeypatch.setattr(measure, name, str(tmp_path / name))
    losses = ("plain", "adjusted 1")
    monkeypatch.setattr(long_tail, "LOSSES", losses)
    monkeypatch.setattr(long_tail, "SHOWN", dict.fromkeys(losses, "a loss"))
    for seeds in ("1", "2"):
        long_tail.main(["--seeds", seeds])
    assert sorted(trained) == sorted(
        (loss, seed) for seed in (0, 1) for loss in losses
    )
    row, _ = measure.finished(long_tail.NAME)
    assert row["P@1"] == pytest.approx(0.55) and row["seeds"] == 2
    assert (row["P@1 least"], row["P@1 most"]) == (0.5, 0.6)
    figure = tmp_path / "RESULTS" / "long_tail" / "eurlex57k.png"
    assert figure.stat().st_size > 1000


def test_scores_by_hand():
    """Three classes of 1, 2 and 9 training rows; one never in the test."""
    counts = np.array([9, 2, 1, 4])
    ids = np.array([[0, 1], [0, 2], [2, 0], [0, 3]])
    labels = np.array([[0, -1], [1, -1], [2, 0], [0, -1]])
    sure = propensities(counts, 16)
    found = long_tail.scores(
        np.pad(ids, [[0, 0], [0, 3]], constant_values=-1),
        labels,
        counts,
        sure,
        ks=(1,),
        bands=(1, 3),
    )
    assert found["P@1"] == 0.75
    gain = 1 / sure
    reached = gain[0] + gain[2] + gain[0]
    assert found["PSP@1"] == pytest.approx(reached / (reached + gain[1]))
    # 0: 2 hits, 3 answers, 3 labels; 1: none; 2: always right.
    each = [2 * 2 / 6, 0.0, 1.0]
    assert found["macro-F1"] == pytest.approx(np.mean(each))
    assert found["F1 1-2"] == pytest.approx((0.0 + 1.0) / 2)
    assert found["F1 3+"] == pytest.approx(2 * 2 / 6)


def test_every_loss_is_a_head(data):
    sure = propensities(data.counts, data.train.num_rows)
    heads = {}
    for loss in long_tail.LOSSES:
        heads[loss] = long_tail.make_head(loss, 0, data, sure)
    used = {
        loss: head.loss_options and head.loss_options.used
        for loss, head in heads.items()
    }
    assert used["plain"] is None
    assert used["focal 2"] == ["focal_gamma"]
    assert used["adjusted 0.5"] == ["class_counts"]
    weights = heads["class_weight"].loss_options.class_weight
    assert np.average(weights, weights=data.counts) == pytest.approx(1)
    assert heads["sigmoid propensities"].objective.name == "sigmoid"
    assert used["sigmoid propensities"] == ["propensities"]


@pytest.mark.slow
def test_a_plain_model_learns(data):
    result = long_tail.run("plain", 0, data, sets.SETS["generated"])
    assert result["scores"]["P@1"] > 0.2 and result["cpu_s"] > 0
