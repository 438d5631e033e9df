"""Figures are drawn from committed rows, and their titles fit."""

import numpy as np
import pytest

from benchmarks import dropmax_retained
from benchmarks import figure_style
from benchmarks import measure
from benchmarks.hierarchical import __main__ as hierarchical


@pytest.fixture
def titles(monkeypatch):
    """The titles of the figures that are saved."""
    found, save = [], figure_style.save

    def remember(figure, path, title):
        found.append(title)
        save(figure, path, title)

    monkeypatch.setattr(figure_style, "save", remember)
    return found


def test_trees(tmp_path, titles, monkeypatch):
    rows = measure.finished(hierarchical.NAME)
    monkeypatch.setattr(measure, "RESULTS", str(tmp_path))
    (tmp_path / "hierarchical").mkdir()
    hierarchical.draw(rows)
    assert len(list(tmp_path.rglob("*.png"))) == 1
    assert "52 % of the exact softmax's time" in titles[0]


def test_retained_classes(tmp_path, titles):
    """Two rows in three are hard: the plain softmax gives the next class."""
    labels = np.repeat(np.arange(10), 3)
    plain = np.eye(10)[(labels + np.tile([0, 1, 1], 10)) % 10]
    retained = 0.3 + 0.5 * plain
    results, bases = ([{"answers": x.tolist()}] for x in (retained, plain))
    shown = dropmax_retained.figure_of(results, bases, labels)
    assert shown["hard"]["labels"] == shown["easy"]["guesses"] == [*range(10)]
    row = dropmax_retained.hard_rows(retained, plain.argmax(axis=1), labels)
    found = dropmax_retained.patterns_of(retained, plain, labels)
    assert list(found.values()) == pytest.approx([0.3, 0.3625, 1, -1 / 9])
    dropmax_retained.draw_retained(shown, row, str(tmp_path / "retained.png"))
    assert titles[0].endswith(
        "answer with 0.80, and the eight others with 0.30"
    )
