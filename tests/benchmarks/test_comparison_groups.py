"""The benchmark of classes in groups: what its curves come to."""

import json
import math

import numpy as np
import pytest

from benchmarks.comparison import groups
from benchmarks.comparison import groups_lsh
from benchmarks.comparison import groups_results as results
from benchmarks.comparison.groups import GroupsJob


def curve_of(accuracies, ms=2.0, noise=1.0, stretch=100):
    return [
        {
            "step": stretch * (i + 1),
            "cpu_s": stretch * (i + 1) * ms / 1e3,
            "accuracy": accuracy,
            "v": 2 * noise,
            "noise": noise,
            "k_eff": 5.0,
            "sampler": {},
        }
        for i, accuracy in enumerate(accuracies)
    ]


def stored(job, curve):
    about = {"date": "2026-01-01", "machine": "two cores"}
    return {"job": job._asdict(), "curve": curve, **about}


def test_first_at_goes_along_lines():
    curve = curve_of([0.2, 0.6, 0.5, 0.9])
    assert results.first_at(curve, 0.1) == 50
    assert results.first_at(curve, 0.4) == 150
    assert results.first_at(curve, 0.6) == 200
    assert results.first_at(curve, 0.7) == 350
    # 2 ms a step, and 3 of an encoder.
    assert math.isclose(results.first_at(curve, 0.4, 3), 150 * 5e-3)


def test_speed_up_is_at_what_both_reach():
    uniform, forest = curve_of([0.2, 0.4]), curve_of([0.4, 0.8], ms=4.0)
    assert results.speed_up(uniform, forest) == 2.0
    assert results.speed_up(uniform, forest, 0) == 1.0
    assert math.isclose(results.speed_up(uniform, forest, 2), 2 * 4 / 6)
    assert results.speed_up(forest, uniform) == 0.5


def test_constants_choose_by_noise_and_cost():
    """Noise 1; neighbours take twice the time a step: c above a half is
    uniform; with encoders of 5 and 20 ms the ratios are 9/7 and 24/22."""
    setting = (10, 5, 2)
    curves = {
        (setting, "uniform", 0): curve_of([0.2, 0.4]),
        (setting, "neighbors", 0): curve_of([0.4, 0.8], ms=4.0),
    }
    rows = {row["constant"]: row for row in results.constants(curves)}
    # Twice the steps: right with encoders, and as good without.
    assert rows[0.35]["right"] == rows[0.35]["of"] == 3
    assert rows[0.7]["right"] == 3  # without an encoder either is right
    late = rows[2.0]
    assert late["right"] == 1
    gains = 1.0, 2 * 7 / 9, 2 * 22 / 24
    np.testing.assert_allclose(late["worst"], gains[2])
    np.testing.assert_allclose(late["excess"], np.prod(gains) ** (1 / 3))


def test_a_csv_and_tables_of_results(tmp_path):
    jobs = [GroupsJob(10, 5, 2, 4, 200, m) for m in ("neighbors", "uniform")]
    found = [
        stored(jobs[0], curve_of([0.4, 0.8])),
        stored(jobs[1], curve_of([0.2, 0.4])),
    ]
    # One by one: a job of another day stays.
    results.collect(found[:1], tmp_path)
    results.collect(found[1:], tmp_path)
    results.draw(tmp_path)
    rows = json.loads((tmp_path / "groups.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["neighbors", "uniform"]
    for column in ("steps_x", "time_x_5ms"):
        found = [row[column] for row in rows]
        np.testing.assert_allclose(found, [2.0, 1.0], rtol=1e-9)
    assert [row["accuracy +-"] for row in rows] == ["", ""]
    assert (tmp_path / "groups.png").stat().st_size > 0
    # One setting says nothing of a constant.
    assert not (tmp_path / "groups_constant.json").exists()


def test_a_table_has_means_over_seeds(tmp_path):
    def collect(method, seed, accuracies):
        job = GroupsJob(10, 5, 2, 4, 200, method, seed)
        results.collect([stored(job, curve_of(accuracies))], tmp_path)

    for seed, (uniform, other) in enumerate([(0.4, 0.8), (0.2, 0.6)]):
        collect("uniform", seed, [uniform / 2, uniform])
        collect("forest", seed, [other / 2, other])
    collect("full", 2, [0.5, 1.0])
    curves = results.read(tmp_path / "groups.csv")
    rows = {row["method"]: row for row in results.table(curves)}
    assert [rows[m]["seeds"] for m in ("uniform", "full")] == [2, 1]
    found = rows["forest"]
    np.testing.assert_allclose(found["accuracy"], 0.7)
    np.testing.assert_allclose(found["accuracy +-"], 0.02**0.5)
    np.testing.assert_allclose(found["steps_x"], (2 + 3) / 2)
    assert rows["full"]["steps_x"] == ""
    assert found["machine"] == "two cores"


def test_what_has_a_result_is_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(groups, "CACHE", str(tmp_path / "jobs"))
    ran = []

    def in_fresh_process(*arguments):
        ran.append(json.loads(arguments[-1])["method"])
        if len(ran) == 2:
            return {"error": "killed"}
        return {"curve": curve_of([0.2, 0.4])}

    monkeypatch.setattr(groups.measure, "in_fresh_process", in_fresh_process)
    arguments = ["--quick", "--out", str(tmp_path / "out")]
    assert groups.main(arguments) == 1
    assert groups.main(arguments) == 0
    assert ran == [*groups.METHODS[:2], groups.METHODS[1]]
    assert groups.main([*arguments, "--figures"]) == 0
    assert len(ran) == 3
    # Another folder gets what is there.
    other = tmp_path / "other"
    assert groups.main(["--quick", "--out", str(other)]) == 0
    assert len(ran) == 3 and (other / "groups.json").exists()


@pytest.mark.parametrize("group", [1, 5, 7])
def test_rows_lie_about_their_classes_in_groups(group):
    from benchmarks.comparison import groups_train

    made = groups_train.Groups(50, group)
    x, y = made.draw(4000, seed=1)
    noise = (x - made.means[y]).std()
    assert abs(noise - groups_train.NOISE) < 0.01
    of_group = np.arange(50) // group
    centres = np.stack([made.means[of_group == g].mean(0) for g in of_group])
    spread = math.sqrt(((made.means - centres) ** 2).mean())
    expected = groups_train.WITHIN * math.sqrt(1 - 1 / group)
    assert abs(spread - expected) < 0.03


def test_the_lsh_papers_rule_in_a_table():
    jobs = [
        GroupsJob(100, 10, 5, 8, 300, method, seed)
        for seed in (0, 1)
        for method in ("random", "lsh_paper")
    ]
    ends = (0.5, 0.7, 0.6, 0.9)
    found = [
        (job, stored(job, curve_of([0.1, end])))
        for job, end in zip(jobs, ends, strict=True)
    ]
    random, lsh = groups_lsh.rows_of(found)
    assert (random["method"], lsh["method"]) == (
        "the papers' random",
        "the paper's LSH",
    )
    assert math.isclose(random["accuracy"], 0.55)
    assert (lsh["least"], lsh["most"], lsh["seeds"]) == (0.7, 0.9, 2)
