"""Adam's epsilon on classes in groups: the jobs, their optimizer, the table."""

import json

import keras

from benchmarks import kept_jobs
from benchmarks.comparison import groups
from benchmarks.comparison import groups_epsilon
from benchmarks.comparison import groups_train
from tests.test_comparison_groups import curve_of
from tests.test_comparison_groups import stored


def test_jobs_are_told_apart_by_their_epsilon():
    usual = groups.GroupsJob(*groups.SMALL[0], 8, 9, "auto")
    assert "epsilon" not in usual.path
    jobs = groups_epsilon.make_jobs([0, 1])
    assert len({job.path for job in jobs}) == len(jobs) == 2 * 28
    assert jobs[0].path.endswith("seed=0,epsilon=0.01.json")


def test_the_optimizer_has_it():
    tiny = groups.GroupsJob(100, 10, 8, 16, 24, "uniform")
    model, _ = groups_train.make_model(tiny._replace(epsilon=0.5))
    assert model.optimizer.epsilon == 0.5
    usual, _ = groups_train.make_model(tiny)
    assert usual.optimizer.epsilon == keras.optimizers.Adam().epsilon


def test_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(groups, "CACHE", str(tmp_path / "jobs"))
    jobs = groups_epsilon.make_jobs([0])[:2]

    def run(job, module):
        assert module == "benchmarks.comparison.groups_train"
        with open(job.path, "w") as f:
            json.dump(stored(job, curve_of([0.1, 0.3])), f)
        return "done"

    (tmp_path / "jobs").mkdir()
    monkeypatch.setattr(kept_jobs, "run", run)
    monkeypatch.setattr(groups_epsilon, "make_jobs", lambda seeds: jobs)
    assert groups_epsilon.main(["--out", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "groups_epsilon.json").read_text())
    assert record["command"].endswith("groups_epsilon --seeds 0")
    told = [(r["method"], r["epsilon"], r["accuracy"]) for r in record["rows"]]
    assert told == [("uniform", 0.01, 0.3), ("auto", 0.01, 0.3)]
    assert record["rows"][0]["accuracy at half the steps"] == 0.1
