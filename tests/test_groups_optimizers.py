"""Optimizers on classes in groups: the jobs, what they train by, the table."""

import json

import keras

from benchmarks import kept_jobs
from benchmarks.comparison import groups
from benchmarks.comparison import groups_optimizers
from benchmarks.comparison import groups_train
from tests.test_comparison_groups import curve_of
from tests.test_comparison_groups import stored


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
    assert not model.optimizer.shared_second_moment
    usual, _ = groups_train.make_model(tiny)
    assert usual.optimizer.epsilon == keras.optimizers.Adam().epsilon
    (job,) = groups.make_jobs([0], ("small",))[:1]
    model, _ = groups_train.make_model(tiny._replace(optimizer=job.optimizer))
    assert model.optimizer.shared_second_moment


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
    told = [(r["method"], r["optimizer"], r["accuracy"]) for r in record["rows"]]
    assert told == [
        ("lsh", "shared_second_moment=True", 0.3),
        ("uniform", "as Keras' Adam", 0.3),
    ]
    assert record["rows"][0]["accuracy at half the steps"] == 0.1
