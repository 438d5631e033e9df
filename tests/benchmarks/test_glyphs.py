"""Characters as classes: what is drawn, the parts, and the table."""

import numpy as np
import pytest

from benchmarks import glyphs
from benchmarks import glyphs_data


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


def test_a_package_that_cannot_be_had_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(glyphs_data, "FOLDER", str(tmp_path))
    monkeypatch.setattr(glyphs_data.subprocess, "run", refused)
    with pytest.raises(RuntimeError, match="cannot download 'fonts-none'"):
        glyphs_data.fetch("fonts-none")


def refused(*args, **kwargs):
    class Done:
        returncode, stderr = 100, "E: Unable to locate package"

    return Done


def test_the_table_has_means_over_seeds():
    results = [
        {"accuracy": x, "verified": 0.9, "TPR@0.001": 0.5, "ms a step": 2.0}
        for x in (0.4, 0.6)
    ]
    row = glyphs.row("random", results)
    assert row["method"] == "the papers' random" and row["seeds"] == 2
    assert row["accuracy"] == pytest.approx(0.5)
    assert row["accuracy +-"] == pytest.approx(0.1)


def test_a_training_has_what_the_table_shows(tmp_path, monkeypatch):
    """On a few drawings of noise: the whole job, but for its process."""
    random = np.random.default_rng(0)
    side, classes = glyphs_data.SIDE, 300

    def part(count, of):
        y = np.arange(count) % of
        x = random.integers(0, 255, (count, side, side)).astype(np.uint8)
        return x, y

    data = glyphs_data.Glyphs(
        *part(600, classes), *part(300, classes), *part(40, 20), range(classes)
    )
    monkeypatch.setattr(glyphs, "BATCH", 32)
    monkeypatch.setattr(glyphs, "NEGATIVES", 16)
    found = glyphs.trained(data, "auto", 2, 0)
    assert 0 <= found["verified"] <= 1 and 0 <= found["accuracy"] <= 1
    assert found["ms a step"] > 0
