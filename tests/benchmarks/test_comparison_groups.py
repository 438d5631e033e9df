"""The benchmark of classes in groups: its jobs and its tables."""

import math

import numpy as np
import pytest

from benchmarks import measure
from benchmarks.comparison import groups
from benchmarks.comparison.groups import GroupsJob
from benchmarks.comparison.methods import cosine_head

# A script of benchmarks, which no user runs.
pytestmark = pytest.mark.slow


def curve_of(accuracies, ms=2.0, noise=1.0, stretch=100):
    return [
        {
            "step": stretch * (i + 1),
            "cpu_s": stretch * (i + 1) * ms / 1e3,
            "accuracy": accuracy,
            "v": 2 * noise,
            "noise": noise,
        }
        for i, accuracy in enumerate(accuracies)
    ]


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "CACHE", str(tmp_path / "jobs"))
    monkeypatch.setattr(measure, "RESULTS", str(tmp_path / "out"))
    return tmp_path


def test_what_has_a_result_is_not_run_again(folders, monkeypatch):
    """Rows of other settings stay, and say how they were measured."""
    ran = []

    def ask(*job):
        ran.append(GroupsJob(*job)._asdict())
        if len(ran) == 2:
            return {"error": "killed"}
        return {"curve": curve_of([0.2, 0.4 + 0.2 * ran[-1]["seed"]])}

    def jobs(classes):
        return lambda seeds: [
            GroupsJob(classes, 10, 8, 16, 24, method, seed)
            for seed in seeds
            for method in groups.METHODS[:2]
        ]

    def tabulate(classes, seeds):
        table = (jobs(classes), *groups.TABLES["groups"][1:])
        monkeypatch.setitem(groups.TABLES, "groups", table)
        failed = groups.tabulate("groups", seeds)
        return failed, measure.finished("comparison/groups")

    monkeypatch.setattr(measure, "ask", ask)
    assert tabulate(200, [0])[0] == 1
    failed, rows = tabulate(200, [0])
    assert failed == 0
    methods = [job["method"] for job in ran]
    assert methods == [*groups.METHODS[:2], groups.METHODS[1]]
    assert [row["method"] for row in rows] == [*groups.METHODS[:2]]
    _, rows = tabulate(100, [0, 1])
    assert [row["classes"] for row in rows] == [200, 200, 100, 100]
    found = rows[-1]
    assert found["seeds"] == 2 and found["steps"] == 200
    assert math.isclose(found["accuracy"], 0.5)
    assert math.isclose(found["accuracy +-"], 0.02**0.5)
    assert math.isclose(found["cpu_ms"], 2.0) and found["noise"] == 1
    assert all(row["measured"]["command"] for row in rows)
    assert len(ran) == 7


@pytest.mark.parametrize("group", [1, 5, 7])
def test_rows_lie_about_their_classes_in_groups(group):
    made = groups.Groups(50, group)
    x, y = made.sample(4000, seed=1)
    noise = (x - made.means[y]).std()
    assert abs(noise - groups.NOISE) < 0.01
    of_group = np.arange(50) // group
    centres = np.stack([made.means[of_group == g].mean(0) for g in of_group])
    spread = math.sqrt(((made.means - centres) ** 2).mean())
    expected = groups.WITHIN * math.sqrt(1 - 1 / group)
    assert abs(spread - expected) < 0.03


def test_the_lsh_papers_rule_in_a_table():
    job = GroupsJob(100, 10, 5, 8, 300, "lsh_paper")
    results = [{"curve": curve_of([0.1, end])} for end in (0.7, 0.9)]
    row = groups.row_of("groups_lsh", job, results)
    assert row["method"] == "the paper's LSH"
    assert (row["least"], row["most"], row["seeds"]) == (0.7, 0.9, 2)


def test_jobs_are_told_apart_by_their_option():
    jobs = groups.sweep_jobs([0, 1])
    assert len({*jobs}) == len(jobs) == 69
    row = groups.row_of(
        "groups_sweeps", jobs[2], [{"curve": curve_of([0.1, 0.3])}]
    )
    told = row["option"], row["value"], row["method"], row["accuracy"]
    assert told == ("num_trees", 2, "the paper's forest", 0.3)


@pytest.mark.parametrize(
    "method", ["forest", "forest_paper", "lsh", "lsh_uncorrected"]
)
def test_an_option_is_the_samplers(method):
    for name, (methods, values) in groups.SWEEPS.items():
        if method not in methods:
            continue
        option = {name: values[0]}
        sampler = cosine_head(method, 100, 40, 24.0, 0, **option).sampler
        owner = sampler if hasattr(sampler, name) else sampler.tables
        assert getattr(owner, name) == values[0]
