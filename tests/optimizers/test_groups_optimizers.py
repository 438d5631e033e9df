"""Optimizers on classes in groups: the jobs, what they train by, the table."""

import json

import keras
import numpy as np
import pytest

from benchmarks import kept_jobs
from benchmarks.comparison import groups
from benchmarks.comparison import groups_optimizers
from benchmarks.comparison import groups_train
from benchmarks.comparison import jobs as jobs_lib
from benchmarks.comparison import row_moves
from benchmarks.comparison import text_optimizers
from benchmarks.comparison.jobs import Job
from tests.benchmarks.test_comparison_groups import curve_of
from tests.benchmarks.test_comparison_groups import stored


def test_jobs_are_told_apart_by_their_optimizer():
    usual = groups.GroupsJob(*groups.SMALL[0], 8, 9, "auto")
    assert "optimizer" not in usual.path
    jobs = groups_optimizers.make_jobs([0, 1])
    assert len({job.path for job in jobs}) == len(jobs) == 2 * 7 * (4 + 4 + 2)
    # Those of groups.py are not run again.
    others = groups.make_jobs([0], ("small",))
    assert {job.path for job in jobs} & {job.path for job in others}


def test_the_optimizer_has_what_is_asked_for():
    tiny = groups.GroupsJob(100, 10, 8, 16, 24, "uniform")
    asked = "learning_rate=0.5;epsilon=0.25"
    model, _ = groups_train.make_model(tiny._replace(optimizer=asked))
    assert model.optimizer.epsilon == 0.25
    assert float(model.optimizer.learning_rate) == 0.5
    assert model.optimizer.second_moment == "element"
    usual, _ = groups_train.make_model(tiny)
    assert usual.optimizer.epsilon == keras.optimizers.Adam().epsilon
    (job,) = groups.make_jobs([0], ("small",))[:1]
    model, _ = groups_train.make_model(tiny._replace(optimizer=job.optimizer))
    assert model.optimizer.second_moment == "matrix"


def test_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(groups, "CACHE", str(tmp_path / "jobs"))
    jobs = groups_optimizers.make_jobs([0])[3:5]

    def run(job, module):
        assert module == "benchmarks.comparison.groups_train"
        with open(job.path, "w") as f:
            json.dump(stored(job, curve_of([0.1, 0.3])), f)
        return "done"

    (tmp_path / "jobs").mkdir()
    monkeypatch.setattr(kept_jobs, "run", run)
    monkeypatch.setattr(groups_optimizers, "make_jobs", lambda seeds: jobs)
    assert groups_optimizers.main(["--out", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "groups_optimizers.json").read_text())
    assert record["command"].endswith("groups_optimizers --seeds 0")
    columns = "method", "optimizer", "accuracy"
    assert [tuple(map(row.get, columns)) for row in record["rows"]] == [
        ("lsh", "second_moment='matrix'", 0.3),
        ("uniform", "as Keras' Adam", 0.3),
    ]
    assert record["rows"][0]["accuracy at half the steps"] == 0.1


def test_text_in_equal_steps(tmp_path, monkeypatch):
    """Two jobs, of a few steps each: their table, and what is kept of them."""
    jobs = [
        Job("generated", "uniform", {}, 0, 0.5, limit=100, optimizer=optimizer)
        for optimizer in ("", f"learning_rate=5e-3;{groups.SHARED}")
    ]
    monkeypatch.setattr(text_optimizers, "CACHE", str(tmp_path))
    monkeypatch.setattr(text_optimizers, "EPOCHS", {"generated": 0.5})
    monkeypatch.setattr(text_optimizers, "make_jobs", lambda seeds: jobs)
    monkeypatch.setattr(text_optimizers, "run_jobs", run_here)
    arguments = ["--data", str(tmp_path), "--out", str(tmp_path)]
    assert text_optimizers.main(arguments) == 0
    rows = json.loads((tmp_path / "text_optimizers.json").read_text())["rows"]
    assert [row["optimizer"] for row in rows] == [j.optimizer for j in jobs]
    monkeypatch.setattr(text_optimizers, "run_jobs", None)
    assert text_optimizers.main([*arguments, "--figures"]) == 0


def test_text_jobs_are_apart_and_have_rates_of_their_sets():
    jobs = text_optimizers.make_jobs([0, 1])
    assert len({job.path("") for job in jobs}) == len(jobs) == 4 * 6 * 2
    rates = {
        job.optimizer for job in jobs if job.set == "verses" and job.seed == 0
    }
    assert "learning_rate=6.0e-03" in rates
    assert "learning_rate=1.8e-02;second_moment='matrix'" in rates


def run_here(pending, folder, paths):
    return jobs_lib.run_jobs(pending, folder, paths, jobs_lib.in_this_process)


def test_how_far_rows_move():
    """A quarter turn of a label's row, an eighth of a negative's; one rests."""
    before = np.array([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    after = np.array([[0.0, 3.0], [1.0, 1.0], [1.0, 1.0]])
    means = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    label, negative = row_moves.moves_of(before, after, np.array([0, 0]), means)
    assert label == {"degrees": pytest.approx(90), "gain": pytest.approx(1)}
    gain = pytest.approx(0.5**0.5 - 1)
    assert negative == {"degrees": pytest.approx(45), "gain": gain}


def test_moves_of_a_training(tmp_path, monkeypatch):
    monkeypatch.setattr(row_moves, "WATCHED", {1: "1", 6: "6"})
    tiny = groups.GroupsJob(100, 10, 8, 16, 24, "uniform")
    assert row_moves.main(str(tmp_path), tiny) == 0
    rows = json.loads((tmp_path / "row_moves.json").read_text())["rows"]
    assert [row["step"] for row in rows] == ["1", "6"] * 3
    # Adam's first steps are the same for all rows; classes are few here.
    parts = [r["negative, degrees"] / r["label, degrees"] for r in rows]
    assert parts[0] > 0.8 and parts[4] < 0.9 * parts[0]
