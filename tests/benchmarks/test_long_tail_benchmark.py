"""The comparison of losses for long tails, on tiny data."""

import json

import numpy as np
import pytest

from benchmarks import long_tail
from benchmarks import long_tail_train
from benchmarks import measure
from benchmarks.comparison import readers
from tfxclass.metrics import propensities


@pytest.fixture(scope="module")
def data():
    return readers.read_generated(num_classes=40)


class TestJobs:
    """Their results are made up here."""

    @pytest.fixture
    def given(self, tmp_path, monkeypatch):
        trained = []

        def train(_, script, job, path, folder):
            job = long_tail.Job(*json.loads(job))
            trained.append(job)
            if job.seed == 9:
                return {"error": "no memory"}
            scores = {"P@1": 0.5 + job.seed / 10, "PSP@1": 0.25, "F1 1-5": 0.1}
            return {"cpu_s": 3.0, "scores": scores}

        monkeypatch.setattr(measure, "in_fresh_process", train)
        monkeypatch.setattr(long_tail.sets_lib, "prepare", lambda *_: None)
        folders = "--jobs", str(tmp_path / "j"), "--out", str(tmp_path / "o")
        losses = "--losses", "plain", "adjusted 1"
        return trained, ["--sets", "generated", *losses, *folders]

    def test_resumed_and_shown(self, given, tmp_path, capsys):
        trained, options = given
        assert long_tail.main([*options, "--seeds", "0"]) == 0
        assert [j.loss for j in trained] == ["plain", "adjusted 1"]
        assert long_tail.main([*options, "--seeds", "0", "1"]) == 0
        # What has a result is not trained again.
        assert [j.seed for j in trained] == [0, 0, 1, 1]
        folder = tmp_path / "o" / "long_tail"
        record = json.loads((folder / "generated.json").read_text())
        assert {*record} == {"date", "machine", "command", "rows"}
        assert [row["loss"] for row in record["rows"]] == [
            "plain",
            "adjusted 1",
        ]
        row = record["rows"][0]
        assert row["P@1"] == pytest.approx(0.55) and row["seeds"] == 2
        assert (row["P@1 least"], row["P@1 most"]) == (0.5, 0.6)
        assert (folder / "generated.png").stat().st_size > 1000
        assert "adjusted 1" in capsys.readouterr().out

    def test_what_failed_is_told_and_tried_again(self, given, capsys):
        trained, options = given
        for _ in range(2):
            assert long_tail.main([*options, "--seeds", "9"]) == 1
            assert "no memory" in capsys.readouterr().out
        assert len(trained) == 4


def test_scores_by_hand():
    """Three classes of 1, 2 and 9 training rows; one never in the test."""
    counts = np.array([9, 2, 1, 4])
    ids = np.array([[0, 1], [0, 2], [2, 0], [0, 3]])
    labels = np.array([[0, -1], [1, -1], [2, 0], [0, -1]])
    set_up = long_tail.SetUp(1, (1, 3), 1, ())
    sure = propensities(counts, 16)
    found = long_tail_train.scores(
        np.pad(ids, [[0, 0], [0, 3]], constant_values=-1),
        labels,
        counts,
        sure,
        set_up,
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


@pytest.mark.parametrize("name", ["eurlex57k", "generated"])
def test_every_loss_is_a_head(name, data):
    sure = propensities(data.counts, data.train.num_rows)
    heads = {}
    for loss in long_tail.SETS[name].losses:
        job = long_tail.Job(name, loss, 0)
        heads[loss] = long_tail_train.make_head(job, data, sure)
    used = {
        loss: head.loss_options and head.loss_options.used
        for loss, head in heads.items()
    }
    assert used["plain"] is None
    assert used["focal 2"] == ["focal_gamma"]
    assert used["adjusted 0.5"] == ["class_counts"]
    weights = heads["class_weight"].loss_options.class_weight
    assert np.average(weights, weights=data.counts) == pytest.approx(1)
    if name == "eurlex57k":
        assert heads["sigmoid propensities"].objective.name == "sigmoid"
        assert used["sigmoid propensities"] == ["propensities"]


@pytest.mark.slow
def test_a_plain_model_teaches_the_distilled_one(data, tmp_path):
    (tmp_path / "generated").mkdir()
    for loss in ("plain", "distilled 0.5"):
        job = long_tail.Job("generated", loss, 0)
        result = long_tail_train.run(job, data, str(tmp_path))
        assert result["scores"]["P@1"] > 0.2 and result["cpu_s"] > 0
    with np.load(job.teacher(tmp_path)) as teacher:
        assert teacher["ids"].shape == (data.train.num_rows, 10)
