"""What is varied where neighbours pay: the jobs, their options, the table."""

import json

import pytest

from benchmarks import kept_jobs
from benchmarks.comparison import groups
from benchmarks.comparison import groups_sweeps
from benchmarks.comparison.sets import options_of
from benchmarks.comparison.usual_heads import make_head
from tests.benchmarks.test_comparison_groups import curve_of
from tests.benchmarks.test_comparison_groups import stored


def test_jobs_are_told_apart_by_their_option():
    usual = groups.GroupsJob(*groups.SMALL[0], 128, 3000, "forest")
    assert "option" not in usual.path
    jobs = groups_sweeps.make_jobs([0, 1])
    assert len({job.path for job in jobs}) == len(jobs) == 46 + 15
    assert jobs[0].path.endswith("seed=0,option=num_trees=2.json")


@pytest.mark.parametrize(
    "method", ["forest", "forest_paper", "lsh", "lsh_uncorrected"]
)
def test_an_option_is_the_samplers(method):
    for name, (methods, values) in groups_sweeps.SWEEPS.items():
        if method not in methods:
            continue
        option = options_of(f"{name}={values[0]}")
        sampler = make_head(method, 100, 40, 24.0, 0, **option).sampler
        owner = sampler if hasattr(sampler, name) else sampler.tables
        assert getattr(owner, name) == values[0]
    assert options_of("") == {}
    share = options_of("neighbor_fraction=0.9")
    assert (
        make_head(method, 100, 40, 24.0, 0, **share).sampler.get_config()[
            "neighbor_fraction"
        ]
        == 0.9
    )


def test_the_table_and_the_figure(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(groups, "CACHE", str(tmp_path / "jobs"))
    jobs = groups_sweeps.make_jobs([0, 1])[:12]
    ends = iter(range(12))

    def run(job, module):
        assert module == "benchmarks.comparison.groups_train"
        result = stored(job, curve_of([0.1, next(ends) / 20]))
        with open(job.path, "w") as f:
            json.dump(result, f)
        return "done"

    (tmp_path / "jobs").mkdir()
    monkeypatch.setattr(kept_jobs, "run", run)
    monkeypatch.setattr(groups_sweeps, "make_jobs", lambda seeds: jobs)
    out = ["--seeds", "0", "1", "--out", str(tmp_path)]
    assert groups_sweeps.main(out) == 0
    record = json.loads((tmp_path / "groups_sweeps.json").read_text())
    assert record["command"].endswith("groups_sweeps --seeds 0 1")
    first = record["rows"][0]
    told = first["option"], first["value"], first["method"], first["seeds"]
    assert told == ("num_trees", 2, "the paper's forest", 1)
    assert [row["accuracy"] for row in record["rows"]] == [
        i / 20 for i in range(12)
    ]
    assert (tmp_path / "groups_sweeps.png").stat().st_size > 5000
    # What has a result is not run again.
    monkeypatch.setattr(kept_jobs, "run", None)
    assert groups_sweeps.main(out) == 0
    assert "num_trees" in capsys.readouterr().out
