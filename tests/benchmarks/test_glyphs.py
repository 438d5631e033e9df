"""Characters as classes: what is drawn, the parts, and the table."""

import csv
import json

import numpy as np
import pytest

from benchmarks import glyphs
from benchmarks import glyphs_data
from benchmarks import measure


def latin_font():
    from matplotlib import font_manager

    return font_manager.findfont("DejaVu Sans")


def test_characters_are_drawn_in_the_middle_and_blank_ones_left():
    codes = [ord(c) for c in "A. W"]
    images, drawn = glyphs_data.draw(latin_font(), 0, codes)
    assert [chr(code) for code in drawn] == ["A", ".", "W"]
    side = glyphs_data.SIDE
    assert images.shape == (3, side, side) and images.dtype == np.uint8
    for image in images:
        rows, columns = np.nonzero(image)
        for places in (rows, columns):
            middle = (places.min() + places.max()) / 2
            assert abs(middle - (side - 1) / 2) <= 1.5


def test_classes_are_in_enough_fonts_and_in_a_tested_one():
    def pair(codes):
        codes = np.array(codes, np.int64)
        side = glyphs_data.SIDE
        images = np.zeros((len(codes), side, side), np.uint8)
        images[:, 0, 0] = codes
        return images, codes

    least = glyphs_data.LEAST_FONTS
    many = np.repeat(np.arange(30), least)
    learned = [*many, *np.repeat(40, least - 1), *np.repeat(41, least)]
    data = glyphs_data.make(pair(learned), pair([*range(30), 40, *range(30)]))
    # 40 is in too few fonts, 41 in none of the test.
    assert data.num_classes == 27 and set(data.characters) < set(range(30))
    new = np.setdiff1d(np.arange(30), data.characters)
    assert len(np.unique(data.new_y)) == 3 and len(data.new_y) == 6
    np.testing.assert_array_equal(np.unique(data.new_x[:, 0, 0]), new)
    for x, y in ((data.x, data.y), (data.test_x, data.test_y)):
        np.testing.assert_array_equal(data.characters[y], x[:, 0, 0])
    assert len(data.y) == 27 * least and len(data.test_y) == 54
    assert "27 classes" in glyphs_data.about(data)


def test_a_package_that_cannot_be_had_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(glyphs_data.subprocess, "run", refused)
    with pytest.raises(RuntimeError, match="cannot download 'fonts-none'"):
        glyphs_data.fetch("fonts-none", str(tmp_path))


def refused(*args, **kwargs):
    class Done:
        returncode, stderr = 100, "E: Unable to locate package"

    return Done


def result_of(method, seed, accuracies, ms):
    points = [
        {
            "step": 100 * (i + 1),
            "cpu_s": 0.1 * (i + 1) * ms,
            "accuracy": accuracy,
            "v": 1.0,
            "noise": 0.5,
            "k_eff": 20.0,
            "sampler": {"recall": 0.4} if method == "auto" else {},
        }
        for i, accuracy in enumerate(accuracies)
    ]
    return {
        "job": glyphs.GlyphsJob(method, glyphs.STEPS, seed)._asdict(),
        "date": "2026-01-01",
        "machine": "two cores",
        "data": "27 classes, of fonts",
        "curve": points,
        "accuracy": accuracies[-1],
        "verified": 0.9,
        "TPR@0.001": 0.5,
    }


def test_the_table_compares_with_uniform_in_steps_and_in_time(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(measure, "RESULTS", str(tmp_path))
    monkeypatch.setattr(glyphs, "POINTS", str(tmp_path / "glyphs.csv"))
    found = {
        (method, seed): result_of(method, seed, accuracies, ms)
        for seed in (0, 1)
        for method, accuracies, ms in (
            ("uniform", [0.2, 0.4], 1.0),
            ("auto", [0.4, 0.6], 2.0),
        )
    }
    glyphs.collect(found, [0, 1])
    glyphs.draw()
    rows = json.loads((tmp_path / "glyphs.json").read_text())["rows"]
    assert [row["method"] for row in rows] == ["uniform", "auto"]
    auto = rows[1]
    assert auto["seeds"] == 2 and auto["accuracy +-"] == 0
    np.testing.assert_allclose(auto["steps_x"], 2.0)
    np.testing.assert_allclose(auto["time_x"], 1.0)
    np.testing.assert_allclose(auto["in uniform's time"], 0.4)
    with open(tmp_path / "glyphs.csv", newline="") as f:
        assert len(list(csv.DictReader(f))) == 8
    assert (tmp_path / "glyphs.png").stat().st_size > 0


def test_a_training_has_what_the_table_shows(tmp_path, monkeypatch):
    """On a few drawings of noise: the whole job, but for its process."""
    from benchmarks import glyphs_train

    random = np.random.default_rng(0)
    side, classes = glyphs_data.SIDE, 300

    def part(count, of):
        y = np.arange(count) % of
        x = random.integers(0, 255, (count, side, side)).astype(np.uint8)
        return x, y

    data = glyphs_data.Glyphs(
        *part(600, classes), *part(300, classes), *part(40, 20), range(classes)
    )
    monkeypatch.setattr(glyphs_train, "POINTS", 2)
    monkeypatch.setattr(glyphs_train, "BATCH", 32)
    monkeypatch.setattr(glyphs_train, "NEGATIVES", 16)
    job = glyphs.GlyphsJob("auto", 2)
    found = glyphs_train.trained(job, data)
    assert [point["step"] for point in found["curve"]] == [1, 2]
    assert 0 <= found["verified"] <= 1 and 0 <= found["accuracy"] <= 1
    assert found["curve"][-1]["v"] > 0
