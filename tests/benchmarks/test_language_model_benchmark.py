"""Segments of a language model's text, and the rows of a run."""

import importlib
import pathlib
import sys

import numpy as np
import pytest

# A script of benchmarks, which no user runs.
pytestmark = pytest.mark.slow

FOLDER = pathlib.Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    names = ("measure", "language_model")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module(names[-1])
    for name in names:
        sys.modules.pop(name, None)


def test_segments_of_a_step_go_on_with_the_last_step(benchmark):
    size = benchmark.SIZES["small"]._replace(batch=3, length=4)
    x, y = benchmark.segments(np.arange(100), size)
    # 8 steps of 3 segments; the words that are left over are cut.
    assert x.shape == y.shape == (24, 4)
    np.testing.assert_array_equal(y, x + 1)
    for stream in range(3):
        np.testing.assert_array_equal(
            x[stream::3].ravel(), np.arange(32) + 32 * stream
        )


def test_unseen_words_are_inputs_but_no_targets(benchmark):
    size = benchmark.SIZES["small"]._replace(batch=1, length=2)
    x, y = benchmark.segments(np.array([5, -1, 6, 7, 8]), size)
    assert x.tolist() == [[5, 0], [6, 7]] and y.tolist() == [[-1, 6], [7, 8]]


def test_rows_are_trained_once(benchmark, monkeypatch, tmp_path):
    text = " ".join(f"a b c{i % 7}" for i in range(200))
    for part in benchmark.PARTS:
        (tmp_path / f"ptb.{part}.txt").write_text(text)
    cache = str(tmp_path / "cache")
    monkeypatch.setattr(benchmark.measure, "CACHE", cache)
    saved = {}
    monkeypatch.setattr(
        benchmark.measure,
        "save",
        lambda name, rows, keys: saved.update({name: rows}),
    )
    size = benchmark.Size(6, 5, 0.0, 0.1, 5.0, 4, 2.0, 4)
    monkeypatch.setattr(benchmark, "SIZES", {"small": size})
    trained = []
    train = benchmark.train

    def counted(model, data, size, epoch):
        trained.append(epoch)
        return train(model, data, size, epoch)

    monkeypatch.setattr(benchmark, "train", counted)
    # The lift begins with two epochs of RP.
    for rows in "sampled", "RP", "RP lift":
        trained.clear()
        options = f"--data {tmp_path} {rows} --epochs 3 --slim_epochs 2"
        benchmark.main(options.split())
        assert trained == [1, 2, 3]
    rows = saved["penn_treebank_small"]
    found = {(row["row"], row["epoch"]): row["test"] for row in rows}
    names = [("RP", epoch) for epoch in (1, 2, 3)]
    assert [*found] == [*names, ("lift", 2), ("lift", 3)]
    # The lift has RP's answers.
    assert found["lift", 2] == pytest.approx(found["RP", 2], rel=1e-4)
