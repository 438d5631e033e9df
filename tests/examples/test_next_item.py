"""The example on few sequences."""

import numpy as np
import pytest

from examples import next_item


def test_sequences_and_what_is_popular(monkeypatch):
    monkeypatch.setattr(next_item, "MOST_FREQUENT", 0)
    monkeypatch.setattr(next_item, "LEAST_LENGTH", 3)
    texts = ["a red car", "Red car, red: house", "tall"] * next_item.LEAST_COUNT
    items, rows = next_item.sequences_of(texts)
    assert items[:3] == ["", "car", "red"]
    assert [items[i] for i in rows[1]] == ["red", "car", "house"]
    (x, y), (test_x, test_y) = next_item.split(rows[1:2])
    assert x[0, -2:].tolist() == [0, 2] and y[0, -2:].tolist() == [-1, 1]
    assert test_x[0, -2:].tolist() == [2, 1] and items[test_y[0]] == "house"
    x = np.repeat(np.arange(40), np.arange(40))
    best = next_item.popular(x, np.array([[0, 39, 37]]), 40)
    assert best[0, :3].tolist() == [38, 36, 35]
    assert next_item.scores(best, np.array([36])) == (1, 1 / np.log2(3))


@pytest.mark.slow
def test_end_to_end(capsys, tmp_path):
    """Each item is followed by the next one: hit@10 is 0.3 by chance."""
    random = np.random.default_rng(0)
    starts = random.integers(1, 41, 1_000)
    sequences = [[(x + i - 1) % 40 + 1 for i in range(8)] for x in starts]
    items = ["", *map(str, range(1, 41))]
    picture = tmp_path / "accuracy.png"
    found = next_item.compare(
        items, sequences, 20, 41, verbose=0, picture=picture
    )
    assert picture.read_bytes()[1:4] == b"PNG"
    assert "1,000 sequences of 40 items." in capsys.readouterr().out
    assert found["popular"][0] < 0.5
    assert found["full"][0] > 0.8 and found["sampled"][0] > 0.8
